// What logging every epoch costs: trains a GAT of 30 layers, 4 heads of 64 features, on Cora
// through the trainer, in turns without an output directory and with metrics.jsonl, events and all
// gradient norms, and prints the time of an epoch of both and their ratio, as medians: of the wall
// clock, and of the processors, which matters less to users but shows more on a machine that does
// other things too.
//
//   lipgrad_bench_logging_cost [--layers=30] [--rounds=8] [--epochs=4]

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <vector>

#include <lipgrad/core/error.h>
#include <lipgrad/graph/datasets.h>
#include <lipgrad/models/gnn.h>
#include <lipgrad/models/node_classification.h>
#include <lipgrad/models/trainer.h>
#include <lipgrad/ops/optimizers.h>

using namespace lipgrad;

namespace {

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

struct Seconds {
  std::vector<double> wall, processor;
  void add(const Seconds& other) {
    wall.insert(wall.end(), other.wall.begin(), other.wall.end());
    processor.insert(processor.end(), other.processor.begin(), other.processor.end());
  }
};

// Of every epoch but the first: from the end of one to the end of the next, logging included and
// the checkpoint at the end not.
Seconds run(const NodeData& data, int layers, int epochs, const std::string& out) {
  Gnn net({.in = data.features.cols(),
           .out = data.num_classes,
           .layers = layers,
           .heads = 4,
           .hidden = 64,
           .dropout = 0,
           .attention_dropout = 0});
  Generator rng{0};
  net.initialize(rng);
  Adam optimizer(net, {.lr = 1e-3});
  Seconds seconds;
  double wall = 0, processor = 0;
  std::int64_t ended = 0;
  const auto after_epoch = [&] {
    const double wall_now = wall_seconds(), processor_now = processor_seconds();
    if (ended++ > 0) seconds.add({{wall_now - wall}, {processor_now - processor}});
    wall = wall_now;
    processor = processor_now;
    return false;
  };
  train(node_classification(net, data), optimizer, nullptr, rng,
        {.epochs = epochs + 1,
         .select = Selection::last,
         .out = out,
         .checkpoint_every = epochs + 1,
         .log_gradients_every = out.empty() ? 0 : 1,
         .progress = false,
         .interrupted = after_epoch});
  return seconds;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) try {
  int layers = 30, rounds = 8, epochs = 4;
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], "--layers=", 9) == 0) layers = std::atoi(argv[i] + 9);
    if (std::strncmp(argv[i], "--rounds=", 9) == 0) rounds = std::atoi(argv[i] + 9);
    if (std::strncmp(argv[i], "--epochs=", 9) == 0) epochs = std::atoi(argv[i] + 9);
  }
  const NodeData data = load_node_data("cora");
  std::string scratch = (std::filesystem::temp_directory_path() / "lipgrad-bench-XXXXXX").string();
  if (!::mkdtemp(scratch.data())) throw Error(scratch + ": cannot be created");
  Seconds plain, logged, ratios;
  for (int round = 0; round < rounds; ++round) {
    const Seconds a = run(data, layers, epochs, "");
    const Seconds b = run(data, layers, epochs, scratch + "/" + std::to_string(round));
    plain.add(a);
    logged.add(b);
    ratios.add({{median(b.wall) / median(a.wall)}, {median(b.processor) / median(a.processor)}});
  }
  std::filesystem::remove_all(scratch);
  const auto print = [&](const char* what, const auto member) {
    std::printf("%s: %.1f ms an epoch without logging, %.1f ms with, median of %d ratios %.4f\n",
                what, 1e3 * median(plain.*member), 1e3 * median(logged.*member), rounds,
                median(ratios.*member));
  };
  print("wall clock", &Seconds::wall);
  print("processors", &Seconds::processor);
  return 0;
} catch (const Error& error) {
  std::fprintf(stderr, "logging_cost: %s\n", error.what());
  return 1;
}
