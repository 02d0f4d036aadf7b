// Peak memory of training steps of a deep graph attention network on graphs of the size of
// ogbn-arxiv or ogbn-proteins, as a JSON object:
//
//   graph_memory [NAME=VALUE...]
//
// with nodes, edges (of the list; each is followed in both directions), layers, heads, features (of
// a head), in, classes, dropout (of features and attention), checkpoint (1: layers are computed
// again in backward), parts (random ones; above 1 a step sees one of them), inference (1: a forward
// pass in evaluation mode instead of steps), lipschitz (1: LipschitzNorm). The defaults are
// ogbn-arxiv, full batch. The graph is made up, its degrees fall as a power law.

#include <sys/resource.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include <lipgrad/core/error.h>
#include <lipgrad/core/memory.h>
#include <lipgrad/core/tape.h>
#include <lipgrad/core/threads.h>
#include <lipgrad/graph/node_batches.h>
#include <lipgrad/models/gnn.h>
#include <lipgrad/ops/loss.h>
#include <lipgrad/ops/optimizers.h>

using namespace lipgrad;

namespace {

// One end of each edge is any node, the other that of rank r with a probability that falls as
// r^(-1/2); the ranks are dealt out at random.
NodeData power_law_data(std::int64_t nodes, std::int64_t edges, std::int64_t in,
                        std::int64_t classes, Generator& rng) {
  NodeData data;
  data.name = "generated";
  {
    std::vector<std::int32_t> source(static_cast<std::size_t>(edges)), destination(source.size());
    const Tensor rank = rand_permutation(nodes, rng);
    const std::uint64_t seed = rng.seed(), draw = rng.take_draw();
    parallel_for(edges, 1 << 16, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t k = begin; k < end; ++k) {
        const PhiloxBlock block = philox(seed, draw, static_cast<std::uint64_t>(k));
        const double u = unit_float(block.word[0]), v = unit_float(block.word[1]);
        source[k] = static_cast<std::int32_t>(u * static_cast<double>(nodes));
        destination[k] =
            static_cast<std::int32_t>(rank.data<std::int64_t>()[static_cast<std::int64_t>(
                v * v * static_cast<double>(nodes))]);
      }
    });
    data.graph = Graph(nodes, source, destination, {.symmetrize = true});
  }
  data.features = Features(randn({nodes, in}, f32, rng));
  data.labels = rand_int({nodes}, classes, rng);
  data.num_classes = classes;
  data.train = arange(nodes / 2);
  data.val = data.test = empty({0}, i64);
  return data;
}

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
double most_resident() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return 1024.0 * static_cast<double>(usage.ru_maxrss);
}

}  // namespace

int main(int argc, char** argv) try {
  std::map<std::string, double> of{
      {"nodes", 169343}, {"edges", 1166243}, {"layers", 30},   {"heads", 4},      {"features", 32},
      {"in", 128},       {"classes", 40},    {"dropout", 0.5}, {"checkpoint", 0}, {"parts", 1},
      {"inference", 0},  {"lipschitz", 1},   {"residuals", 0}, {"steps", 1}};
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const std::size_t equals = argument.find('=');
    const auto found = of.find(argument.substr(0, equals));
    if (equals == std::string::npos || found == of.end())
      throw Error("unknown setting '" + argument +
                  "'; the first lines of graph_memory.cpp list them");
    found->second = std::strtod(argument.c_str() + equals + 1, nullptr);
  }
  const auto whole = [&](const char* name) { return static_cast<std::int64_t>(of[name]); };
  Generator rng{1};
  const double started = seconds();
  const NodeData data =
      power_law_data(whole("nodes"), whole("edges"), whole("in"), whole("classes"), rng);
  const double built = seconds() - started;
  GnnOptions options{.in = whole("in"),
                     .out = whole("classes"),
                     .layers = whole("layers"),
                     .heads = whole("heads"),
                     .hidden = whole("features"),
                     .linear_ends = true,
                     .dropout = of["dropout"],
                     .attention_dropout = of["dropout"]};
  if (of["lipschitz"] != 0) options.attention_norm = LipschitzNorm{};
  if (of["residuals"] != 0) {
    options.norm.kind = FeatureNormKind::center_norm;
    options.residual = Residual::damped;
    options.initial_residual = 0.1;
    options.identity_map = 0.5;
  }
  options.checkpoint_layers = of["checkpoint"] != 0;
  Gnn model(options);
  model.initialize(rng);
  Adam optimizer(model);
  NodeBatches batches = random_parts(data, whole("parts"));
  batches.begin_epoch(rng);
  const std::int64_t held = memory::counters().live;
  memory::reset_peak();
  double loss = 0, took = 0, saved = 0;
  std::int64_t nodes = 0, edges = 0;
  for (std::int64_t step = 0; step < whole("steps"); ++step) {
    const double start = seconds();
    const NodeData batch = whole("parts") == 1 ? data : batches.batch(step, rng);
    nodes = batch.graph.num_nodes();
    edges = batch.graph.num_edges();
    if (of["inference"] != 0) {
      loss = cross_entropy(model.forward(batch.graph, batch.features, Mode::eval()), batch.labels)
                 .item();
    } else {
      Tape tape;
      const Tensor error =
          cross_entropy(model.forward(batch.graph, batch.features, Mode::train(rng)), batch.labels,
                        {.rows = batch.train});
      saved = static_cast<double>(tape.bytes_saved());
      tape.backward(error);
      optimizer.step();
      optimizer.zero_grad();
      loss = error.item();
    }
    took = seconds() - start;
  }
  std::printf("{");
  for (const auto& [name, value] : of) std::printf("\"%s\": %g, ", name.c_str(), value);
  std::printf(
      "\n \"threads\": %d, \"batch_nodes\": %lld, \"batch_edges\": %lld, \"node_tensor_bytes\": "
      "%.0f,\n \"held_bytes\": %lld, \"saved_bytes\": %.0f, \"peak_bytes\": %lld, "
      "\"resident_peak_bytes\": %.0f,\n \"build_seconds\": %.1f, \"step_seconds\": %.2f, \"loss\": "
      "%.6f}\n",
      num_threads(), static_cast<long long>(nodes), static_cast<long long>(edges),
      4.0 * static_cast<double>(nodes) * of["heads"] * of["features"], static_cast<long long>(held),
      saved, static_cast<long long>(memory::counters().peak), most_resident(), built, took, loss);
  return 0;
} catch (const Error& error) {
  std::fprintf(stderr, "graph_memory: %s\n", error.what());
  return 1;
}
