#include <doctest/doctest.h>

#include <cmath>

#include <lipgrad/core/error.h>
#include <lipgrad/core/npz.h>
#include <lipgrad/core/random.h>
#include <lipgrad/core/tape.h>
#include <lipgrad/graph/graph_layer_norm.h>
#include <lipgrad/graph/kernels/graph_layer_norm.h>
#include <lipgrad/graph/kernels/pair_norm.h>
#include <lipgrad/graph/pair_norm.h>

#include <support/data.h>
#include <support/tensors.h>

#include "ops/kernel_test.h"

namespace lipgrad {
namespace {

using test::distance;

constexpr PairNormKind all_kinds[] = {PairNormKind::pn, PairNormKind::pn_si, PairNormKind::pn_scs};

}  // namespace

TEST_CASE("pair_norm: the authors' formulas, and PyTorch Geometric") {
  const auto golden = load_npz(test::golden("graph_norm/pyg.npz"));
  const auto check = [&](const std::string& name, PairNormKind kind) {
    CAPTURE(name);
    Tape tape;
    const Tensor x = tape.watch(golden.at("x"));
    const Tensor y = pair_norm(x, {.kind = kind, .scale = 2.5});
    CHECK(distance(y, golden.at(name + "_y")) <= 1e-14);
    CHECK(distance(tape.grad(y, {x}, golden.at("r"))[0], golden.at(name + "_gx")) <= 1e-13);
  };
  check("pn", PairNormKind::pn);
  check("pyg_pn", PairNormKind::pn);
  check("pn_si", PairNormKind::pn_si);
  check("pn_scs", PairNormKind::pn_scs);
}

TEST_CASE("pair_norm at small examples") {
  const Tensor x = from_values<double>({2, 2}, {3, 0, 9, 8});  // mean (6, 4), deviations -+(3, 4)
  const auto first = [&](PairNormKind kind, double eps) {
    return pair_norm(x, {.kind = kind, .scale = 2, .eps = eps}).data<double>()[0];
  };
  CHECK(first(PairNormKind::pn, 11) == doctest::Approx(-6 / 6.0));
  CHECK(first(PairNormKind::pn_si, 11) == doctest::Approx(-6 / 6.0));
  CHECK(first(PairNormKind::pn_scs, 7) == doctest::Approx(6 / 4.0 - 6));
  for (const PairNormKind kind : all_kinds) {
    CHECK(pair_norm(zeros({0, 3}), {.kind = kind}).shape() == Shape{0, 3});
    CHECK(pair_norm(zeros({3, 0}), {.kind = kind}).shape() == Shape{3, 0});
    // Nodes without features, alone among others or all of them: no NaN.
    CHECK(bitwise_equal(pair_norm(zeros({5, 3}), {.kind = kind}), zeros({5, 3})));
    const Tensor y = pair_norm(from_values<float>({2, 1}, {0, 1}), {.kind = kind});
    CHECK(std::isfinite(y.data<float>()[0]));
  }
  // A node alone is its own mean.
  CHECK(bitwise_equal(pair_norm(full({1, 4}, 0.1)), zeros({1, 4})));
}

TEST_CASE("pair_norm: what the paper promises") {
  Generator rng{1};
  const Tensor x = randn({700, 20}, f64, rng);
  const Tensor pn = pair_norm(x, {.scale = 3}),
               si = pair_norm(x, {.kind = PairNormKind::pn_si, .scale = 3});
  // The mean squared distance of two nodes is 2 scale^2, whatever x.
  double squares = 0;
  for (const double v : pn.to_vector<double>()) squares += v * v / 700;
  CHECK(squares == doctest::Approx(9).epsilon(1e-6));
  for (std::int64_t c = 0; c < 20; ++c) {
    double mean = 0;
    for (std::int64_t r = 0; r < 700; ++r) mean += pn.data<double>()[r * 20 + c] / 700;
    CHECK(std::abs(mean) < 1e-15);
  }
  double norm = 0;
  for (std::int64_t c = 0; c < 20; ++c) norm += std::pow(si.data<double>()[7 * 20 + c], 2);
  CHECK(norm == doctest::Approx(9).epsilon(1e-6));
}

TEST_CASE("pair_norm of nodes that are nearly the same, far from zero, in f32") {
  Generator rng{1};
  Tensor x = randn({3000, 40}, f64, rng);
  for (std::int64_t i = 0; i < x.numel(); ++i)
    x.mutable_data<double>()[i] = double(float(1000 + 1e-2 * x.data<double>()[i]));
  for (const PairNormKind kind : {PairNormKind::pn, PairNormKind::pn_si})
    CHECK(distance(pair_norm(x.to(f32), {.kind = kind}).to(f64), pair_norm(x, {.kind = kind})) <
          1e-2);
  CHECK(distance(graph_layer_norm(x.to(f32)).to(f64), graph_layer_norm(x)) < 1e-2);
}

TEST_CASE("pair_norm: errors") {
  CHECK_THROWS_WITH_AS(pair_norm(ones({3})),
                       "pair_norm: expects a matrix (nodes, features), got (3)", Error);
  CHECK_THROWS_WITH_AS(pair_norm(ones({3, 2}), {.scale = 0}),
                       "pair_norm: scale and eps must be positive and finite, got 0 and 1e-06",
                       Error);
  CHECK_THROWS_AS(pair_norm(ones({3, 2}), {.eps = 0}), Error);
  CHECK_THROWS_AS(pair_norm(ones({3, 2}), {.scale = INFINITY}), Error);
  CHECK_THROWS_AS(pair_norm(zeros({3, 2}, i64)), Error);
}

TEST_CASE("graph_layer_norm: what PyTorch Geometric gives") {
  const auto golden = load_npz(test::golden("graph_norm/pyg.npz"));
  Tape tape;
  const Tensor x = tape.watch(golden.at("x")), weight = tape.watch(golden.at("weight")),
               bias = tape.watch(golden.at("bias"));
  const Tensor y = graph_layer_norm(x, weight, bias);
  CHECK(distance(y, golden.at("layer_norm_y")) <= 1e-14);
  const auto g = tape.grad(y, {x, weight, bias}, golden.at("r"));
  CHECK(distance(g[0], golden.at("layer_norm_gx")) <= 1e-13);
  CHECK(distance(g[1], golden.at("layer_norm_gweight")) <= 1e-13);
  CHECK(distance(g[2], golden.at("layer_norm_gbias")) <= 1e-13);
}

TEST_CASE("graph_layer_norm: values and errors") {
  const Tensor x = from_values<double>({2, 2}, {1, 3, 3, 9}), w = from_values<double>({2}, {2, 1}),
               b = from_values<double>({2}, {0, 10});  // mean 4, variance 9
  const double expected[] = {-3 / 2.5, 10 - 1 / 5.0, -1 / 2.5, 10 + 5 / 5.0};
  const Tensor y = graph_layer_norm(x, w, b, 16);
  for (int i = 0; i < 4; ++i) CHECK(y.data<double>()[i] == doctest::Approx(expected[i]));
  CHECK(graph_layer_norm(zeros({0, 3})).shape() == Shape{0, 3});
  CHECK(bitwise_equal(graph_layer_norm(full({4, 3}, 0.1)), zeros({4, 3})));
  CHECK_THROWS_WITH_AS(graph_layer_norm(ones({2, 3, 4})),
                       "graph_layer_norm: expects a matrix (nodes, features), got (2, 3, 4)",
                       Error);
  CHECK_THROWS_WITH_AS(graph_layer_norm(ones({2, 3}), ones({2})),
                       "graph_layer_norm: weight or bias (2) does not fit the rows of (2, 3)",
                       Error);
  CHECK_THROWS_AS(graph_layer_norm(ones({2, 0})), Error);

  Module root;
  GraphLayerNorm norm(root, "norm", 3), plain(root, "plain", 3, {.affine = false});
  Generator rng{1};
  root.initialize(rng);
  CHECK(norm.weight->value().to_vector<float>() == std::vector<float>{1, 1, 1});
  CHECK(!plain.weight);
  const Tensor h = randn({4, 3}, f32, rng);
  CHECK(bitwise_equal(norm.forward(h), plain.forward(h)));
  CHECK_THROWS_WITH_AS(norm.forward(zeros({2, 4})),
                       "GraphLayerNorm: made for nodes of 3 features, got (2, 4)", Error);
  CHECK_THROWS_AS(GraphLayerNorm(root, "a", 0), Error);
  CHECK_THROWS_AS(GraphLayerNorm(root, "b", 2, {.eps = -1}), Error);
}

TEST_CASE("graph norms: the number of threads changes no bit") {
  for (const std::int64_t cols : {1, 40, 300}) {
    CAPTURE(cols);
    CHECK(same_on_any_threads([=] {
      const std::int64_t rows = 2500, n = rows * cols;
      const std::vector<float> x = random_values<float>(n, 1), gy = random_values<float>(n, 2),
                               w = random_values<float>(cols, 3);
      std::vector<float> y(n), gx(n), root(rows), sums(2 * cols), all;
      const auto keep = [&](auto forward, auto backward, const std::vector<float>& saved) {
        forward(rows, cols, 2.0, 1e-6, x.data(), y.data(), root.data());
        backward(rows, cols, 2.0, saved.data(), root.data(), gy.data(), gx.data());
        all.insert(all.end(), y.begin(), y.end());
        all.insert(all.end(), gx.begin(), gx.end());
      };
      keep(cpu::pair_norm<float>, cpu::pair_norm_backward<float>, y);
      keep(cpu::pair_norm_si<float>, cpu::pair_norm_si_backward<float>, y);
      keep(cpu::pair_norm_scs<float>, cpu::pair_norm_scs_backward<float>, x);
      cpu::graph_layer_norm<float>(rows, cols, 1e-5, x.data(), w.data(), nullptr, y.data(),
                                   root.data());
      cpu::graph_layer_norm_backward<float>(rows, cols, x.data(), w.data(), root.data(), gy.data(),
                                            gx.data(), sums.data(), sums.data() + cols);
      for (const auto* part : {&y, &gx, &sums}) all.insert(all.end(), part->begin(), part->end());
      return all;
    }));
  }
}

}  // namespace lipgrad
