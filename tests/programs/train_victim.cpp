// A small training run to be killed and resumed: train_victim --out DIR [--resume] [--steps N].
// It writes DIR/checkpoint.lip and a line of DIR/metrics.jsonl at every step, so that a kill often
// meets a checkpoint half written.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include <lipgrad/core/checkpoint.h>
#include <lipgrad/core/error.h>
#include <lipgrad/core/log.h>
#include <lipgrad/core/tape.h>
#include <lipgrad/ops/optimizers.h>
#include <lipgrad/ops/schedules.h>
#include <support/ops.h>

namespace lipgrad {
namespace {

void normal(Tensor& x, Generator& rng) { x = randn(x.shape(), x.dtype(), rng); }

constexpr std::int64_t kSize = 20000;

struct Net : Module {
  Parameter scale{*this, "scale", {kSize}, normal, f64};
  Parameter shift{*this, "shift", {kSize}, normal, f64};
  Buffer mean{*this, "mean", {kSize}, 0, f64};

  // y = dropout(scale * x) + shift, with a running mean of x.
  Tensor forward(const Tensor& x, Mode mode) {
    const Tensor mask = map("mask", rand_uniform(x.shape(), 0, 1, f64, mode.rng()),
                            [](auto u) { return decltype(u)(u < 0.5 ? 0 : 2); });
    double* running = mean.mutable_data<double>();
    for (std::int64_t i = 0; i < kSize; ++i) running[i] += 0.1 * (x.data<double>()[i] - running[i]);
    return testing::add2(testing::product(testing::product(scale, x), mask), shift);
  }
};

void train(const std::string& out, bool resume, std::int64_t steps) {
  std::filesystem::create_directories(out);
  const std::string path = out + "/checkpoint.lip", log_path = out + "/metrics.jsonl";
  Net net;
  Generator rng{17};
  Adam optimizer{net, {.lr = 0.02, .weight_decay = 1e-3}};
  LrSchedule schedule{optimizer, linear_warmup({.steps = 10}, cosine_decay({.steps = steps}))};
  std::int64_t step = 0;
  if (resume && std::filesystem::exists(path)) {
    read_checkpoint_info(path, true);
    step = load_checkpoint(path, net,
                           {.optimizer = &optimizer, .schedule = &schedule, .generator = &rng})
               .info.step;
  } else {
    net.initialize(rng);
  }
  JsonlWriter log = JsonlWriter::resume(log_path, step);
  for (; step < steps;) {
    Tape tape;
    const Tensor x = randn({kSize}, f64, rng);
    const Tensor y = net.forward(x, Mode::train(rng));
    const Tensor loss = testing::total(testing::product(y, y));
    tape.backward(loss);
    optimizer.step();
    optimizer.zero_grad();
    schedule.step();
    ++step;
    log.write(step, {{"loss", loss.item()}, {"lr", optimizer.lr()}});
    save_checkpoint(
        path, net,
        {.optimizer = &optimizer, .schedule = &schedule, .generator = &rng, .step = step});
  }
}

}  // namespace
}  // namespace lipgrad

int main(int argc, char** argv) {
  std::string out;
  bool resume = false;
  long steps = 100;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--resume")
      resume = true;
    else if (argument == "--out" && i + 1 < argc)
      out = argv[++i];
    else if (argument == "--steps" && i + 1 < argc)
      steps = std::atol(argv[++i]);
  }
  if (out.empty() || steps < 1) {
    std::fprintf(stderr, "usage: train_victim --out DIR [--resume] [--steps N]\n");
    return 2;
  }
  try {
    lipgrad::train(out, resume, steps);
  } catch (const lipgrad::Error& error) {
    std::fprintf(stderr, "train_victim: %s\n", error.what());
    return 1;
  }
  return 0;
}
