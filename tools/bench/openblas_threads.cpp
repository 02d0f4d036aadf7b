// lipgrad_bench_openblas [threads] [rounds]
//
// The three products of a linear layer, 784 x 768 -> 3072 in f32, forward and backward: OpenBLAS
// with its own threads against lipgrad's blocks over single-threaded OpenBLAS, and against the
// layer's whole step (bias, tape and its gradients included). Both sides run in turn, each in a
// process of its own since OpenBLAS's number of threads is a setting of the process; the medians
// over all rounds and their ratio are printed.

#include <cblas.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <lipgrad/core/blas.h>
#include <lipgrad/core/random.h>
#include <lipgrad/core/tape.h>
#include <lipgrad/core/threads.h>
#include <lipgrad/ops/linear.h>

namespace {

using lipgrad::Tensor;

constexpr int rows = 784, in = 768, out = 3072;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

template <class F>
double median_time(F f) {
  std::vector<double> times;
  f();
  for (int i = 0; i < 7; ++i) {
    const double start = now();
    f();
    times.push_back(now() - start);
  }
  return median(times);
}

// Prints "forward input weight step" in milliseconds.
void run_side(bool own_threads, int threads) {
  lipgrad::Generator rng{1};
  const Tensor x = lipgrad::randn({rows, in}, lipgrad::f32, rng);
  const Tensor w = lipgrad::randn({out, in}, lipgrad::f32, rng);
  const Tensor b = lipgrad::randn({out}, lipgrad::f32, rng);
  const Tensor g = lipgrad::randn({rows, out}, lipgrad::f32, rng);
  Tensor y = lipgrad::empty({rows, out}), gx = lipgrad::empty({rows, in}),
         gw = lipgrad::empty({out, in});
  const auto product = [&](bool ta, bool tb, int m, int n, int k, const Tensor& a, const Tensor& c,
                           Tensor& to) {
    if (own_threads) {
      cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, m,
                  n, k, 1, a.data<float>(), ta ? m : k, c.data<float>(), tb ? k : n, 0,
                  to.mutable_data<float>(), n);
    } else {
      lipgrad::gemm<float>(ta, tb, m, n, k, 1, a.data<float>(), ta ? m : k, c.data<float>(),
                           tb ? k : n, 0, to.mutable_data<float>(), n);
    }
  };
  if (own_threads) {
    openblas_set_num_threads(threads);
  } else {
    lipgrad::set_num_threads(threads);
  }
  const double forward = median_time([&] { product(false, true, rows, out, in, x, w, y); });
  const double input = median_time([&] { product(false, false, rows, in, out, g, w, gx); });
  const double weight = median_time([&] { product(true, false, out, in, rows, g, x, gw); });
  double step = 0;
  if (!own_threads)
    step = median_time([&] {
      lipgrad::Tape tape;
      const Tensor vx = tape.watch(x), vw = tape.watch(w), vb = tape.watch(b);
      const auto gradients = tape.grad(linear(vx, vw, vb), {vx, vw, vb}, g);
    });
  std::printf("%.6f %.6f %.6f %.6f\n", forward * 1e3, input * 1e3, weight * 1e3, step * 1e3);
}

}  // namespace

int main(int count, char** arguments) {
  if (count == 4 && std::strcmp(arguments[1], "--side") == 0) {
    run_side(std::strcmp(arguments[2], "openblas") == 0, std::atoi(arguments[3]));
    return 0;
  }
  const int threads = count > 1 ? std::atoi(arguments[1]) : lipgrad::num_threads();
  const int rounds = count > 2 ? std::atoi(arguments[2]) : 9;
  if (threads < 1 || rounds < 1) {
    std::fprintf(stderr, "usage: %s [threads] [rounds]\n", arguments[0]);
    return 2;
  }
  std::vector<double> times[2][4];
  for (int round = 0; round < rounds; ++round)
    for (int side = 0; side < 2; ++side) {
      const std::string command = std::string("'") + arguments[0] + "' --side " +
                                  (side == 0 ? "openblas " : "lipgrad ") + std::to_string(threads);
      std::FILE* pipe = popen(command.c_str(), "r");
      double t[4];
      const bool read =
          pipe && std::fscanf(pipe, "%lf %lf %lf %lf", &t[0], &t[1], &t[2], &t[3]) == 4;
      if (pipe) pclose(pipe);
      if (!read) {
        std::fprintf(stderr, "lipgrad_bench_openblas: '%s' failed\n", command.c_str());
        return 1;
      }
      for (int i = 0; i < 4; ++i) times[side][i].push_back(t[i]);
    }
  std::printf("%s\n%d threads, medians of %d rounds, %d x %d -> %d, f32\n",
              lipgrad::blas_description(), threads, rounds, rows, in, out);
  const char* names[] = {"forward", "input gradient", "weight gradient"};
  double sum[2] = {};
  for (int i = 0; i < 3; ++i) {
    const double theirs = median(times[0][i]), ours = median(times[1][i]);
    sum[0] += theirs;
    sum[1] += ours;
    std::printf("%-16s OpenBLAS %8.2f ms   lipgrad %8.2f ms   rate %5.1f %%\n", names[i], theirs,
                ours, 100 * theirs / ours);
  }
  std::printf("%-16s OpenBLAS %8.2f ms   lipgrad %8.2f ms   rate %5.1f %%\n", "three products",
              sum[0], sum[1], 100 * sum[0] / sum[1]);
  const double step = median(times[1][3]);
  std::printf("%-16s OpenBLAS %8.2f ms   lipgrad %8.2f ms   rate %5.1f %%\n", "linear's step",
              sum[0], step, 100 * sum[0] / step);
}
