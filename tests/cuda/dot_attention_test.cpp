#include <lipgrad/graph/dot_attention.h>

#include <lipgrad/core/tape.h>
#include <lipgrad/ops/elementwise.h>
#include <lipgrad/ops/reduce.h>

#include "cuda/kernel_test.h"

namespace lipgrad {
namespace {

using test::difference;

// Isolated nodes, duplicate edges, self-loops; hub > 0: a target and a source of that many edges.
Graph random_graph(std::int64_t nodes, std::int64_t edges, std::int64_t hub) {
  Generator rng{3};
  const Tensor drawn = rand_int({edges + hub, 2}, nodes, rng);
  const std::int64_t* at = drawn.data<std::int64_t>();
  std::vector<std::int64_t> ends;
  for (std::int64_t k = 0; k < edges + hub; ++k, at += 2) {
    if (k >= edges) {
      ends.insert(ends.end(), {at[0], nodes / 2, 1, at[1]});
      continue;
    }
    if (at[0] % 11 == 5 || at[1] % 7 == 3) continue;
    ends.insert(ends.end(), {at[0], at[1]});
    if (k % 6 == 0) ends.insert(ends.end(), {at[0], at[1], at[1], at[1]});
  }
  const auto count = static_cast<std::int64_t>(ends.size() / 2);
  return Graph(nodes, from_vector({count, 2}, ends));
}

struct Case {
  std::int64_t heads, features, edge_features = 0;
  bool self_loops = false, mean_heads = false, dropout = false, scaled = true;
};

// Outputs and gradients of all inputs.
std::vector<Tensor> run(const Graph& graph, const Case& c, DType dtype, Device device) {
  Generator rng{8};
  const std::int64_t nodes = graph.num_nodes(), edges = graph.num_edges();
  const Graph here = graph.to(device);
  Tape tape;
  const auto input = [&](const Shape& shape) {
    return tape.watch(randn(shape, f64, rng).to(dtype).to(device));
  };
  std::vector<Tensor> in;
  for (int i = 0; i < 3; ++i) in.push_back(input({nodes, c.heads, c.features}));
  if (c.scaled) in.push_back(input({nodes, c.heads}));
  const Tensor scale = c.scaled ? in[3] : Tensor();
  const DotAttentionOptions options{.factor = 0.5,
                                    .self_loops = c.self_loops,
                                    .dropout = c.dropout ? 0.4 : 0,
                                    .mean_heads = c.mean_heads};
  Generator draws{21};
  const Mode mode = Mode::train(draws);
  std::vector<Tensor> out;
  if (c.edge_features == 0) {
    out.push_back(dot_attention(here, in[0], in[1], in[2], scale, options, mode));
  } else {
    in.push_back(input({nodes, c.heads, c.edge_features}));
    in.push_back(input({edges, c.edge_features}));
    const std::size_t n = in.size();
    const EdgeAttention y =
        dot_attention(here, in[0], in[1], in[2], scale, in[n - 2], in[n - 1], options, mode);
    out = {y.out, y.edge_sum};
  }
  Tensor loss;
  for (const Tensor& y : out) {
    const Tensor part = sum(mul(y, randn(y.shape(), f64, rng).to(dtype).to(device)));
    loss = loss.defined() ? add(loss, part) : part;
  }
  std::vector<Tensor> result = tape.grad(loss, in);
  result.insert(result.begin(), out.begin(), out.end());
  return result;
}

template <class T>
void check(const Graph& graph, const Case& c) {
  CAPTURE(c.heads);
  CAPTURE(c.features);
  CAPTURE(c.edge_features);
  CAPTURE(c.self_loops);
  CAPTURE(c.mean_heads);
  CAPTURE(c.dropout);
  CAPTURE(sizeof(T));
  const DType dtype = sizeof(T) == 4 ? f32 : f64;
  const auto expected = run(graph, c, dtype, cpu_device), got = run(graph, c, dtype, cuda_device());
  const std::size_t outputs = c.edge_features > 0 ? 2 : 1;
  for (std::size_t k = 0; k < got.size(); ++k) {
    CAPTURE(k);
    std::vector<T> a = got[k].to_vector<T>(), b = expected[k].to_vector<T>();
    // With a small number behind them: what is zero but for rounding may differ.
    a.push_back(T(1e-3));
    b.push_back(T(1e-3));
    // Gradients through scores cancel: they are differences of numbers of order one.
    CHECK(difference(a, b) <= (sizeof(T) == 8 ? 1e-10 : k < outputs ? 1e-5 : 5e-5));
  }
}

template <class F>
void each_variant(const std::vector<std::pair<int, int>>& shapes, F&& f) {
  for (const auto& [heads, features] : shapes) {
    for (int variant = 0; variant < 4; ++variant) {
      Case c{heads, features};
      c.edge_features = variant == 1 ? 5 : variant == 3 ? 37 : 0;
      c.self_loops = variant % 2 == 0;
      c.mean_heads = variant >= 2;
      c.dropout = variant == 1 || variant == 2;
      c.scaled = variant > 0;
      f(c, (variant + heads) % 2 == 0);
    }
  }
}

}  // namespace

TEST_CASE("dot_attention: all passes, against the CPU") {
  if (!test::with_cuda()) return;
  const Graph graph = random_graph(25, 90, 0);
  each_variant(
      {{1, 1}, {1, 7}, {8, 8}, {4, 32}, {3, 50}, {2, 300}, {40, 3}, {1, 520}, {9, 4}},
      [&](const Case& c, bool wide) { wide ? check<double>(graph, c) : check<float>(graph, c); });
}

TEST_CASE("dot_attention: hubs") {
  if (!test::with_cuda()) return;
  const Graph graph = random_graph(60, 300, 1500);
  each_variant({{1, 7}, {8, 8}, {3, 50}, {1, 300}}, [&](const Case& c, bool wide) {
    wide ? check<double>(graph, c) : check<float>(graph, c);
  });
}

TEST_CASE("dot_attention: rows as long as a piece, hubs that end where pieces do") {
  if (!test::with_cuda()) return;
  std::vector<std::int64_t> ends;
  const int counts[] = {256, 257, 0, 255, 512, 300, 0, 300, 1};
  for (std::int64_t i = 0; i < 9; ++i)
    for (int k = 0; k < counts[i]; ++k) ends.insert(ends.end(), {(k * 7 + i) % 11, i});
  const auto count = static_cast<std::int64_t>(ends.size() / 2);
  const Graph graph(11, from_vector({count, 2}, ends));
  for (const bool loops : {false, true}) check<double>(graph, {2, 12, 3, loops, false, loops});
}

TEST_CASE("dot_attention: the same bits again") {
  if (!test::with_cuda()) return;
  const Graph graph = random_graph(60, 300, 700);
  const Case c{4, 12, 3, true, false, true};
  const auto one = run(graph, c, f32, cuda_device()), two = run(graph, c, f32, cuda_device());
  for (std::size_t k = 0; k < one.size(); ++k) CHECK(bitwise_equal(one[k], two[k]));
}

TEST_CASE("dot_attention: graphs without edges, without nodes") {
  if (!test::with_cuda()) return;
  for (const std::int64_t nodes : {0, 5})
    for (const bool loops : {false, true})
      for (const std::int64_t edge_features : {0, 2})
        check<float>(Graph(nodes, empty({0, 2}, i64)), {3, 6, edge_features, loops, loops});
}

}  // namespace lipgrad
