// Some of this is shared among threads, so ThreadSanitizer looks at it too.
#include <lipgrad/models/layerwise_inference.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include <lipgrad/core/error.h>
#include <lipgrad/core/memory.h>
#include <lipgrad/core/tape.h>
#include <lipgrad/graph/gat_conv.h>
#include <lipgrad/graph/subgraph.h>
#include <lipgrad/ops/activation.h>
#include <lipgrad/ops/elementwise.h>
#include <lipgrad/ops/index.h>
#include <lipgrad/ops/shape.h>
#include <support/tensors.h>

namespace lipgrad {
namespace {

// Every node has edges from the `reach` nodes before and after it.
Graph band(std::int64_t nodes, std::int64_t reach) {
  std::vector<std::int32_t> source, destination;
  for (std::int64_t i = 0; i < nodes; ++i)
    for (std::int64_t j = std::max<std::int64_t>(i - reach, 0); j < std::min(i + reach + 1, nodes);
         ++j)
      if (i != j) {
        source.push_back(static_cast<std::int32_t>(j));
        destination.push_back(static_cast<std::int32_t>(i));
      }
  return Graph(nodes, source, destination);
}

constexpr std::int64_t kHeads = 4, kFeatures = 8, kWidth = kHeads * kFeatures;

// A residual attention network of equal layers.
struct Net : Module {
  explicit Net(DType dtype = f32) {
    for (int i = 0; i < 6; ++i)
      conv.emplace_back(
          GatConvOptions{.in = kWidth, .out = kFeatures, .heads = kHeads, .dtype = dtype});
  }
  ModuleList<GatConv> conv{*this, "conv"};

  GraphLayer layer(std::size_t i, bool initial) const {
    return [this, i, initial](const Graph& graph, const Features& h, const Tensor& first,
                              const Tensor&) {
      Tensor f = elu(conv[i].forward(graph, h, Mode::eval()));
      if (initial) f = add(f, first);
      return add(h.dense(), f);
    };
  }
  Tensor forward(const Graph& graph, const Tensor& x, bool initial, std::int64_t block) const {
    Tensor h = x;
    for (std::size_t i = 0; i < conv.size(); ++i)
      h = layer_by_blocks(layer(i, initial), graph, h, initial ? x : Tensor(), {}, block);
    return h;
  }
};

TEST_CASE("a neighbourhood has the nodes, their sources and the edges into the nodes") {
  Generator rng{3};
  const Graph graph(60, rand_int({400, 2}, 60, rng));
  const Tensor wanted = from_vector<std::int64_t>({3}, {40, 7, 41});
  const Neighborhood around = neighborhood(graph, wanted);
  CHECK(bitwise_equal(gather(around.nodes, around.rows), wanted));
  const Tensor in = graph.in_degrees(), here = around.graph.in_degrees();
  std::int64_t edges = 0;
  for (std::int64_t k = 0; k < 3; ++k) {
    const std::int64_t node = wanted.data<std::int64_t>()[k],
                       row = around.rows.data<std::int64_t>()[k];
    CHECK(here.data<std::int64_t>()[row] == in.data<std::int64_t>()[node]);
    edges += in.data<std::int64_t>()[node];
  }
  CHECK(around.graph.num_edges() == edges);
  const Tensor order = around.graph.edge_order(), from = around.graph.sources(),
               to = around.graph.destinations(), graph_to = graph.destinations();
  for (std::int64_t k = 0; k < edges; ++k) {
    const std::int64_t original = order.data<std::int64_t>()[k];
    CHECK(around.nodes.data<std::int64_t>()[from.data<std::int32_t>()[k]] ==
          graph.sources().data<std::int32_t>()[original]);
    CHECK(around.nodes.data<std::int64_t>()[to.data<std::int32_t>()[k]] ==
          graph_to.data<std::int32_t>()[original]);
  }
  CHECK(neighborhood(graph, empty({0}, i64)).graph.num_nodes() == 0);
  CHECK_THROWS_AS(neighborhood(graph, from_vector<std::int64_t>({1}, {60})), Error);
}

TEST_CASE("blocks of any size compute what the whole graph does") {
  Generator rng{5};
  const std::int64_t nodes = 300;
  const Graph graph(nodes, rand_int({2000, 2}, nodes, rng));
  Net net(f64);
  net.initialize(rng);
  const Tensor x = randn({nodes, kWidth}, f64, rng);
  for (const bool initial : {false, true}) {
    Tensor expected = x;
    for (std::size_t i = 0; i < net.conv.size(); ++i)
      expected = net.layer(i, initial)(graph, expected, x, {});
    for (const std::int64_t block : {1000, 300, 128, 7})
      CHECK(test::distance(net.forward(graph, x, initial, block), expected) < 1e-12);
  }
}

TEST_CASE("layer by layer, features of two layers are in memory, and h0 where it is used") {
  const std::int64_t nodes = 40000;
  const Graph graph = band(nodes, 3);
  Generator rng{5};
  Net net;
  net.initialize(rng);
  const Tensor x = randn({nodes, kWidth}, f32, rng);
  const double size = static_cast<double>(x.nbytes());
  const auto peak = [&](bool initial, std::int64_t block) {
    memory::release_cached();
    const std::int64_t before = memory::counters().live;
    memory::reset_peak();
    net.forward(graph, x, initial, block);
    return static_cast<double>(memory::counters().peak - before) / size;
  };
  // x is there before; h0 is x here.
  CHECK(peak(false, 1000) < 2.3);
  CHECK(peak(true, 1000) < 2.3);
  CHECK(peak(true, nodes) > 2.9);  // the projection too, and parts of the sum
}

TEST_CASE("sparse features and features of edges reach the layer, and nothing is recorded") {
  const Graph graph = band(50, 2);
  Generator rng{8};
  const Tensor weight = randn({graph.num_edges(), 2}, f32, rng);
  const Tensor x = randn({50, 4}, f32, rng);
  const Features sparse(CsrMatrix::from_dense(x));
  // The sum of the sources' rows, each times a feature of the edge.
  const GraphLayer sum = [](const Graph& g, const Features& h, const Tensor& first,
                            const Tensor& edges) {
    CHECK(!first.defined());
    const Tensor to = g.destinations();
    const Tensor rows = gather(h.to_dense(), g.sources());
    return scatter_add(mul(rows, slice(edges, 1, 0, 1)), to, g.num_nodes());
  };
  Tape tape;
  const Tensor whole = layer_by_blocks(sum, graph, sparse, {}, weight, 50),
               blocks = layer_by_blocks(sum, graph, sparse, {}, weight, 13);
  CHECK(bitwise_equal(whole, blocks));
  CHECK(!Tape::is_recorded(blocks));
  CHECK_THROWS_AS(layer_by_blocks(sum, graph, sparse, {}, weight, 0), Error);
  CHECK_THROWS_AS(layer_by_blocks(sum, graph, sparse, {}, ones({3, 2}), 10), Error);
  CHECK_THROWS_AS(layer_by_blocks(sum, graph, ones({49, 4}), {}, weight, 10), Error);
}

}  // namespace
}  // namespace lipgrad
