#include <lipgrad/ops/loss.h>

#include <doctest/doctest.h>

#include <cmath>

#include <lipgrad/core/error.h>
#include <lipgrad/core/npz.h>
#include <lipgrad/core/random.h>
#include <lipgrad/core/tape.h>

#include "support/data.h"
#include "support/tensors.h"

namespace lipgrad {
namespace {

TEST_CASE("cross_entropy, bce_with_logits, mse at small examples") {
  const Tensor x = from_values<double>({3, 2}, {0, 0, 1, 3, 5, 5});
  const Tensor labels = from_values<std::int64_t>({3}, {0, 0, 1});
  const double second = std::log(1 + std::exp(2.0)), ln2 = std::log(2.0);
  CHECK(cross_entropy(x, labels).item() == doctest::Approx((2 * ln2 + second) / 3));
  CHECK(cross_entropy(x, labels.to(i32), {.rows = from_values<std::int64_t>({2}, {1, 1})}).item() ==
        doctest::Approx(second));
  CHECK(cross_entropy(x, labels,
                      {.rows = from_values<std::int32_t>({1}, {1}), .label_smoothing = 0.5})
            .item() == doctest::Approx(second - 0.5));
  // Labels of rows that do not count need not be classes.
  const Tensor some = from_values<std::int64_t>({3}, {-1, 0, 99});
  CHECK(cross_entropy(x, some, {.rows = from_values<std::int64_t>({1}, {1})}).item() ==
        doctest::Approx(second));
  const Tensor targets = from_values<double>({2}, {1, 0.25}),
               logits = from_values<double>({2}, {0, 2});
  CHECK(bce_with_logits(logits, targets).item() ==
        doctest::Approx(
            (ln2 + 0.25 * std::log(1 + std::exp(-2.0)) + 0.75 * std::log(1 + std::exp(2.0))) / 2));
  CHECK(mse(logits, targets).item() == doctest::Approx((1 + 1.75 * 1.75) / 2));
}

TEST_CASE("cross_entropy gives rows that do not count no gradient") {
  Tape tape;
  const Tensor x = tape.watch(zeros({3, 2}, f64)), labels = zeros({3}, i64);
  const Tensor g =
      tape.grad(cross_entropy(x, labels, {.rows = from_values<std::int64_t>({1}, {2})}), {x})[0];
  CHECK(g.to_vector<double>() == std::vector<double>{0, 0, 0, 0, -0.5, 0.5});
}

TEST_CASE("bce_with_logits of chosen rows and of targets that are not known") {
  const double ln2 = std::log(2.0), nan = std::nan("");
  const Tensor x = from_values<double>({3, 2}, {0, 1, 0, 2, 9, 9}),
               t = from_values<double>({3, 2}, {1, nan, 0.5, nan, nan, nan});
  const auto rows = [](std::vector<std::int32_t> ids) {
    return from_vector<std::int32_t>({static_cast<std::int64_t>(ids.size())}, ids);
  };
  CHECK(bce_with_logits(x, t, {.skip_missing = true}).item() == doctest::Approx(ln2));
  CHECK(std::isnan(bce_with_logits(x, t).item()));
  CHECK(std::isnan(bce_with_logits(x, t, {.rows = rows({0})}).item()));
  const Tensor whole = from_values<double>({3, 2}, {1, 1, 0.5, 0, 1, 1});
  CHECK(bce_with_logits(x, whole, {.rows = rows({1, 1, 0})}).item() ==
        doctest::Approx(
            (2 * (ln2 + std::log(1 + std::exp(2.0))) + ln2 + std::log(1 + std::exp(-1.0))) / 6));
  Tape tape;
  const Tensor watched = tape.watch(x);
  const BceOptions known{.rows = rows({0, 2}), .skip_missing = true};
  CHECK(tape.grad(bce_with_logits(watched, t, known), {watched})[0].to_vector<double>() ==
        std::vector<double>{-0.5, 0, 0, 0, 0, 0});
  // With nothing known there is nothing to learn.
  const BceOptions none{.rows = rows({2}), .skip_missing = true};
  const Tensor nothing = bce_with_logits(watched, t, none);
  CHECK(nothing.item() == 0);
  CHECK(tape.grad(nothing, {watched})[0].to_vector<double>() == std::vector<double>(6));
  // Logits of any shape have no rows to choose, but may lack targets.
  CHECK(bce_with_logits(from_values<double>({2}, {0, 5}), from_values<double>({2}, {0, nan}),
                        {.skip_missing = true})
            .item() == doctest::Approx(ln2));
  CHECK_THROWS_WITH_AS(bce_with_logits(x, whole, {.rows = rows({0, 3})}),
                       "bce_with_logits: row 3 at position 1 is not in [0, 3)", Error);
  CHECK_THROWS_WITH_AS(bce_with_logits(x, whole, {.rows = zeros({0}, i64)}),
                       "bce_with_logits: nothing to average in 0 rows of (3, 2)", Error);
  CHECK_THROWS_WITH_AS(bce_with_logits(ones({2}), ones({2}), {.rows = rows({0})}),
                       "bce_with_logits: expects logits of shape (N, C) with rows, got (2)", Error);
}

TEST_CASE("soft_cross_entropy: one-hot and smoothed targets are cross_entropy's, golden values") {
  Generator rng{3};
  const Tensor x = randn({4, 5}, f64, rng), labels = from_values<std::int64_t>({4}, {1, 0, 4, 1});
  Tensor targets = full({4, 5}, 0.1 / 5, f64);
  for (std::int64_t r = 0; r < 4; ++r)
    targets.mutable_data<double>()[5 * r + labels.data<std::int64_t>()[r]] += 0.9;
  CHECK(soft_cross_entropy(x, targets).item() ==
        doctest::Approx(cross_entropy(x, labels, {.label_smoothing = 0.1}).item()).epsilon(1e-14));
  // Targets that sum to two; the gradient is that of two distributions.
  Tape tape;
  const Tensor watched = tape.watch(x);
  const Tensor twice = tape.grad(soft_cross_entropy(watched, full({4, 5}, 0.4, f64)), {watched})[0],
               once = tape.grad(soft_cross_entropy(watched, full({4, 5}, 0.2, f64)), {watched})[0];
  for (std::int64_t i = 0; i < 20; ++i)
    CHECK(twice.data<double>()[i] == doctest::Approx(2 * once.data<double>()[i]));
  const auto golden = load_npz(test::golden("lipsformer/train_utils.npz"));
  const Tensor logits = tape.watch(golden.at("in.logits"));
  const Tensor loss = soft_cross_entropy(logits, golden.at("in.soft_target"));
  CHECK(loss.item() == doctest::Approx(golden.at("out.soft_ce").item()).epsilon(1e-13));
  CHECK(test::distance(tape.grad(loss, {logits})[0], golden.at("gin.logits")) <= 1e-13);
  const Tensor smooth = cross_entropy(logits, golden.at("in.labels"), {.label_smoothing = 0.1});
  CHECK(smooth.item() ==
        doctest::Approx(golden.at("out.label_smoothing_ce_0.1").item()).epsilon(1e-13));
  CHECK(test::distance(tape.grad(smooth, {logits})[0], golden.at("gin.logits_label_smoothing")) <=
        1e-13);
  CHECK_THROWS_WITH_AS(
      soft_cross_entropy(x, ones({4, 4}, f64)),
      "soft_cross_entropy: expects logits and targets of one shape (N, C), got (4, 5) and (4, 4)",
      Error);
  CHECK_THROWS_WITH_AS(soft_cross_entropy(ones({0, 3}), ones({0, 3})),
                       "soft_cross_entropy: nothing to average in (0, 3)", Error);
}

TEST_CASE("accuracy") {
  const Tensor x = from_values<float>({3, 2}, {0, 0, 1, 3, 5, 4}),
               labels = from_values<std::int32_t>({3}, {0, 0, 0});
  CHECK(accuracy(x, labels) == doctest::Approx(2.0 / 3));
  CHECK(accuracy(x, labels, from_values<std::int64_t>({2}, {0, 2})) == 1);
  const Tensor hits = correct(x, labels, from_values<std::int32_t>({3}, {0, 0, 1}));
  CHECK(hits.dtype() == i64);
  CHECK(hits.item() == 2);
  // A NaN counts as the largest, as in argmax().
  const Tensor odd = from_values<double>({2, 3}, {9, std::nan(""), std::nan(""), 1, 1, 0});
  CHECK(correct(odd, from_values<std::int32_t>({2}, {1, 0})).item() == 2);
}

TEST_CASE("losses name what does not fit") {
  const Tensor x = ones({3, 2}), labels = zeros({3}, i64);
  CHECK_THROWS_WITH_AS(cross_entropy(ones({3}), labels),
                       "cross_entropy: expects logits of shape (N, C), got (3)", Error);
  CHECK_THROWS_WITH_AS(
      cross_entropy(x, zeros({4}, i64)),
      "cross_entropy: expects i32 or i64 labels of shape (3), got i64 of shape (4)", Error);
  CHECK_THROWS_WITH_AS(cross_entropy(x, full({3}, 2, i64)),
                       "cross_entropy: label 2 of row 0 is not in [0, 2)", Error);
  CHECK_THROWS_WITH_AS(cross_entropy(x, labels, {.rows = from_values<std::int64_t>({2}, {0, 3})}),
                       "cross_entropy: row 3 at position 1 is not in [0, 3)", Error);
  CHECK_THROWS_WITH_AS(cross_entropy(x, labels, {.rows = zeros({0}, i64)}),
                       "cross_entropy: no rows to average over in (3, 2)", Error);
  CHECK_THROWS_WITH_AS(cross_entropy(x, labels, {.label_smoothing = 2}),
                       "cross_entropy: label_smoothing must lie in [0, 1], got 2", Error);
  CHECK_THROWS_WITH_AS(mse(x, ones({2})), "mse: shapes (3, 2) and (2) differ", Error);
  CHECK_THROWS_WITH_AS(bce_with_logits(ones({0}), ones({0})),
                       "bce_with_logits: nothing to average in (0)", Error);
  CHECK_THROWS_AS(accuracy(x, ones({3})), Error);
}

}  // namespace
}  // namespace lipgrad
