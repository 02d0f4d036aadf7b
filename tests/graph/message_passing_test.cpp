// Some of this is shared among threads, so ThreadSanitizer looks at it too.
#include <lipgrad/graph/message_passing.h>

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <lipgrad/core/error.h>
#include <lipgrad/core/gradcheck.h>
#include <lipgrad/core/memory.h>
#include <lipgrad/core/npz.h>
#include <lipgrad/core/random.h>
#include <lipgrad/core/tape.h>
#include <lipgrad/graph/segment.h>
#include <lipgrad/ops/activation.h>
#include <lipgrad/ops/elementwise.h>
#include <lipgrad/ops/index.h>
#include <lipgrad/ops/linear.h>
#include <lipgrad/ops/reduce.h>
#include <lipgrad/ops/shape.h>
#include <support/data.h>
#include <support/tensors.h>

namespace lipgrad {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

// Layers as a user would write them.

// GINEConv (Hu et al.: Strategies for pre-training graph neural networks, 2020): a graph
// isomorphism layer with features of edges (E, F).
Tensor gine(const Graph& graph, const Tensor& x, const Tensor& edge_features, const Tensor& weight,
            double eps) {
  const Tensor messages = relu(gather_sources(graph, x) + edge_features);
  const Tensor sums = segment_sum(messages, graph.pattern().offsets());
  return linear(sums + (1 + eps) * x, weight);
}

// Attention by dot products: query, key and value are (N, H, D).
Tensor dot_attention(const Graph& graph, const Tensor& query, const Tensor& key,
                     const Tensor& value) {
  const Tensor scores = edge_dot(graph, key, query) / std::sqrt(double(query.size(2)));
  return aggregate(graph, value, edge_softmax(graph, scores));
}

// GINE's messages, then a weighted mean of the neighbours by a softmax: the example of README.md.
// x: (N, F), edge_features: (E, F) in the graph's order of edges.
Tensor message_layer(const Graph& graph, const Tensor& x, const Tensor& edge_features) {
  Tensor messages = relu(gather_sources(graph, x) + edge_features);       // (E, F)
  Tensor h = 1.1 * x + segment_sum(messages, graph.pattern().offsets());  // (N, F)
  Tensor scores = edge_dot(graph, h, h) / std::sqrt(double(x.size(1)));   // (E)
  return aggregate(graph, h, edge_softmax(graph, scores));                // (N, F)
}

struct Golden {
  NpzFile file{test::golden("message_passing/pyg.npz")};
  Graph graph{14, to_tensor(file.read("edges"))};

  Tensor operator[](const std::string& name) const { return to_tensor(file.read(name)); }
  bool by_edges(const std::string& name) const {
    return name == "scores" || name == "values" || name == "attributes";
  }
  // Rows of edges are brought into the graph's order.
  Tensor sorted(const std::string& name, bool edges) const {
    return edges ? gather((*this)[name], graph.edge_order()) : (*this)[name];
  }

  void check(const std::string& name, const std::vector<std::string>& inputs,
             const std::function<Tensor(const std::vector<Tensor>&)>& f, bool edges = false) const {
    CAPTURE(name);
    Tape tape;
    std::vector<Tensor> x;
    for (const std::string& input : inputs) x.push_back(tape.watch(sorted(input, by_edges(input))));
    const Tensor y = f(x);
    CHECK(test::distance(y.detach(), sorted(name + ".y", edges)) < 1e-13);
    const std::vector<Tensor> g = tape.grad(y, x, sorted(name + ".r", edges));
    for (std::size_t i = 0; i < x.size(); ++i) {
      CAPTURE(inputs[i]);
      CHECK(test::distance(g[i], sorted(name + ".g." + inputs[i], by_edges(inputs[i]))) < 1e-13);
    }
  }
};

Graph random_graph(std::int64_t nodes, std::int64_t edges) {
  Generator rng{9};
  return Graph(nodes, rand_int({edges, 2}, nodes, rng));
}

}  // namespace

TEST_CASE("message passing: PyTorch Geometric's values and gradients") {
  const Golden golden;
  const Graph& graph = golden.graph;
  const Tensor& offsets = graph.pattern().offsets();
  using In = const std::vector<Tensor>&;
  golden.check(
      "softmax", {"scores"}, [&](In in) { return edge_softmax(graph, 5.0 * in[0]); }, true);
  golden.check("sum", {"values"}, [&](In in) { return segment_sum(in[0], offsets); });
  golden.check("mean", {"values"}, [&](In in) { return segment_mean(in[0], offsets); });
  golden.check("max", {"values"}, [&](In in) { return segment_max(in[0], offsets); });
  golden.check("logsumexp", {"values"}, [&](In in) { return segment_logsumexp(in[0], offsets); });
  golden.check("neighbor_max", {"value"}, [&](In in) { return neighbor_max(graph, in[0]); });
  golden.check("gine", {"x", "attributes", "weight"},
               [&](In in) { return gine(graph, in[0], in[1], in[2], 0.25); });
  golden.check("attention", {"query", "key", "value"},
               [&](In in) { return dot_attention(graph, in[0], in[1], in[2]); });
}

TEST_CASE("message passing: functions made of its parts have their gradients") {
  Generator rng{4};
  const Graph graph = random_graph(8, 20);
  const auto draw = [&](const Shape& shape) { return randn(shape, f64, rng); };
  const auto check = [](const GradcheckResult& r) { CHECK_MESSAGE(r.ok, r.report()); };
  check(gradcheck([&](Inputs in) { return dot_attention(graph, in[0], in[1], in[2]); },
                  {draw({8, 2, 3}), draw({8, 2, 3}), draw({8, 2, 3})}));
  check(gradcheck([&](Inputs in) { return gine(graph, in[0], in[1], in[2], 0.1); },
                  {draw({8, 4}), draw({20, 4}), draw({5, 4})}));
  check(gradcheck([&](Inputs in) { return message_layer(graph, in[0], in[1]); },
                  {draw({8, 4}), draw({20, 4})}));
}

TEST_CASE("message passing: parts agree with one another") {
  Generator rng{5};
  const Graph graph = random_graph(40, 300);
  const auto draw = [&](const Shape& shape) { return randn(shape, f64, rng); };
  const Tensor x = draw({40, 3, 4}), y = draw({40, 3, 4}), w = draw({300, 3});
  const Tensor &offsets = graph.pattern().offsets(), from = gather_sources(graph, x),
               to = gather_destinations(graph, y);
  CHECK(bitwise_equal(from, gather(x, graph.sources())));
  CHECK(bitwise_equal(to, gather(y, graph.destinations())));
  CHECK(bitwise_equal(edge_add(graph, x, y), from + to));
  CHECK(test::distance(edge_dot(graph, x, y), sum(from * to, {2})) < 1e-14);
  CHECK(test::distance(aggregate(graph, x, w), segment_sum(from * unsqueeze(w, 2), offsets)) <
        1e-14);
  CHECK(bitwise_equal(aggregate(graph, reshape(x, {40, 12}), w),
                      reshape(aggregate(graph, x, w), {40, 12})));
  CHECK(test::distance(aggregate(graph, x, {}, Reduce::mean), segment_mean(from, offsets)) < 1e-14);
  CHECK(test::distance(aggregate(graph, x, w, Reduce::mean),
                       segment_mean(from * unsqueeze(w, 2), offsets)) < 1e-14);
  CHECK(bitwise_equal(aggregate(graph, x, {}, Reduce::max), segment_max(from, offsets)));
  const Tensor column = slice(w, 1, 0, 1);
  CHECK(bitwise_equal(aggregate(graph, x, column), aggregate(graph, x, reshape(column, {300}))));
  CHECK(test::distance(aggregate(graph, x, column), aggregate(graph, x)) > 0.1);
  const Tensor alpha = edge_softmax(graph, w);
  CHECK(test::distance(alpha, exp(w - gather_destinations(graph, segment_logsumexp(w, offsets)))) <
        1e-14);
}

TEST_CASE("edge_softmax: large scores, -inf, NaN, a hub") {
  // Into 0: four edges; into 1: two; into 2: two.
  const Graph graph(
      3, from_values<std::int64_t>({8, 2}, {0, 0, 1, 0, 1, 0, 2, 0, 0, 1, 2, 1, 0, 2, 1, 2}));
  Tape tape;
  const Tensor x = tape.watch(
      from_values<double>({8, 1}, {1e4, 1e4, -infinity, 1e4, -infinity, -infinity, nan, 0}));
  const Tensor y = edge_softmax(graph, x);
  const std::vector<double> got = y.to_vector<double>();
  for (const int e : {0, 1, 3}) CHECK(got[e] == doctest::Approx(1.0 / 3));
  for (const int e : {2, 4, 5}) CHECK(got[e] == 0);
  for (const int e : {6, 7}) CHECK(std::isnan(got[e]));
  const std::vector<double> g =
      tape.grad(y, {x}, from_values<double>({8, 1}, {1, 0, 5, 0, 3, 4, 1, 1}))[0]
          .to_vector<double>();
  CHECK(g[0] == doctest::Approx(2.0 / 9));
  for (const int e : {1, 3}) CHECK(g[e] == doctest::Approx(-1.0 / 9));
  for (const int e : {2, 4, 5}) CHECK(g[e] == 0);

  // 200,000 edges into one node, in f32: as in f64.
  Generator rng{6};
  const std::int64_t edges = 200000;
  Tensor ends = zeros({edges + 2, 2}, i64);
  for (std::int64_t k = 0; k < edges; ++k) ends.mutable_data<std::int64_t>()[2 * k] = k % 2;
  for (std::int64_t k = edges; k < edges + 2; ++k) ends.mutable_data<std::int64_t>()[2 * k + 1] = 1;
  const Graph star(2, ends);
  const Tensor scores = randn({edges + 2, 3}, f64, rng), r = randn({edges + 2, 3}, f64, rng);
  const auto both = [&](DType dtype) {
    Tape inner;
    const Tensor s = inner.watch(scores.to(dtype)), a = edge_softmax(star, s);
    return std::pair{a.detach().to(f64), inner.grad(a, {s}, r.to(dtype))[0].to(f64)};
  };
  const auto [a32, g32] = both(f32);
  const auto [a64, g64] = both(f64);
  CHECK(test::distance(a32, a64) < 1e-6);
  CHECK(test::distance(g32, g64) < 1e-6);
  CHECK(sum(slice(a64, 0, 0, edges)).item() == doctest::Approx(3));
}

TEST_CASE("neighbor_max: the largest source; ties, NaN, nodes without edges") {
  // Into 0: 3, 1, 1, 2. Into 2: 2 (itself). Into 3: 0, 4. 1 and 4 have no edges into them.
  const Graph graph(5,
                    from_values<std::int64_t>({7, 2}, {3, 0, 1, 0, 1, 0, 2, 0, 2, 2, 0, 3, 4, 3}));
  Tape tape;
  const Tensor x = tape.watch(
      from_values<double>({5, 3}, {-1, 9, nan, 4, -2, 0, 4, -3, 1, 2, -2, 7, -1, 0, nan}));
  const Tensor y = neighbor_max(graph, x);
  const std::vector<double> got = y.to_vector<double>();
  CHECK(got[0] == 4);
  CHECK(got[1] == -2);
  CHECK(got[2] == 7);
  for (const int c : {3, 4, 5, 12, 13, 14}) CHECK(got[c] == 0);
  CHECK(got[6] == 4);
  CHECK(got[7] == -3);
  CHECK(got[8] == 1);
  CHECK(got[9] == -1);
  CHECK(got[10] == 9);
  CHECK(std::isnan(got[11]));
  // Ties: 1 before 2 and 3, once though the edge occurs twice; of two NaN that of node 0.
  Tensor cotangent = zeros({5, 3}, f64);
  for (std::int64_t i = 0; i < 15; ++i) cotangent.mutable_data<double>()[i] = double(i + 1);
  const std::vector<double> g = tape.grad(y, {x}, cotangent)[0].to_vector<double>();
  const std::vector<double> expected{10, 11, 12, 1, 2, 0, 7, 8, 9, 0, 0, 3, 0, 0, 0};
  CHECK(g == expected);
}

TEST_CASE("neighbor_max: any number of dimensions and edges") {
  Generator rng{3};
  const std::int64_t nodes = 700;
  Tensor ends = rand_int({20000, 2}, nodes, rng);
  for (std::int64_t k = 0; k < 9000; ++k) ends.mutable_data<std::int64_t>()[2 * k + 1] = 5;
  const Graph graph(nodes, ends);
  const Tensor x = randn({nodes, 3, 7}, f32, rng), y = neighbor_max(graph, x);
  REQUIRE(y.shape() == x.shape());
  std::vector<float> expected(nodes * 21, -1e9F);
  for (std::int64_t k = 0; k < 20000; ++k)
    for (std::int64_t c = 0; c < 21; ++c) {
      float& top = expected[ends.data<std::int64_t>()[2 * k + 1] * 21 + c];
      top = std::max(top, x.data<float>()[ends.data<std::int64_t>()[2 * k] * 21 + c]);
    }
  CHECK(y.to_vector<float>() == expected);
}

TEST_CASE("message passing: nothing of the size of edges times features") {
  Generator rng{8};
  const std::int64_t nodes = 500, edges = 20000, heads = 4, features = 32;
  const Graph graph = random_graph(nodes, edges);
  graph.reverse();
  const Tensor x0 = randn({nodes, heads, features}, f32, rng), w0 = randn({edges, heads}, f32, rng);
  const std::int64_t before = memory::counters().live;
  memory::reset_peak();
  {
    Tape tape;
    const Tensor x = tape.watch(x0), w = tape.watch(w0);
    const Tensor scores = edge_dot(graph, x, x);
    const Tensor y = aggregate(graph, x, edge_softmax(graph, scores + w));
    tape.grad(y, {x, w}, x0);
  }
  // E x H of scores, their sum, weights and their gradients; E x H x D would be 32 of them.
  const std::int64_t peak = memory::counters().peak - before;
  CHECK(peak < 12 * edges * heads * 4);
}

TEST_CASE("message passing: errors name the op and what was given") {
  Generator rng{1};
  const Graph graph = random_graph(4, 6);
  const auto draw = [&](const Shape& shape, DType dtype = f32) { return randn(shape, dtype, rng); };
  const auto fails = [](auto f, const char* message) { CHECK_THROWS_WITH_AS(f(), message, Error); };
  fails(
      [&] {
        neighbor_max(graph, draw({5, 2}));
      },
      "neighbor_max: a graph of 4 nodes needs (4, ...), got (5, 2)");
  fails([&] { gather_sources(graph, draw({6})); },
        "gather_sources: a graph of 4 nodes needs (4, ...), got (6)");
  fails([&] { gather_destinations(graph, Tensor()); },
        "gather_destinations: an input is undefined");
  fails(
      [&] {
        edge_softmax(graph, draw({4, 2}));
      },
      "edge_softmax: a graph of 6 edges needs (6, ...), got (4, 2)");
  fails(
      [&] {
        edge_add(graph, draw({4, 2}), draw({4, 3}));
      },
      "edge_add: sources and destinations differ in shape: (4, 2) and (4, 3)");
  fails([&] { edge_dot(graph, draw({4}), draw({4})); },
        "edge_dot: expects (N, D) or (N, H, D), got (4)");
  fails(
      [&] {
        aggregate(graph, draw({4, 3, 2}), draw({6, 2}));
      },
      "aggregate: weights (6, 2) need to be (E), or (E, H) for x (N, H, ...) or (N, H D), got x "
      "(4, 3, 2)");
  fails(
      [&] {
        aggregate(graph, draw({4, 3}), draw({6}), Reduce::max);
      },
      "aggregate: a maximum takes no weights, got (6)");
  CHECK_THROWS_WITH_AS(edge_dot(graph, draw({4, 3}), draw({4, 3}, f64)),
                       doctest::Contains("edge_dot"), Error);
}

}  // namespace lipgrad
