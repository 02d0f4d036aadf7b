// Peak memory of training steps of a deep graph attention network on made-up data of the size of
// ogbn-arxiv or ogbn-proteins, as a JSON object:
//
//   graph_memory [NAME=VALUE...]
//
// with proteins (1: of ogbn-proteins; features of edges are there and passed over), scale (of nodes
// and edges), layers, heads, features (of a head), dropout (of features and attention), checkpoint
// (1: layers are computed again in backward), parts (random ones; above 1 a step sees one of them),
// inference (1: a forward pass in evaluation mode instead of steps), lipschitz (1: LipschitzNorm),
// residuals (1: CenterNorm, damped and initial residuals, identity maps), steps. The defaults are
// ogbn-arxiv, full batch.

#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include <lipgrad/core/error.h>
#include <lipgrad/core/memory.h>
#include <lipgrad/core/tape.h>
#include <lipgrad/core/threads.h>
#include <lipgrad/graph/generated_ogb.h>
#include <lipgrad/graph/node_batches.h>
#include <lipgrad/models/gnn.h>
#include <lipgrad/models/node_classification.h>
#include <lipgrad/ops/optimizers.h>

using namespace lipgrad;

namespace {

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
  std::map<std::string, double> of{{"proteins", 0},   {"scale", 1},     {"layers", 30},
                                   {"heads", 4},      {"features", 32}, {"dropout", 0.5},
                                   {"checkpoint", 0}, {"parts", 1},     {"inference", 0},
                                   {"lipschitz", 1},  {"residuals", 0}, {"steps", 1}};
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
  const auto scaled = [&](double count) { return static_cast<std::int64_t>(of["scale"] * count); };
  const NodeData data =
      of["proteins"] != 0
          ? generated_proteins({.num_nodes = scaled(132534), .num_edges = scaled(39561252)})
          : generated_arxiv({.num_nodes = scaled(169343), .num_edges = scaled(1166243)});
  const double built = seconds() - started;
  GnnOptions options{.in = data.features.cols(),
                     .out = data.num_classes,
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
      loss = node_classification_loss(node_logits(model, batch, Mode::eval()), batch, batch.train)
                 .item();
    } else {
      Tape tape;
      const Tensor error =
          node_classification_loss(node_logits(model, batch, Mode::train(rng)), batch, batch.train);
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
