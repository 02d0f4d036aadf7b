// What products of graphs and features move, against the triad of the same run: sparse products of
// one weight an edge, and of one weight an edge and head, f32, on graphs with nodes in random
// order. Compulsory bytes are every array once: x, y, offsets, columns, weights. Gathered bytes
// count a row of x for every edge instead. Arguments: nodes and edges in turn; none: the size of
// ogbn-arxiv, and eight times that.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <lipgrad/core/random.h>
#include <lipgrad/core/threads.h>
#include <lipgrad/graph/message_passing.h>
#include <lipgrad/ops/spmm.h>

#include "lipgrad/measure.h"

using namespace lipgrad;

namespace {

constexpr std::int64_t heads = 4, features = 32, width = heads * features;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The shortest of the runs that fit into 2 seconds.
template <class F>
double seconds_of(F&& f) {
  double best = 1e9;
  f();
  for (const double start = now(); now() - start < 2;) {
    const double before = now();
    f();
    best = std::min(best, now() - before);
  }
  return best;
}

void measure(std::int64_t nodes, std::int64_t edges) {
  Generator rng{1};
  const Graph graph(nodes, rand_int({edges, 2}, nodes, rng));
  graph.reverse();
  const auto draw = [&](const Shape& shape) { return randn(shape, f32, rng); };
  const Tensor x = draw({nodes, width}), weights = draw({edges}),
               head_weights = draw({edges, heads});
  const CsrMatrix matrix(graph.pattern(), weights);
  std::printf("%lld nodes, %lld edges, %lld features: x has %.0f MB\n",
              static_cast<long long>(nodes), static_cast<long long>(edges),
              static_cast<long long>(width), 4e-6 * double(nodes * width));
  const auto row = [&](const char* name, std::int64_t values, auto&& f) {
    const double triad_before = cli::triad_rate(std::int64_t{1} << 24, 0.5).best;
    const double time = seconds_of(f);
    const double triad = std::max(triad_before, cli::triad_rate(std::int64_t{1} << 24, 0.5).best);
    const double pattern = double(nodes) * 8 + double(edges) * 4 + double(edges * values) * 4;
    const double array = 4.0 * double(nodes * width);  // x, y, queries or keys
    const double once = 2 * array + pattern;
    const double gathered = 4.0 * double(edges * width) + array + pattern;
    std::printf(
        "  %-20s %8.2f ms; of the triad's %.1f GB/s: compulsory %5.1f = %5.1f %%, gathered %5.1f = "
        "%5.1f %%\n",
        name, 1e3 * time, triad, 1e-9 * once / time, 100e-9 * once / time / triad,
        1e-9 * gathered / time, 100e-9 * gathered / time / triad);
    std::fflush(stdout);
  };
  row("spmm", 1, [&] { spmm(matrix, x); });
  row("aggregate, 4 heads", heads, [&] { aggregate(graph, x, head_weights); });
  const Tensor q = draw({nodes, heads, features}), k = draw({nodes, heads, features});
  row("edge_dot, 4 heads", heads, [&] { edge_dot(graph, k, q); });
}

}  // namespace

int main(int argc, char** argv) {
  std::printf("%d threads\n", num_threads());
  if (argc < 3) {
    measure(169343, 1166243);
    measure(8 * 169343, 8 * 1166243);
  }
  for (int i = 1; i + 1 < argc; i += 2) measure(std::atoll(argv[i]), std::atoll(argv[i + 1]));
}
