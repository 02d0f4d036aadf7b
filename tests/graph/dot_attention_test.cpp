#include <lipgrad/graph/dot_attention.h>

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include <lipgrad/core/error.h>
#include <lipgrad/core/memory.h>
#include <lipgrad/core/philox.h>
#include <lipgrad/core/tape.h>
#include <lipgrad/core/threads.h>
#include <lipgrad/ops/elementwise.h>
#include <lipgrad/ops/reduce.h>
#include <lipgrad/ops/shape.h>

namespace lipgrad {
namespace {

struct Input {
  Tensor q, k, v, scale, qe = {}, e = {};
};

// Isolated nodes, repeated edges, self-loops; hubs: node 0 has edges from, node 1 edges to a third.
Graph random_graph(std::int64_t nodes, std::int64_t edges, bool hubs, Generator& rng) {
  const Tensor drawn = rand_int({edges, 2}, nodes, rng);
  const std::int64_t* at = drawn.data<std::int64_t>();
  std::vector<std::int64_t> ends;
  for (std::int64_t k = 0; k < edges; ++k, at += 2) {
    if (at[0] % 11 == 5 || at[1] % 7 == 3) continue;
    ends.insert(ends.end(), {at[0], at[1]});
    if (k % 10 == 0) ends.insert(ends.end(), {at[0], at[1], at[1], at[1]});
    if (hubs && k % 3 == 0) ends.insert(ends.end(), {at[0], 0, 1, at[1]});
  }
  return Graph(nodes, from_vector({static_cast<std::int64_t>(ends.size() / 2), 2}, ends));
}

Input random_input(const Graph& graph, std::int64_t heads, std::int64_t features,
                   std::int64_t edge_features, DType dtype, Generator& rng) {
  const auto draw = [&](const Shape& shape) { return randn(shape, f64, rng).to(dtype); };
  const std::int64_t nodes = graph.num_nodes();
  Input x{draw({nodes, heads, features}), draw({nodes, heads, features}),
          draw({nodes, heads, features}), draw({nodes, heads})};
  if (edge_features > 0) {
    x.qe = draw({nodes, heads, edge_features});
    x.e = draw({graph.num_edges(), edge_features});
  }
  return x;
}

// Straight from the definition, one softmax at a time. draw: of dropout.
std::vector<std::vector<double>> naive(const Graph& graph, const Input& x,
                                       const DotAttentionOptions& options, std::uint64_t seed,
                                       std::uint64_t draw) {
  const std::int64_t nodes = graph.num_nodes(), heads = x.q.size(1), features = x.q.size(2),
                     fe = x.e.defined() ? x.e.size(1) : 0;
  const std::int64_t* offsets = graph.pattern().offsets().data<std::int64_t>();
  const std::int32_t* source = graph.sources().data<std::int32_t>();
  const auto at = [](const Tensor& t, std::int64_t i) { return t.data<double>()[i]; };
  const std::int64_t width = options.mean_heads ? features : heads * features;
  std::vector<double> out(static_cast<std::size_t>(nodes * width)),
      sums(static_cast<std::size_t>(nodes * heads * fe));
  for (std::int64_t i = 0; i < nodes; ++i) {
    std::vector<std::pair<std::int64_t, std::int64_t>> row;  // source, edge
    for (std::int64_t p = offsets[i]; p < offsets[i + 1]; ++p)
      if (!options.self_loops || source[p] != i) row.emplace_back(source[p], p);
    if (options.self_loops) row.emplace_back(i, graph.num_edges() + i);
    for (std::int64_t h = 0; h < heads; ++h) {
      std::vector<double> p;
      double total = 0;
      for (const auto& [j, edge] : row) {
        double t = 0;
        for (std::int64_t c = 0; c < features; ++c)
          t += at(x.q, (i * heads + h) * features + c) * at(x.k, (j * heads + h) * features + c);
        for (std::int64_t c = 0; c < fe && edge < graph.num_edges(); ++c)
          t += at(x.qe, (i * heads + h) * fe + c) * at(x.e, edge * fe + c);
        const double factor = options.factor.value_or(
            x.scale.defined() ? 1 : 1 / std::sqrt(static_cast<double>(features)));
        p.push_back(std::exp(t * factor * (x.scale.defined() ? at(x.scale, i * heads + h) : 1.0)));
        total += p.back();
      }
      for (std::size_t r = 0; r < row.size(); ++r) {
        const auto [j, edge] = row[r];
        double alpha = p[r] / total;
        if (options.dropout > 0) {
          const auto word = static_cast<std::uint64_t>(edge * heads + h);
          const bool keep = unit_float(philox_word(seed, draw, word)) >= options.dropout;
          alpha *= keep ? 1 / (1 - options.dropout) : 0;
        }
        for (std::int64_t c = 0; c < features; ++c)
          out[static_cast<std::size_t>(options.mean_heads ? i * features + c
                                                          : (i * heads + h) * features + c)] +=
              alpha * at(x.v, (j * heads + h) * features + c) /
              (options.mean_heads ? static_cast<double>(heads) : 1.0);
        for (std::int64_t c = 0; c < fe && edge < graph.num_edges(); ++c)
          sums[static_cast<std::size_t>((i * heads + h) * fe + c)] +=
              alpha * at(x.e, edge * fe + c);
      }
    }
  }
  return {out, sums};
}

std::vector<Tensor> run(const Graph& graph, const Input& x, const DotAttentionOptions& options,
                        Mode mode) {
  if (!x.e.defined()) return {dot_attention(graph, x.q, x.k, x.v, x.scale, options, mode)};
  const EdgeAttention y = dot_attention(graph, x.q, x.k, x.v, x.scale, x.qe, x.e, options, mode);
  return {y.out, y.edge_sum};
}

// Outputs and gradients of sum(out * cos) for fixed numbers cos.
std::vector<Tensor> run_both(const Graph& graph, Input x, const DotAttentionOptions& options,
                             std::uint64_t seed) {
  Generator draws{seed};
  Tape tape;
  std::vector<Tensor> in;
  for (Tensor* t : {&x.q, &x.k, &x.v, &x.scale, &x.qe, &x.e}) {
    if (!t->defined()) continue;
    *t = tape.watch(*t);
    in.push_back(*t);
  }
  std::vector<Tensor> result = run(graph, x, options, Mode::train(draws));
  Generator rng{4};
  Tensor loss;
  for (const Tensor& y : result) {
    const Tensor part = sum(mul(y, randn(y.shape(), f64, rng).to(y.dtype())));
    loss = loss.defined() ? add(loss, part) : part;
  }
  for (const Tensor& g : tape.grad(loss, in)) result.push_back(g);
  for (Tensor& y : result) y = y.detach();
  return result;
}

double worst(const Tensor& got, const std::vector<double>& expected) {
  REQUIRE(got.numel() == static_cast<std::int64_t>(expected.size()));
  const std::vector<double> x = got.detach().to(f64).to_vector<double>();
  double error = 0, size = 1e-3;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double d = std::abs(x[i] - expected[i]);
    if (!(d <= error)) error = d;
    size = std::max(size, std::abs(expected[i]));
  }
  return error / size;
}

}  // namespace

TEST_CASE("dot_attention: forward is the definition; f32 agrees; threads do not matter") {
  Generator rng{1};
  const std::vector<std::pair<int, int>> shapes{{1, 1}, {1, 7},  {8, 8},  {3, 5},  {4, 32},
                                                {9, 3}, {2, 13}, {16, 4}, {1, 100}};
  for (const auto& [heads, features] : shapes) {
    for (int variant = 0; variant < 8; ++variant) {
      CAPTURE(heads);
      CAPTURE(features);
      CAPTURE(variant);
      // The last ones with rows that are cut into pieces, of some 1000 edges.
      const bool large = variant >= 6;
      if (large && heads * features > 100) continue;
      const Graph graph =
          large ? random_graph(900, 9000, true, rng) : random_graph(23, 150, variant == 1, rng);
      const DotAttentionOptions options{.factor = variant == 2 ? std::optional(0.3) : std::nullopt,
                                        .self_loops = variant % 2 == 0,
                                        .dropout = variant >= 4 ? 0.3 : 0,
                                        .mean_heads = variant % 4 == 3};
      Input x =
          random_input(graph, heads, features, variant % 3 == 0 ? 0 : 2 * variant - 1, f64, rng);
      if (variant == 0 || variant == 2) x.scale = Tensor();
      Generator draws{9};
      const auto expected = naive(graph, x, options, 9, Generator{9}.take_draw());
      const auto got = run(graph, x, options, Mode::train(draws));
      for (std::size_t k = 0; k < got.size(); ++k) CHECK(worst(got[k], expected[k]) < 1e-12);

      Input narrow = x;
      for (Tensor* t : {&narrow.q, &narrow.k, &narrow.v, &narrow.scale, &narrow.qe, &narrow.e})
        if (t->defined()) *t = t->to(f32);
      const int before = num_threads();
      set_num_threads(1);
      const auto wide = run_both(graph, x, options, 9), one = run_both(graph, narrow, options, 9);
      set_num_threads(3);
      const auto several = run_both(graph, narrow, options, 9);
      set_num_threads(before);
      for (std::size_t k = 0; k < wide.size(); ++k) {
        CAPTURE(k);
        CHECK(worst(one[k], wide[k].to_vector<double>()) < (k < got.size() ? 1e-5 : 2e-4));
        CHECK(bitwise_equal(one[k], several[k]));
      }
    }
  }
}

TEST_CASE("dot_attention: rows cut into pieces have the gradients of whole ones") {
  // A star of 6000 edges is a hub; its gradients must be those of the sums written out with dense
  // operations.
  Generator rng{2};
  const std::int64_t leaves = 6000, heads = 2, features = 3;
  std::vector<std::int64_t> ends;
  for (std::int64_t j = 1; j <= leaves; ++j) ends.insert(ends.end(), {j, 0});
  for (std::int64_t j = 1; j <= leaves; ++j) ends.insert(ends.end(), {0, j});
  const Graph graph(leaves + 1, from_vector({2 * leaves, 2}, ends));
  const Input x = random_input(graph, heads, features, 2, f64, rng);
  const auto got = run_both(graph, x, {}, 1);

  // Node 0 of the star by dense operations.
  Tape tape;
  std::vector<Tensor> in;
  for (const Tensor& t : {x.q, x.k, x.v, x.scale, x.qe, x.e}) in.push_back(tape.watch(t));
  const Tensor q0 = slice(in[0], 0, 0, 1), k = slice(in[1], 0, 1, leaves + 1),
               v = slice(in[2], 0, 1, leaves + 1), s0 = slice(in[3], 0, 0, 1),
               qe0 = slice(in[4], 0, 0, 1), e = unsqueeze(slice(in[5], 0, 0, leaves), 1);
  const Tensor t = add(sum(mul(q0, k), {2}), sum(mul(qe0, e), {2}));  // (leaves, heads)
  const Tensor s = mul(t, s0), p = exp(sub(s, max(s, {0}, true)));
  const Tensor alpha = unsqueeze(div(p, sum(p, {0}, true)), 2);
  const Tensor out0 = sum(mul(alpha, v), {0}), sum0 = sum(mul(alpha, e), {0});
  CHECK(worst(slice(got[0], 0, 0, 1), out0.to_vector<double>()) < 1e-12);
  CHECK(worst(slice(got[1], 0, 0, 1), sum0.to_vector<double>()) < 1e-12);
  Generator same{4};
  const Tensor r0 = slice(randn(got[0].shape(), f64, same), 0, 0, 1),
               r1 = slice(randn(got[1].shape(), f64, same), 0, 0, 1);
  const Tensor loss =
      add(sum(mul(reshape(out0, r0.shape()), r0)), sum(mul(reshape(sum0, r1.shape()), r1)));
  const auto grads = tape.grad(loss, in);
  // What depends on node 0 alone: its query, scale and qe.
  for (const std::size_t i : {0, 3, 4}) {
    CAPTURE(i);
    CHECK(worst(slice(got[2 + i], 0, 0, 1), slice(grads[i], 0, 0, 1).to_vector<double>()) < 1e-10);
  }
  CHECK(worst(slice(got[2 + 5], 0, 0, leaves), slice(grads[5], 0, 0, leaves).to_vector<double>()) <
        1e-10);
}

TEST_CASE("dot_attention: a node without edges gets zeros and gives no gradient") {
  Generator rng{3};
  const Graph graph(4, from_values<std::int64_t>({2, 2}, {0, 1, 2, 1}));
  const Input x = random_input(graph, 2, 5, 3, f64, rng);
  const auto got = run_both(graph, x, {}, 1);
  for (const std::int64_t i : {0, 2, 3}) {
    for (const double y : slice(got[0], 0, i, i + 1).to_vector<double>()) CHECK(y == 0);
    for (const double y : slice(got[2], 0, i, i + 1).to_vector<double>()) CHECK(y == 0);
  }
  for (const double y : slice(got[3], 0, 3, 4).to_vector<double>()) CHECK(y == 0);
}

TEST_CASE("dot_attention: scores far out of range of exp") {
  Generator rng{4};
  const Graph graph = random_graph(40, 300, true, rng);
  Input x = random_input(graph, 2, 8, 0, f32, rng);
  x.q = mul(x.q, 1000.0);
  for (const Tensor& t : run_both(graph, x, {}, 1))
    for (const float y : t.to_vector<float>()) CHECK(std::isfinite(y));
}

TEST_CASE("dot_attention: nothing of the size of the edges times the features") {
  Generator rng{5};
  const std::int64_t nodes = 200, edges = 20000, heads = 4, features = 16;
  const Graph graph(nodes, rand_int({edges, 2}, nodes, rng));
  const Input x = random_input(graph, heads, features, 0, f32, rng);
  run_both(graph, x, {}, 1);  // the reverse edges are there now
  const std::int64_t before = memory::counters().live;
  memory::reset_peak();
  const auto result = run_both(graph, x, {.dropout = 0.5}, 1);
  const std::int64_t extra = memory::counters().peak - before;
  // Outputs, cotangents, products and gradients of nodes, and a byte an edge of dropout's mask.
  CHECK(extra < 16 * nodes * heads * features * 8 + 2 * edges);
}

TEST_CASE("dot_attention: errors name what was given") {
  Generator rng{6};
  const Graph graph(3, from_values<std::int64_t>({1, 2}, {0, 1}));
  const Tensor q = randn({3, 2, 4}, f32, rng);
  CHECK_THROWS_WITH_AS(
      dot_attention(graph, q, q, randn({3, 2, 5}, f32, rng), {}, {}, Mode::eval()),
      "dot_attention: q, k and v must be (3, heads, features) all three, got (3, 2, 4), (3, 2, 4) "
      "and (3, 2, 5)",
      Error);
  CHECK_THROWS_WITH_AS(dot_attention(graph, q, q, q, randn({3, 1}, f32, rng), {}, Mode::eval()),
                       "dot_attention: scale must be (3, 2), got (3, 1)", Error);
  CHECK_THROWS_WITH_AS(dot_attention(graph, q, q, q, {}, {.dropout = 2}, Mode::eval()),
                       "dot_attention: dropout must be from 0 to 1, got 2", Error);
  CHECK_THROWS_WITH_AS(dot_attention(graph, q, q, q, {}, randn({3, 2, 1}, f32, rng),
                                     randn({2, 1}, f32, rng), {}, Mode::eval()),
                       "dot_attention: e must be (1, features), got (2, 1)", Error);
}

}  // namespace lipgrad
