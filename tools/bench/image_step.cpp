// A training step of a model of images on a batch of random ones, f32: forward, cross entropy,
// backward, AdamW. Its time and peak memory, and the rate of its multiply-adds (three times those
// of forward) beside the rate of one large product of OpenBLAS with its own threads, measured in
// turn in a process of its own. Arguments: model (vit_ti, swin_t, cswin_t, lipsformer_cswin_t,
// ...), batch, steps, drop path of the last block. One JSON object on stdout.
// compare_torch_images.py runs it beside PyTorch.

#include <cblas.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <lipgrad/core/error.h>
#include <lipgrad/core/memory.h>
#include <lipgrad/core/random.h>
#include <lipgrad/core/tape.h>
#include <lipgrad/core/threads.h>
#include <lipgrad/models/swin.h>
#include <lipgrad/models/vision_transformer.h>
#include <lipgrad/ops/loss.h>
#include <lipgrad/ops/optimizers.h>

using namespace lipgrad;

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// The largest resident size since it was last reset, in bytes (Linux).
std::int64_t peak_resident() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return 1024 * std::atoll(line.c_str() + 6);
  return 0;
}

void reset_peak_resident() { std::ofstream("/proc/self/clear_refs") << "5"; }

std::unique_ptr<ImageClassifier> make_model(const std::string& name, double drop_path) {
  if (name.starts_with("vit")) {
    VisionTransformerOptions options = vit_options(name);
    options.drop_path = drop_path;
    return std::make_unique<VisionTransformer>(options);
  }
  SwinOptions options = swin_options(name);
  options.drop_path = drop_path;
  return std::make_unique<Swin>(options);
}

// Multiply-adds a second of 2048 x 2048 x 2048.
void print_product_rate(int threads) {
  constexpr int n = 2048;
  openblas_set_num_threads(threads);
  const std::vector<float> a(n * n, 1), b(n * n, 1);
  std::vector<float> c(n * n);
  std::vector<double> taken;
  for (int i = 0; i < 4; ++i) {
    const double start = now();
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n, n, n, 1, a.data(), n, b.data(), n, 0,
                c.data(), n);
    if (i > 0) taken.push_back(now() - start);
  }
  std::printf("%.6e\n", double(n) * n * n / median(taken));
}

double product_rate(const char* program) {
  const std::string command =
      std::string("'") + program + "' --product " + std::to_string(num_threads());
  std::FILE* pipe = ::popen(command.c_str(), "r");
  double rate = 0;
  const bool read = pipe && std::fscanf(pipe, "%lf", &rate) == 1;
  if (pipe) ::pclose(pipe);
  if (!read) throw Error("'" + command + "' failed");
  return rate;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc == 3 && std::strcmp(argv[1], "--product") == 0) {
    print_product_rate(std::atoi(argv[2]));
    return 0;
  }
  const std::string name = argc > 1 ? argv[1] : "vit_ti";
  const std::int64_t batch = argc > 2 ? std::atoll(argv[2]) : 16,
                     steps = argc > 3 ? std::atoll(argv[3]) : 5;
  const double drop_path = argc > 4 ? std::atof(argv[4]) : 0;

  Generator rng{1};
  const Tensor images = randn({batch, 3, 224, 224}, f32, rng);
  std::vector<std::int64_t> classes(batch);
  for (std::int64_t i = 0; i < batch; ++i) classes[i] = 37 * i % 1000;
  const Tensor labels = from_vector({batch}, classes);

  reset_peak_resident();
  const std::int64_t before = peak_resident();
  const auto model = make_model(name, drop_path);
  model->initialize(rng);
  std::int64_t multiply_adds = 0;
  for (const ModuleCost& cost : model->multiply_adds()) multiply_adds += cost.multiply_adds;
  AdamW optimizer(*model, AdamWOptions{.lr = 1e-4});
  std::vector<double> taken, rates;
  for (std::int64_t i = 0; i <= steps; ++i) {
    if (i > 0) rates.push_back(product_rate(argv[0]));
    const double start = now();
    optimizer.zero_grad();
    {
      Tape tape;
      tape.backward(cross_entropy(model->forward(images, Mode::train(rng)), labels));
    }
    optimizer.step();
    if (i > 0) taken.push_back(now() - start);
  }
  const double work = 3.0 * static_cast<double>(multiply_adds * batch), step = median(taken);
  std::printf(
      "{\"model\": \"%s\", \"batch\": %lld, \"threads\": %d, \"step_s\": %.6f, \"best_s\": %.6f, "
      "\"multiply_adds\": %.6e, \"rate\": %.4e, \"openblas_rate\": %.4e, \"share\": %.4f, "
      "\"peak_bytes\": %lld, \"tensor_peak_bytes\": %lld}\n",
      name.c_str(), static_cast<long long>(batch), num_threads(), step,
      *std::min_element(taken.begin(), taken.end()), work, work / step, median(rates),
      work / step / median(rates), static_cast<long long>(peak_resident() - before),
      static_cast<long long>(memory::counters().peak));
  return 0;
} catch (const Error& error) {
  std::fprintf(stderr, "image_step: %s\n", error.what());
  return 1;
}
