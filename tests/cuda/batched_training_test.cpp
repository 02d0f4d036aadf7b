// Training on pieces of a graph whose data are on a CUDA device.
#include <lipgrad/models/batched_training.h>

#include <vector>

#include <doctest/doctest.h>

#include <lipgrad/graph/gat_conv.h>
#include <lipgrad/graph/generated_graph.h>
#include <lipgrad/graph/neighbor_sampler.h>
#include <lipgrad/graph/subgraph.h>
#include <lipgrad/models/layerwise_inference.h>
#include <lipgrad/ops/activation.h>
#include <lipgrad/ops/optimizers.h>

#include "cuda/kernel_test.h"

namespace lipgrad {
namespace {

const NodeData& data() {
  static const NodeData generated = generated_citation_graph({.num_nodes = 120,
                                                              .num_edges = 260,
                                                              .num_features = 40,
                                                              .num_classes = 4,
                                                              .words = 8,
                                                              .train_per_class = 8,
                                                              .num_val = 30,
                                                              .num_test = 40});
  return generated;
}

struct Net : Module {
  GatConv a{*this, "a", {.in = 40, .out = 4, .heads = 3, .attention_dropout = 0.3}};
  GatConv b{*this, "b", {.in = 12, .out = 4}};
  Tensor forward(const Graph& graph, const Features& x, Mode mode) const {
    return b.forward(graph, elu(a.forward(graph, x, mode)), mode);
  }
};

NodeBatches batches(int way, const NodeData& here) {
  Generator rng{9};
  if (way == 0) return random_parts(here, 3);
  if (way == 1) return fixed_parts(here, random_partition(120, 6, rng), 2);
  return sampled_neighborhoods(here, {3, 2}, 10);
}

struct Trained {
  std::vector<float> weights;
  double loss;
};

Trained train_on(Device device, int way) {
  const NodeData here = data().to(device);
  Net net;
  Generator rng{4};
  net.initialize(rng);
  net.to(device);
  Adam optimizer(net, {.lr = 0.01});
  const TrainResult result =
      train(node_classification(net, here, batches(way, here)), optimizer, nullptr, rng,
            {.epochs = 4, .select = Selection::last, .progress = false});
  std::vector<float> weights;
  for (const Parameter* parameter : net.parameters()) {
    const std::vector<float> values = parameter->value().to_vector<float>();
    weights.insert(weights.end(), values.begin(), values.end());
  }
  return {weights, result.at_best("valid_loss")};
}

TEST_CASE(
    "cuda: training on parts and samples does what it does on the CPU, in the same bits twice") {
  if (!test::with_cuda()) return;
  for (const int way : {0, 1, 2}) {
    CAPTURE(way);
    const Trained host = train_on(cpu_device, way), once = train_on(cuda_device(0), way),
                  twice = train_on(cuda_device(0), way);
    CHECK(once.weights == twice.weights);
    CHECK(once.loss == doctest::Approx(host.loss).epsilon(1e-3));
    REQUIRE(once.weights.size() == host.weights.size());
    double worst = 0;
    for (std::size_t i = 0; i < host.weights.size(); ++i)
      worst = std::max(worst, std::abs(double{once.weights[i]} - host.weights[i]));
    CHECK(worst < 1e-3);  // Adam turns rounding of gradients near 0 into steps of up to its rate
  }
}

TEST_CASE("cuda: subgraphs and layers by blocks are on the device") {
  if (!test::with_cuda()) return;
  const Device device = cuda_device(0);
  const NodeData here = data().to(device);
  const Tensor nodes = from_vector<std::int64_t>({4}, {50, 3, 99, 7});
  const NodeData part = induced_data(here, nodes.to(device)), host = induced_data(data(), nodes);
  CHECK(part.graph.device() == device);
  CHECK(part.features.device() == device);
  CHECK(bitwise_equal(part.graph.sources().to(cpu_device), host.graph.sources()));
  CHECK(bitwise_equal(part.features.to(cpu_device).to_dense(), host.features.to_dense()));
  CHECK(bitwise_equal(part.labels.to(cpu_device), host.labels));
  Net net;
  Generator rng{4};
  net.initialize(rng);
  net.to(device);
  const GraphLayer layer = [&](const Graph& graph, const Features& h, const Tensor&,
                               const Tensor&) { return net.a.forward(graph, h, Mode::eval()); };
  const std::vector<float>
      whole = layer_by_blocks(layer, here.graph, here.features, {}, {}, 120).to_vector<float>(),
      blocks = layer_by_blocks(layer, here.graph, here.features, {}, {}, 50).to_vector<float>();
  for (std::size_t i = 0; i < whole.size(); ++i)
    CHECK(blocks[i] == doctest::Approx(whole[i]).epsilon(1e-5));
}

}  // namespace
}  // namespace lipgrad
