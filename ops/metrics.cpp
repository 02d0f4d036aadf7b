#include <lipgrad/ops/metrics.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include <lipgrad/core/check.h>
#include <lipgrad/core/threads.h>

namespace lipgrad {
namespace {

// Predictions and labels on the CPU, and the rows that count.
class Rows {
 public:
  Rows(const char* op, const Tensor& given, const Tensor& labels, const Tensor& rows) {
    LIPGRAD_CHECK(given.defined() && labels.defined(), "{}: an input is undefined", op);
    LIPGRAD_CHECK(is_floating(given.dtype()) && (given.rank() == 1 || given.rank() == 2),
                  "{}: expects predictions as floating numbers of rank 1 or 2, got {} of shape {}",
                  op, given.dtype(), given.shape());
    LIPGRAD_CHECK(labels.rank() >= 1 && labels.size(0) == given.size(0),
                  "{}: predictions of shape {} for labels of shape {}", op, given.shape(),
                  labels.shape());
    if (!rows.defined()) return;
    LIPGRAD_CHECK(rows.rank() == 1 && (rows.dtype() == i32 || rows.dtype() == i64),
                  "{}: expects rows as one i32 or i64 vector, got {} of shape {}", op, rows.dtype(),
                  rows.shape());
    list_ = rows.to(cpu_device).to(i64);
    const std::int64_t* id = list_.data<std::int64_t>();
    for (std::int64_t i = 0; i < list_.numel(); ++i)
      LIPGRAD_CHECK(id[i] >= 0 && id[i] < given.size(0),
                    "{}: row {} at position {} is not in [0, {})", op, id[i], i, given.size(0));
  }

  std::int64_t count(const Tensor& given) const {
    return list_.defined() ? list_.numel() : given.size(0);
  }
  std::int64_t operator[](std::int64_t i) const {
    return list_.defined() ? list_.data<std::int64_t>()[i] : i;
  }

 private:
  Tensor list_;
};

// Unsigned numbers in the order of the floating ones; -0 is 0.
std::uint64_t ordered(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x + 0.0f);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}
std::uint64_t ordered(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x + 0.0);
  return bits >> 63 ? ~bits : bits | std::uint64_t{1} << 63;
}

// Sorts numbers below 2^bits, 11 bits at a time.
void radix_sort(std::vector<std::uint64_t>& keys, std::vector<std::uint64_t>& spare, int bits) {
  constexpr int digit_bits = 11;
  constexpr std::size_t digits = std::size_t{1} << digit_bits;
  if (keys.size() < digits) return std::sort(keys.begin(), keys.end());
  spare.resize(keys.size());
  for (int shift = 0; shift < bits; shift += digit_bits) {
    std::array<std::size_t, digits> start{};
    for (const std::uint64_t key : keys) ++start[key >> shift & (digits - 1)];
    std::size_t sum = 0;
    for (std::size_t& s : start) sum += std::exchange(s, sum);
    for (const std::uint64_t key : keys) spare[start[key >> shift & (digits - 1)]++] = key;
    keys.swap(spare);
  }
}

// Of the pairs (positive, negative), twice the number of those in order, ties counting one.
double ordered_pairs(std::span<const std::uint64_t> positive,
                     std::span<const std::uint64_t> negative) {
  double pairs = 0;  // whole numbers below 2^53 for any memory
  std::size_t below = 0, end = 0;
  for (std::size_t i = 0; i < positive.size();) {
    std::size_t same = i;
    while (same < positive.size() && positive[same] == positive[i]) ++same;
    while (below < negative.size() && negative[below] < positive[i]) ++below;
    end = std::max(end, below);
    while (end < negative.size() && negative[end] == positive[i]) ++end;
    pairs += static_cast<double>(same - i) * static_cast<double>(below + end);
    i = same;
  }
  return pairs;
}

struct Task {
  bool counts = false, known_order = true;
  double auc = 0;
};

}  // namespace

double roc_auc(const Tensor& given, const Tensor& given_labels, const Tensor& given_rows) {
  constexpr auto op = "roc_auc";
  const Rows rows(op, given, given_labels, given_rows);
  const bool two_classes = given.rank() == 2 && given_labels.rank() == 1;
  LIPGRAD_CHECK(given.shape() == given_labels.shape() || (two_classes && given.size(1) == 2),
                "{}: scores of shape {} for labels of shape {}; expected the same shape, or two "
                "columns for labels of rank 1",
                op, given.shape(), given_labels.shape());
  const Tensor scores = given.to(cpu_device), labels = given_labels.to(cpu_device).to(f32);
  const std::int64_t tasks = given_labels.rank() == 2 ? given_labels.size(1) : 1;
  const float* label = labels.data<float>();
  std::vector<Task> results(static_cast<std::size_t>(tasks));
  visit_float(op, scores.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* score = scores.data<T>();
    parallel_for(tasks, 1, [&](std::int64_t begin, std::int64_t end) {
      std::vector<std::uint64_t> positive, negative, spare;
      for (std::int64_t t = begin; t < end; ++t) {
        positive.clear();
        negative.clear();
        Task& task = results[static_cast<std::size_t>(t)];
        for (std::int64_t i = 0; i < rows.count(given); ++i) {
          const std::int64_t r = rows[i];
          const float known = label[r * tasks + t];
          if (!(known >= 0)) continue;
          LIPGRAD_CHECK(known == 0 || known == 1,
                        "{}: the label of row {} is {}; expected 0, 1, or a negative number or NaN "
                        "when it is not known",
                        op, r, known);
          const T value = two_classes ? score[2 * r + 1] - score[2 * r] : score[r * tasks + t];
          if (std::isnan(value)) task.known_order = false;
          (known == 1 ? positive : negative).push_back(ordered(value));
        }
        if (positive.empty() || negative.empty()) continue;
        task.counts = true;
        radix_sort(positive, spare, 8 * sizeof(T));
        radix_sort(negative, spare, 8 * sizeof(T));
        task.auc = ordered_pairs(positive, negative) / 2 / static_cast<double>(positive.size()) /
                   static_cast<double>(negative.size());
      }
    });
  });
  double sum = 0, count = 0;
  for (const Task& task : results) {
    if (!task.counts) continue;
    if (!task.known_order) return std::numeric_limits<double>::quiet_NaN();
    sum += task.auc;
    ++count;
  }
  LIPGRAD_CHECK(count > 0, "{}: none of {} tasks has both positives and negatives in {} rows", op,
                tasks, rows.count(given));
  return sum / count;
}

double f1(const Tensor& given, const Tensor& given_labels, F1Average average,
          const Tensor& given_rows) {
  constexpr auto op = "f1";
  const Rows rows(op, given, given_labels, given_rows);
  const bool classes = given_labels.rank() == 1;
  LIPGRAD_CHECK(
      given.rank() == 2 && given.size(1) > 0 &&
          (classes ? !is_floating(given_labels.dtype()) : given.shape() == given_labels.shape()),
      "{}: logits of shape {} for {} labels of shape {}; expected logits (N, C) and "
      "integer labels (N), or the same shape",
      op, given.shape(), given_labels.dtype(), given_labels.shape());
  const Tensor logits = given.to(cpu_device);
  const std::int64_t cols = given.size(1);
  struct Counts {
    double hits = 0, predicted = 0, actual = 0;
  };
  std::vector<Counts> counts(static_cast<std::size_t>(cols));
  visit_float(op, logits.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* logit = logits.data<T>();
    if (classes) {
      const Tensor labels = given_labels.to(cpu_device).to(i64);
      const std::int64_t* label = labels.data<std::int64_t>();
      for (std::int64_t i = 0; i < rows.count(given); ++i) {
        const std::int64_t r = rows[i];
        LIPGRAD_CHECK(label[r] >= 0 && label[r] < cols, "{}: label {} of row {} is not in [0, {})",
                      op, label[r], r, cols);
        const T* row = logit + r * cols;
        const auto best = static_cast<std::size_t>(std::max_element(row, row + cols) - row);
        counts[best].predicted += 1;
        counts[static_cast<std::size_t>(label[r])].actual += 1;
        if (static_cast<std::int64_t>(best) == label[r]) counts[best].hits += 1;
      }
      return;
    }
    const Tensor labels = given_labels.to(cpu_device).to(f32);
    const float* label = labels.data<float>();
    for (std::int64_t i = 0; i < rows.count(given); ++i) {
      const std::int64_t r = rows[i];
      for (std::int64_t c = 0; c < cols; ++c) {
        const float known = label[r * cols + c];
        if (!(known >= 0)) continue;
        LIPGRAD_CHECK(known == 0 || known == 1, "{}: the label of row {}, column {} is {}", op, r,
                      c, known);
        Counts& n = counts[static_cast<std::size_t>(c)];
        const bool predicted = logit[r * cols + c] > 0;
        n.predicted += predicted;
        n.actual += known == 1;
        n.hits += predicted && known == 1;
      }
    }
  });
  LIPGRAD_CHECK(rows.count(given) > 0, "{}: no rows", op);
  const auto score = [](const Counts& n) {
    const double both = n.predicted + n.actual;
    return both > 0 ? 2 * n.hits / both : 0;
  };
  if (average == F1Average::micro) {
    Counts all;
    for (const Counts& n : counts) {
      all.hits += n.hits;
      all.predicted += n.predicted;
      all.actual += n.actual;
    }
    return score(all);
  }
  double sum = 0, number = 0;
  for (const Counts& n : counts) {
    if (classes && n.predicted + n.actual == 0) continue;
    sum += score(n);
    ++number;
  }
  return sum / number;
}

}  // namespace lipgrad
