#include <lipgrad/ops/batch_norm.h>

#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include <lipgrad/core/blas.h>
#include <lipgrad/core/error.h>
#include <lipgrad/core/random.h>
#include <lipgrad/core/recompute.h>
#include <lipgrad/core/tape.h>
#include <lipgrad/ops/kernels/batch_norm.h>
#include <support/tensors.h>

#include "ops/kernel_test.h"

namespace lipgrad {

using test::distance;

TEST_CASE("batch_norm: values and errors") {
  // Columns of means 2 and 5, variances 1 and 16.
  const Tensor x = from_values<double>({2, 2}, {1, 1, 3, 9}), w = from_values<double>({2}, {2, 1}),
               b = from_values<double>({2}, {0, 10});
  Tensor moments;
  const Tensor y = batch_norm(x, w, b, 9, &moments);
  CHECK(moments.to_vector<double>() == std::vector<double>{2, 5, 1, 16});
  const double root = std::sqrt(10.0), expected[] = {-2 / root, 10 - 4 / 5.0, 2 / root, 10.8};
  for (int i = 0; i < 4; ++i) CHECK(y.data<double>()[i] == doctest::Approx(expected[i]));
  CHECK(bitwise_equal(column_moments(x), moments));
  CHECK(distance(fixed_batch_norm(x, from_values<double>({2}, {2, 5}),
                                  from_values<double>({2}, {1, 16}), w, b, 9),
                 y) < 1e-15);
  // With a = 1/2: x - 1 has the mean square (0 + 4) / 2, x - 2.5 (1.5^2 + 6.5^2) / 2 = 22.25.
  const Tensor half = graph_norm(x, full({2}, 0.5, f64), {}, {}, {}, 2);
  CHECK(half.data<double>()[2] == doctest::Approx(1));
  CHECK(half.data<double>()[3] == doctest::Approx(6.5 / std::sqrt(24.25)));

  CHECK(batch_norm(zeros({0, 3})).shape() == Shape{0, 3});
  CHECK(batch_norm(zeros({3, 0})).shape() == Shape{3, 0});
  CHECK(bitwise_equal(batch_norm(full({4, 3}, 0.1)), zeros({4, 3})));
  CHECK_THROWS_WITH_AS(batch_norm(ones({2, 3, 4})),
                       "batch_norm: expects a matrix (rows, features), got (2, 3, 4)", Error);
  CHECK_THROWS_WITH_AS(batch_norm(ones({2, 3}), ones({2})),
                       "batch_norm: weight (2) does not fit the rows of (2, 3)", Error);
  CHECK_THROWS_WITH_AS(column_moments(ones({0, 3})), "column_moments: expects rows, got (0, 3)",
                       Error);
  CHECK_THROWS_WITH_AS(fixed_batch_norm(ones({2, 3}), ones({3}), ones({4})),
                       "fixed_batch_norm: variance (4) does not fit the rows of (2, 3)", Error);
  for (const auto& offsets : std::vector<std::vector<std::int64_t>>{{0, 1}, {1, 2}, {0, 3, 1, 2}})
    CHECK_THROWS_WITH_AS(
        graph_norm(ones({2, 3}), {}, {}, {},
                   from_vector({static_cast<std::int64_t>(offsets.size())}, offsets)),
        "graph_norm: offsets must go from 0 to 2 and not descend", Error);
}

TEST_CASE("graph_norm of pieces is that of each piece, an empty one among them") {
  Generator rng{4};
  const Tensor x = randn({30, 6}, f64, rng), a = randn({6}, f64, rng), w = randn({6}, f64, rng),
               b = randn({6}, f64, rng), r = randn({30, 6}, f64, rng);
  const std::int64_t cuts[] = {0, 11, 11, 30};
  Tape tape;
  const Tensor xs = tape.watch(x), as = tape.watch(a);
  const Tensor whole = graph_norm(xs, as, w, b, from_values<std::int64_t>({4}, {0, 11, 11, 30}));
  const auto grads = tape.grad(whole, {xs, as}, r);
  Tensor sum = zeros({6}, f64);
  for (int g : {0, 2}) {
    const std::int64_t first = cuts[g], rows = cuts[g + 1] - first;
    Tape part;
    const Tensor piece = part.watch(x.alias({rows, 6}, first * 6)), scale = part.watch(a);
    const Tensor y = graph_norm(piece, scale, w, b);
    CHECK(bitwise_equal(y.detach(), whole.detach().alias({rows, 6}, first * 6)));
    const auto own = part.grad(y, {piece, scale}, r.alias({rows, 6}, first * 6));
    CHECK(bitwise_equal(own[0], grads[0].alias({rows, 6}, first * 6)));
    for (int c = 0; c < 6; ++c) sum.mutable_data<double>()[c] += own[1].data<double>()[c];
  }
  CHECK(distance(grads[1], sum) < 1e-14);
}

TEST_CASE("batch_norm of columns that are nearly constant, far from zero, in f32") {
  Generator rng{1};
  Tensor x = randn({3000, 40}, f64, rng);
  for (std::int64_t i = 0; i < x.numel(); ++i)
    x.mutable_data<double>()[i] = double(float(1000 + 1e-2 * x.data<double>()[i]));
  // 1000 has a unit in the last place of 6e-5, and the deviation 1e-2.
  CHECK(distance(batch_norm(x.to(f32), {}, {}, 1e-8).to(f64), batch_norm(x, {}, {}, 1e-8)) < 1e-2);
  const Tensor moments = column_moments(x.to(f32)).to(f64), exact = column_moments(x);
  for (std::int64_t c = 40; c < 80; ++c)
    CHECK(moments.data<double>()[c] == doctest::Approx(exact.data<double>()[c]).epsilon(1e-4));
}

TEST_CASE("fixed_batch_norm has the Lipschitz constant max |weight| / sqrt(variance + eps)") {
  Generator rng{6};
  const Tensor mean = randn({3}, f64, rng), variance = from_values<double>({3}, {4, 0.25, 1}),
               w = from_values<double>({3}, {1, -3, 2});
  const Tensor jacobian = test::jacobian(randn({4, 3}, f64, rng), [&](const Tensor& x) {
    return fixed_batch_norm(x, mean, variance, w, {}, 0);
  });
  CHECK(largest_singular_value(12, 12, jacobian.data<double>()) == doctest::Approx(6));
}

TEST_CASE("BatchNorm: running moments, replays, errors") {
  Generator rng{5};
  const BatchNormOptions options{.momentum = 0.25, .dtype = f64};
  struct Net : Module {
    explicit Net(const BatchNormOptions& options) : norm(*this, "norm", 3, options) {}
    BatchNorm norm;
  } net(options), replayed(options);
  net.initialize(rng);
  CHECK(net.norm.running_mean.value().to_vector<double>() == std::vector<double>{0, 0, 0});
  CHECK(net.norm.running_var.value().to_vector<double>() == std::vector<double>{1, 1, 1});
  const Tensor x = from_values<double>({2, 3}, {1, 2, 3, 3, 2, 5});
  net.norm.forward(x, Mode::train(rng));
  // Means 2, 2, 4; unbiased variances 2, 0, 2.
  CHECK(net.norm.running_mean.value().to_vector<double>() == std::vector<double>{0.5, 0.5, 1});
  CHECK(net.norm.running_var.value().to_vector<double>() == std::vector<double>{1.25, 0.75, 1.25});
  const Tensor before = net.norm.running_var.value().clone();
  const Tensor y = net.norm.forward(x, Mode::eval());
  CHECK(bitwise_equal(net.norm.running_var.value(), before));
  CHECK(y.data<double>()[0] == doctest::Approx(0.5 / std::sqrt(1.25 + 1e-5)));

  // A step that is computed again for its gradient moves them once.
  replayed.initialize(rng);
  Tape tape;
  const Tensor in = tape.watch(x);
  const Tensor loss = checkpoint(
      [&](Inputs inputs) { return replayed.norm.forward(inputs[0], Mode::train(rng)); }, rng, in);
  tape.grad(loss, {in}, ones({2, 3}, f64));
  CHECK(bitwise_equal(replayed.norm.running_var.value(), before));

  CHECK_THROWS_WITH_AS(net.norm.forward(ones({1, 3}, f64), Mode::train(rng)),
                       "BatchNorm: training needs at least 2 rows, got (1, 3)", Error);
  CHECK_THROWS_WITH_AS(net.norm.forward(ones({4, 2}, f64), Mode::eval()),
                       "BatchNorm: made for rows of 3 features, got (4, 2)", Error);
  Module root;
  CHECK_THROWS_WITH_AS(BatchNorm(root, "a", 0), "BatchNorm: features must be at least 1, got 0",
                       Error);
  CHECK_THROWS_AS(BatchNorm(root, "b", 2, {.eps = -1}), Error);
  CHECK_THROWS_WITH_AS(BatchNorm(root, "c", 2, {.momentum = 1.5}),
                       "BatchNorm: momentum must be from 0 to 1, got 1.5", Error);
}

TEST_CASE("column norms: the number of threads changes no bit") {
  for (const std::int64_t cols : {1, 40, 300}) {
    CAPTURE(cols);
    CHECK(same_on_any_threads([=] {
      const std::int64_t rows = 2500, n = rows * cols;
      const std::vector<float> x = random_values<float>(n, 1), gy = random_values<float>(n, 2),
                               w = random_values<float>(cols, 3), a = random_values<float>(cols, 4);
      std::vector<float> moments(2 * cols), y(n), gx(n), ga(cols), gw(cols), gb(cols), all;
      const ColumnNorm<float> by{a.data(), w.data(), nullptr};
      cpu::column_moments<float>(rows, cols, x.data(), moments.data());
      cpu::column_norm<float>(rows, cols, 1e-5, x.data(), moments.data(), by, y.data());
      cpu::column_norm_backward<float>(rows, cols, 1e-5, false, x.data(), moments.data(), by,
                                       gy.data(), gx.data(), {ga.data(), gw.data(), gb.data()});
      for (const auto* part : {&moments, &y, &gx, &ga, &gw, &gb})
        all.insert(all.end(), part->begin(), part->end());
      return all;
    }));
  }
}

}  // namespace lipgrad
