// Peak memory of one training step of a GAT layer on a random graph of the size of ogbn-arxiv, as a
// JSON object: bytes over what was there before the step, and the same in node-sized tensors
// (nodes * heads * features floats). The step is a projection, attention with dropout 0.5, mean
// squares as the loss, backward, Adam.

#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include <lipgrad/core/error.h>
#include <lipgrad/core/memory.h>
#include <lipgrad/core/tape.h>
#include <lipgrad/core/threads.h>
#include <lipgrad/graph/gat_conv.h>
#include <lipgrad/ops/loss.h>
#include <lipgrad/ops/optimizers.h>

using namespace lipgrad;

namespace {

struct Net : Module {
  Net(std::int64_t in, std::int64_t out, std::int64_t heads)
      : conv(*this, "conv", {.in = in, .out = out, .heads = heads, .attention_dropout = 0.5}) {}
  GatConv conv;
};

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
// Bytes of memory that the process holds now, and the most it ever held.
double resident() {
  long long pages = 0, ignored = 0;
  if (std::FILE* file = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(file, "%lld %lld", &ignored, &pages) != 2) pages = 0;
    std::fclose(file);
  }
  return static_cast<double>(pages) * static_cast<double>(sysconf(_SC_PAGESIZE));
}
double most_resident() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return 1024.0 * static_cast<double>(usage.ru_maxrss);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 1 && argc != 6) {
    std::fprintf(stderr, "usage: %s [NODES EDGES HEADS FEATURES IN]\n", argv[0]);
    return 2;
  }
  const auto argument = [&](int i, std::int64_t otherwise) {
    return argc == 1 ? otherwise : std::strtoll(argv[i], nullptr, 10);
  };
  const std::int64_t nodes = argument(1, 169343), edges = argument(2, 2500000),
                     heads = argument(3, 4), features = argument(4, 32), in = argument(5, 128);
  Generator rng{1};
  const Graph graph(nodes, rand_int({edges, 2}, nodes, rng));
  graph.reverse();
  const Tensor x = randn({nodes, in}, f32, rng), target = zeros({nodes, heads * features});
  Net net(in, features, heads);
  net.initialize(rng);
  Adam optimizer(net);
  memory::Counters before;
  double loss = 0, took = 0;
  memory::release_cached();
  const double resident_before = resident();
  for (int step = 0; step < 3; ++step) {
    if (step == 1) {  // the first one makes Adam's state
      memory::release_cached();
      before = memory::counters();
      memory::reset_peak();
    }
    const double start = seconds();
    Tape tape;
    const Tensor error = mse(net.conv.forward(graph, x, Mode::train(rng)), target);
    tape.backward(error);
    optimizer.step();
    optimizer.zero_grad();
    loss = error.item();
    took = seconds() - start;
  }
  const double peak = static_cast<double>(memory::counters().peak - before.live);
  const double node_sized = 4.0 * static_cast<double>(nodes * heads * features);
  std::printf(
      "{\"nodes\": %lld, \"edges\": %lld, \"heads\": %lld, \"features\": %lld, \"in\": %lld, "
      "\"threads\": %d,\n \"peak_bytes_over_input\": %.0f, \"node_sized_bytes\": %.0f, "
      "\"node_sized_tensors\": %.3f,\n \"input_bytes\": %.0f, \"resident_bytes_over_input\": %.0f, "
      "\"step_seconds\": %.3f, \"loss\": %.6f}\n",
      static_cast<long long>(nodes), static_cast<long long>(edges), static_cast<long long>(heads),
      static_cast<long long>(features), static_cast<long long>(in), num_threads(), peak, node_sized,
      peak / node_sized, static_cast<double>(before.live), most_resident() - resident_before, took,
      loss);
  return 0;
} catch (const Error& error) {
  std::fprintf(stderr, "gat_memory: %s\n", error.what());
  return 1;
}
