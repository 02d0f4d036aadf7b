// Some of this is shared among threads, so ThreadSanitizer looks at it too.
#include <lipgrad/ops/metrics.h>

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include <lipgrad/core/error.h>
#include <lipgrad/core/npz.h>
#include <lipgrad/ops/loss.h>
#include <support/data.h>

namespace lipgrad {
namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN();

Tensor ids(std::vector<std::int64_t> rows) {
  return from_vector({static_cast<std::int64_t>(rows.size())}, rows);
}

}  // namespace

TEST_CASE("metrics: ROC-AUC and F1 are scikit-learn's") {
  const auto golden = load_npz(test::golden("metrics/metrics.npz"));
  const auto at = [&](const char* name) { return golden.at(name); };
  const auto value = [&](const char* name) { return golden.at(name).item(); };
  CHECK(std::abs(roc_auc(at("tasks_scores"), at("tasks_labels")) - value("tasks_auc")) < 1e-14);
  CHECK(std::abs(roc_auc(at("long_scores"), at("long_labels")) - value("long_auc")) < 1e-14);
  // These scores are exact in f32: the same order, the same ties.
  CHECK(std::abs(roc_auc(at("long_scores").to(f32), at("long_labels").to(f32)) -
                 roc_auc(at("long_scores").to(f32), at("long_labels").to(u8))) == 0);
  const Tensor logits = at("classes_logits"), classes = at("classes_labels");
  CHECK(std::abs(f1(logits, classes, F1Average::micro) - value("classes_micro")) < 1e-14);
  CHECK(std::abs(f1(logits, classes, F1Average::micro) - accuracy(logits, classes)) < 1e-14);
  CHECK(std::abs(f1(logits, classes, F1Average::macro) - value("classes_macro")) < 1e-14);
  const Tensor several = at("several_logits"), labels = at("several_labels");
  CHECK(std::abs(f1(several, labels, F1Average::micro) - value("several_micro")) < 1e-14);
  CHECK(std::abs(f1(several, labels, F1Average::macro) - value("several_macro")) < 1e-14);
}

TEST_CASE("metrics: ROC-AUC by hand") {
  const float inf = std::numeric_limits<float>::infinity();
  const Tensor scores = from_values<float>({5}, {1, 2, 2, -inf, inf});
  CHECK(roc_auc(scores, from_values<std::int64_t>({5}, {0, 0, 1, 0, 1})) ==
        doctest::Approx(5.5 / 6));
  CHECK(roc_auc(scores, from_values<std::int64_t>({5}, {1, 1, 0, 1, 0})) ==
        doctest::Approx(0.5 / 6));
  // Rows, one of them twice, and a label that is not known.
  CHECK(roc_auc(scores, from_values<std::int32_t>({5}, {0, 1, 0, -1, 1}), ids({0, 1, 2, 2, 3})) ==
        doctest::Approx(2.0 / 3));
  CHECK(roc_auc(from_values<float>({2}, {-0.0f, 0.0f}), ids({0, 1})) == 0.5);
  // Logits of two classes.
  CHECK(roc_auc(from_values<double>({3, 2}, {5, 5, 1, 3, 2, 0}), ids({0, 1, 0})) == 1);
  // Tasks: the second has no negative that is known, the third is all ties.
  CHECK(roc_auc(from_values<float>({3, 3}, {3, 1, 7, 2, 2, 7, 1, 3, 7}),
                from_values<float>({3, 3}, {1, 1, 0, 0, 1, 1, 1, nan, 0})) == doctest::Approx(0.5));
  CHECK(std::isnan(roc_auc(from_values<float>({2}, {nan, 1}), ids({0, 1}))));
  CHECK(roc_auc(from_values<float>({3}, {nan, 1, 2}), ids({0, 0, 1}), ids({1, 2})) == 1);
}

TEST_CASE("metrics: F1 by hand") {
  // Hits 1, 3 predicted, 2 there; what is not known is not counted.
  const Tensor logits = from_values<float>({2, 3}, {1, -1, 2, 3, 0, 5}),
               labels = from_values<float>({2, 3}, {1, 1, 0, 0, 0, nan});
  CHECK(f1(logits, labels, F1Average::micro) == doctest::Approx(2.0 / 5));
  CHECK(f1(logits, labels, F1Average::macro) == doctest::Approx((2.0 / 3 + 0 + 0) / 3));
  CHECK(f1(logits, labels, F1Average::micro, ids({1})) == 0);
}

TEST_CASE("metrics: what does not fit is named") {
  const Tensor scores = ones({3}), labels = ids({0, 1, 1});
  CHECK_THROWS_WITH_AS(roc_auc(scores, ids({1, 1, 1})),
                       "roc_auc: none of 1 tasks has both positives and negatives in 3 rows",
                       Error);
  CHECK_THROWS_WITH_AS(
      roc_auc(scores, ids({0, 1, 2})),
      "roc_auc: the label of row 2 is 2; expected 0, 1, or a negative number or NaN when it is not "
      "known",
      Error);
  CHECK_THROWS_WITH_AS(roc_auc(scores, ids({0, 1})),
                       "roc_auc: predictions of shape (3) for labels of shape (2)", Error);
  CHECK_THROWS_WITH_AS(roc_auc(ones({3, 3}), labels),
                       "roc_auc: scores of shape (3, 3) for labels of shape (3); expected the same "
                       "shape, or two columns for labels of rank 1",
                       Error);
  CHECK_THROWS_WITH_AS(roc_auc(scores, labels, ids({3})),
                       "roc_auc: row 3 at position 0 is not in [0, 3)", Error);
  CHECK_THROWS_WITH_AS(roc_auc(labels, labels),
                       "roc_auc: expects predictions as floating numbers of rank 1 or 2, got i64 "
                       "of shape (3)",
                       Error);
  CHECK_THROWS_WITH_AS(f1(ones({3, 2}), ids({0, 1, 2}), F1Average::micro),
                       "f1: label 2 of row 2 is not in [0, 2)", Error);
  CHECK_THROWS_AS(f1(ones({3, 2}), ones({3, 3}), F1Average::macro), Error);
  CHECK_THROWS_AS(f1(ones({3, 2}), labels, F1Average::macro, ids({})), Error);
}

}  // namespace lipgrad
