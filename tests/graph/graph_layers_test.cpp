#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <string>
#include <thread>

#include <lipgrad/core/blas.h>
#include <lipgrad/core/error.h>
#include <lipgrad/core/npz.h>
#include <lipgrad/core/random.h>
#include <lipgrad/core/tape.h>
#include <lipgrad/graph/gated_graph_conv.h>
#include <lipgrad/graph/gcn_conv.h>
#include <lipgrad/graph/identity_map.h>
#include <lipgrad/ops/linear.h>
#include <lipgrad/ops/shape.h>
#include <lipgrad/ops/spmm.h>

#include <support/data.h>
#include <support/tensors.h>

namespace lipgrad {
namespace {

using test::distance;

template <class Layer>
struct One : Module {
  template <class Options>
  explicit One(const Options& options) : layer(*this, "layer", options) {}
  Layer layer;
};

// PyTorch Geometric's values and gradients of a layer with the same names of parameters.
template <class Layer, class Options>
void check_golden(const std::string& name, Options options, bool sparse_too) {
  CAPTURE(name);
  const NpzFile file(test::golden("graph_layers/pyg.npz"));
  const auto tensor = [&](const std::string& of) { return to_tensor(file.read(of)); };
  const Graph graph(14, tensor("edges"));
  options.dtype = f64;
  One<Layer> net(options);
  for (auto& [path, parameter] : net.layer.named_parameters())
    parameter->set_value(tensor(name + "/" + path));
  for (const bool sparse : {false, true}) {
    if (sparse && !sparse_too) break;
    Tape tape;
    const Tensor x = tape.watch(tensor(name + "/x"));
    const Features features = sparse ? Features(CsrMatrix::from_dense(x.detach())) : Features(x);
    const Tensor out = net.layer.forward(graph, features, Mode::eval());
    CHECK(distance(out, tensor(name + "/out")) < 1e-12);
    std::vector<Tensor> wanted;
    std::vector<std::string> names;
    if (!sparse) wanted.push_back(x), names.push_back("x");
    for (auto& [path, parameter] : net.layer.named_parameters())
      wanted.push_back(parameter->value()), names.push_back(path);
    const auto grads = tape.grad(out, wanted, tensor(name + "/r"));
    for (std::size_t i = 0; i < grads.size(); ++i) {
      CAPTURE(names[i]);
      CHECK(distance(grads[i], tensor(name + "/grad." + names[i])) < 1e-10);
    }
  }
}

Graph random_graph(std::int64_t nodes, std::int64_t edges, bool symmetric, Generator& rng) {
  return Graph(nodes, rand_int({edges, 2}, nodes, rng), {.symmetrize = symmetric});
}

}  // namespace

TEST_CASE("GcnConv: PyTorch Geometric's values and gradients") {
  check_golden<GcnConv>("gcn_narrower", GcnConvOptions{.in = 6, .out = 4}, true);
  check_golden<GcnConv>("gcn_wider", GcnConvOptions{.in = 3, .out = 7}, true);
  check_golden<GcnConv>(
      "gcn_no_loops", GcnConvOptions{.in = 5, .out = 5, .self_loops = false, .bias = false}, true);
}

TEST_CASE("GatedGraphConv: PyTorch Geometric's values and gradients") {
  check_golden<GatedGraphConv>("ggnn_one", GatedGraphConvOptions{.in = 6, .out = 6}, true);
  check_golden<GatedGraphConv>("ggnn_padded", GatedGraphConvOptions{.in = 4, .out = 7, .steps = 3},
                               true);
  check_golden<GatedGraphConv>(
      "ggnn_no_bias", GatedGraphConvOptions{.in = 5, .out = 5, .steps = 2, .bias = false}, true);
}

TEST_CASE("GatedGraphConv: a shared weight, parameters and errors") {
  Generator rng{6};
  const Graph graph = random_graph(12, 30, false, rng);
  const Tensor x = randn({12, 5}, f64, rng);
  One<GatedGraphConv> shared(
      GatedGraphConvOptions{.in = 5, .out = 5, .steps = 2, .share_weight = true, .dtype = f64}),
      apart(GatedGraphConvOptions{.in = 5, .out = 5, .steps = 2, .dtype = f64});
  apart.initialize(rng);
  shared.initialize(rng);
  std::vector<std::string> names;
  for (auto& [path, parameter] : apart.layer.named_parameters()) {
    names.push_back(path);
    CHECK(parameter->shape()[0] == (path == "weight" ? 2 : 15));
  }
  CHECK(names == std::vector<std::string>{"weight", "rnn.weight_ih", "rnn.weight_hh", "rnn.bias_ih",
                                          "rnn.bias_hh"});
  // The same weight twice.
  for (auto& [path, parameter] : apart.layer.named_parameters())
    if (path != "weight")
      for (auto& [other, value] : shared.layer.named_parameters())
        if (other == path) parameter->set_value(value->value());
  apart.layer.weight.set_value(
      concat({shared.layer.weight.value(), shared.layer.weight.value()}, 0));
  CHECK(bitwise_equal(shared.layer.forward(graph, x, Mode::eval()),
                      apart.layer.forward(graph, x, Mode::eval())));

  CHECK_THROWS_WITH_AS(
      apart.layer.forward(graph, randn({12, 4}, f64, rng), Mode::eval()),
      "GatedGraphConv: features must be (12, 5) for this graph and layer, got (12, 4)", Error);
  CHECK_THROWS_AS(apart.layer.forward(graph, x, ones({30, 1}), Mode::eval()), Error);
  CHECK_THROWS_WITH_AS(One<GatedGraphConv>(GatedGraphConvOptions{.in = 6, .out = 5}),
                       "GatedGraphConv: in must be from 1 to out, got 6 and out = 5", Error);
  CHECK_THROWS_AS(One<GatedGraphConv>(GatedGraphConvOptions{.in = 5, .out = 5, .steps = 0}), Error);
}

TEST_CASE("a normalised adjacency: its values, its norm, one for all copies") {
  // 0 -> 1 twice, 1 -> 2, 2 -> 1: in-degrees 0, 3, 1.
  const Graph small(3, from_values<std::int64_t>({4, 2}, {0, 1, 0, 1, 1, 2, 2, 1}));
  const Tensor dense = small.normalized_adjacency(f64).to_dense();
  const double half = 1 / std::sqrt(3.0);
  CHECK(distance(dense, from_values<double>({3, 3}, {0, 0, 0, 0, 0, half, 0, half, 0})) < 1e-15);

  Generator rng{4};
  const Graph graph = random_graph(60, 150, true, rng), copy = graph;
  for (const Graph& g : {graph, graph.with_self_loops()}) {
    const Tensor p = g.normalized_adjacency(f64).to_dense();
    const double norm = largest_singular_value(60, 60, p.data<double>());
    CHECK(norm <= 1 + 1e-12);
    CHECK(norm > 0.99);
  }
  for (const DType dtype : {f32, f64}) {
    const CsrMatrix one = graph.normalized_adjacency(dtype), two = copy.normalized_adjacency(dtype);
    CHECK(one.dtype() == dtype);
    CHECK(one.pattern() == graph.pattern());
    const auto address = [&](const CsrMatrix& m) -> const void* {
      return dtype == f32 ? static_cast<const void*>(m.values().data<float>())
                          : static_cast<const void*>(m.values().data<double>());
    };
    CHECK(address(one) == address(two));
  }
  CHECK_THROWS_WITH_AS(graph.normalized_adjacency(i32),
                       "graph: a normalised adjacency is f32 or f64, not i32", Error);
  CHECK(Graph().normalized_adjacency(f32).nnz() == 0);

  // Threads may ask at the same time.
  const Graph fresh = random_graph(500, 3000, false, rng);
  std::vector<Tensor> values(4);
  std::vector<std::thread> threads;
  for (Tensor& value : values)
    threads.emplace_back([&] { value = fresh.normalized_adjacency(f32).values(); });
  for (std::thread& thread : threads) thread.join();
  for (const Tensor& value : values) CHECK(value.data<float>() == values[0].data<float>());
}

TEST_CASE("GcnConv: an identity map, its Lipschitz constant, parameters and errors") {
  Generator rng{5};
  One<GcnConv> net(
      GcnConvOptions{.in = 5, .out = 5, .identity_map = 0.25, .bias = false, .dtype = f64});
  net.initialize(rng);
  const Graph graph = random_graph(12, 30, true, rng);
  const Tensor x = randn({12, 5}, f64, rng);
  // P (0.75 x + 0.25 x W^T)
  Tensor mixed = linear(x, net.layer.lin.weight).clone();
  for (std::int64_t i = 0; i < x.numel(); ++i)
    mixed.mutable_data<double>()[i] = 0.75 * x.data<double>()[i] + 0.25 * mixed.data<double>()[i];
  CHECK(distance(net.layer.forward(graph, x, Mode::eval()),
                 spmm(graph.with_self_loops().normalized_adjacency(f64), mixed)) < 1e-14);

  One<GcnConv> plain(GcnConvOptions{.in = 5, .out = 4, .dtype = f64});
  plain.initialize(rng);
  const Tensor jacobian = test::jacobian(
      x, [&](const Tensor& at) { return plain.layer.forward(graph, at, Mode::eval()); });
  CHECK(largest_singular_value(12 * 4, 12 * 5, jacobian.data<double>()) <=
        largest_singular_value(4, 5, plain.layer.lin.weight.value().data<double>()) + 1e-12);

  std::vector<std::string> names;
  for (auto& [path, parameter] : plain.named_parameters()) names.push_back(path);
  CHECK(names == std::vector<std::string>{"layer.lin.weight", "layer.bias"});
  for (const double b : plain.layer.bias->value().to_vector<double>()) CHECK(b == 0);
  CHECK_THROWS_WITH_AS(plain.layer.forward(graph, randn({12, 6}, f64, rng), Mode::eval()),
                       "GcnConv: features must be (12, 5) for this graph and layer, got (12, 6)",
                       Error);
  CHECK_THROWS_WITH_AS(
      plain.layer.forward(graph, x, ones({graph.num_edges(), 2}), Mode::eval()),
      ("GcnConv: takes no features of edges, got (" + std::to_string(graph.num_edges()) + ", 2)")
          .c_str(),
      Error);
  CHECK_THROWS_WITH_AS(One<GcnConv>(GcnConvOptions{.in = 0, .out = 4}),
                       "GcnConv: in and out must be at least 1, got 0 and 4", Error);
  CHECK_THROWS_WITH_AS(One<GcnConv>(GcnConvOptions{.in = 3, .out = 4, .identity_map = 0.5}),
                       "GcnConv: an identity map needs as many features in as out, got 3 and 4",
                       Error);
  CHECK_THROWS_AS(One<GcnConv>(GcnConvOptions{.in = 4, .out = 4, .identity_map = 0}), Error);
  CHECK_THROWS_WITH_AS(identity_map(ones({2, 3}), 0.5),
                       "identity_map: expects a square matrix, got (2, 3)", Error);
  CHECK_THROWS_WITH_AS(identity_map(ones({3, 3}), 1.5),
                       "identity_map: beta must be above 0 and at most 1, got 1.5", Error);
}

}  // namespace lipgrad
