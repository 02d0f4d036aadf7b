#include <lipgrad/ops/loss.h>

#include <lipgrad/core/check.h>
#include <lipgrad/core/launch.h>
#include <lipgrad/core/op.h>
#include <lipgrad/core/optional_data.h>
#include <lipgrad/ops/kernels/loss.h>

namespace lipgrad {
namespace {

template <class F>
decltype(auto) visit_label(const Tensor& labels, F&& f) {
  if (labels.dtype() == i32) return f(TypeTag<std::int32_t>{});
  return f(TypeTag<std::int64_t>{});
}

bool is_index(const Tensor& x) { return x.dtype() == i32 || x.dtype() == i64; }

void check_row_list(const char* op, const Tensor& logits, const Tensor& rows) {
  LIPGRAD_CHECK(rows.rank() == 1 && is_index(rows),
                "{}: expects rows as one i32 or i64 vector, got {} of shape {}", op, rows.dtype(),
                rows.shape());
  LIPGRAD_CHECK(rows.device() == logits.device(),
                "{}: logits on {}, rows on {}; move one with to()", op, logits.device(),
                rows.device());
}

// Checks shapes, and on the CPU the values of labels and rows (on CUDA devices the kernels report
// what is out of range); returns the number of rows that count.
std::int64_t check_rows(const char* op, const Tensor& logits, const Tensor& labels,
                        const Tensor& rows) {
  LIPGRAD_CHECK(logits.defined() && labels.defined(), "{}: an input is undefined", op);
  LIPGRAD_CHECK(logits.rank() == 2, "{}: expects logits of shape (N, C), got {}", op,
                logits.shape());
  LIPGRAD_CHECK(labels.shape() == Shape({logits.size(0)}) && is_index(labels),
                "{}: expects i32 or i64 labels of shape ({}), got {} of shape {}", op,
                logits.size(0), labels.dtype(), labels.shape());
  LIPGRAD_CHECK(labels.device() == logits.device(),
                "{}: logits on {}, labels on {}; move one with to()", op, logits.device(),
                labels.device());
  if (rows.defined()) check_row_list(op, logits, rows);
  const std::int64_t count = rows.defined() ? rows.numel() : logits.size(0),
                     classes = logits.size(1);
  LIPGRAD_CHECK(count > 0 && classes > 0, "{}: no rows to average over in {}", op, logits.shape());
  if (!logits.device().is_cpu()) return count;
  const Tensor chosen = rows.defined() ? rows.to(i64) : Tensor();
  const std::int64_t* list = data_or_null<std::int64_t>(chosen);
  visit_label(labels, [&](auto tag) {
    using Label = typename decltype(tag)::type;
    const Label* values = labels.data<Label>();
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t r = list ? list[i] : i;
      LIPGRAD_CHECK(r >= 0 && r < logits.size(0), "{}: row {} at position {} is not in [0, {})", op,
                    r, i, logits.size(0));
      LIPGRAD_CHECK(values[r] >= 0 && static_cast<std::int64_t>(values[r]) < classes,
                    "{}: label {} of row {} is not in [0, {})", op, values[r], r, classes);
    }
  });
  return count;
}

struct CrossEntropy {  // logits, labels, rows
  static constexpr auto name = "cross_entropy";
  double smoothing;

  Tensor forward(Ctx& ctx, Inputs in) const {
    const Tensor &x = in[0], &labels = in[1];
    const std::int64_t count = check_rows(name, x, labels, in[2]);
    const Tensor rows = in[2].defined() ? in[2].to(i64) : Tensor();
    Tensor loss = empty({}, x.dtype(), x.device()), lse = empty({count}, x.dtype(), x.device());
    visit_float(name, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      visit_label(labels, [&](auto label_tag) {
        using Label = typename decltype(label_tag)::type;
        LIPGRAD_LAUNCH(x.device(), cross_entropy, x.size(0), count, x.size(1), x.data<T>(),
                       data_or_null<std::int64_t>(rows), labels.data<Label>(), smoothing,
                       lse.mutable_data<T>(), loss.mutable_data<T>());
      });
    });
    ctx.save(x);
    ctx.save(labels);
    ctx.save(rows);
    ctx.save(lse);
    return loss;
  }

  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    const Tensor &x = ctx.saved(0), &labels = ctx.saved(1), &lse = ctx.saved(3);
    Tensor g = empty_like(x);
    visit_float(name, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      visit_label(labels, [&](auto label_tag) {
        using Label = typename decltype(label_tag)::type;
        LIPGRAD_LAUNCH(x.device(), cross_entropy_backward, x.size(0), lse.numel(), x.size(1),
                       x.data<T>(), data_or_null<std::int64_t>(ctx.saved(2)), labels.data<Label>(),
                       smoothing, lse.data<T>(), gy.data<T>(), g.mutable_data<T>());
      });
    });
    gx[0] = std::move(g);
  }
};

struct SoftCrossEntropy {  // logits, targets
  static constexpr auto name = "soft_cross_entropy";

  Tensor forward(Ctx& ctx, Inputs in) const {
    const Tensor &x = in[0], &t = in[1];
    check_same_kind(name, {&x, &t});
    LIPGRAD_CHECK(x.rank() == 2 && x.shape() == t.shape(),
                  "{}: expects logits and targets of one shape (N, C), got {} and {}", name,
                  x.shape(), t.shape());
    LIPGRAD_CHECK(x.numel() > 0, "{}: nothing to average in {}", name, x.shape());
    Tensor loss = empty({}, x.dtype(), x.device()), lse = empty({x.size(0)}, x.dtype(), x.device());
    visit_float(name, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      LIPGRAD_LAUNCH(x.device(), soft_cross_entropy, x.size(0), x.size(1), x.data<T>(), t.data<T>(),
                     lse.mutable_data<T>(), loss.mutable_data<T>());
    });
    for (const Tensor& saved : {x, t, lse}) ctx.save(saved);
    return loss;
  }

  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    const Tensor &x = ctx.saved(0), &t = ctx.saved(1);
    Tensor g[2];
    for (int i : {0, 1})
      if (ctx.needs_grad(i)) g[i] = empty_like(x);
    visit_float(name, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      LIPGRAD_LAUNCH(x.device(), soft_cross_entropy_backward, x.size(0), x.size(1), x.data<T>(),
                     t.data<T>(), ctx.saved(2).data<T>(), gy.data<T>(),
                     mutable_data_or_null<T>(g[0]), mutable_data_or_null<T>(g[1]));
    });
    for (int i : {0, 1}) gx[i] = std::move(g[i]);
  }
};

// The two losses of pairs of equal shape.
template <bool kBce>
struct PairLoss {
  static constexpr auto name = kBce ? "bce_with_logits" : "mse";

  Tensor forward(Ctx& ctx, Inputs in) const {
    const Tensor &x = in[0], &t = in[1];
    check_same_kind(name, {&x, &t});
    LIPGRAD_CHECK(x.shape() == t.shape(), "{}: shapes {} and {} differ", name, x.shape(),
                  t.shape());
    LIPGRAD_CHECK(x.numel() > 0, "{}: nothing to average in {}", name, x.shape());
    Tensor loss = empty({}, x.dtype(), x.device());
    visit_float(name, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      if constexpr (kBce) {
        LIPGRAD_LAUNCH(x.device(), bce_with_logits, x.numel(), x.data<T>(), t.data<T>(),
                       loss.mutable_data<T>());
      } else {
        LIPGRAD_LAUNCH(x.device(), mse, x.numel(), x.data<T>(), t.data<T>(),
                       loss.mutable_data<T>());
      }
    });
    ctx.save(x);
    ctx.save(t);
    return loss;
  }

  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    const Tensor &x = ctx.saved(0), &t = ctx.saved(1);
    Tensor g[2];
    for (int i : {0, 1})
      if (ctx.needs_grad(i)) g[i] = empty_like(x);
    visit_float(name, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      T *gx0 = mutable_data_or_null<T>(g[0]), *gx1 = mutable_data_or_null<T>(g[1]);
      if constexpr (kBce) {
        LIPGRAD_LAUNCH(x.device(), bce_with_logits_backward, x.numel(), x.data<T>(), t.data<T>(),
                       gy.data<T>(), gx0, gx1);
      } else {
        LIPGRAD_LAUNCH(x.device(), mse_backward, x.numel(), x.data<T>(), t.data<T>(), gy.data<T>(),
                       gx0, gx1);
      }
    });
    for (int i : {0, 1}) gx[i] = std::move(g[i]);
  }
};

struct BceRows {  // logits, targets, rows
  static constexpr auto name = "bce_with_logits";
  bool skip_missing;

  Tensor forward(Ctx& ctx, Inputs in) const {
    const Tensor &x = in[0], &t = in[1], &chosen = in[2];
    check_same_kind(name, {&x, &t});
    LIPGRAD_CHECK(x.shape() == t.shape(), "{}: shapes {} and {} differ", name, x.shape(),
                  t.shape());
    Tensor rows;
    if (chosen.defined()) {
      LIPGRAD_CHECK(x.rank() == 2, "{}: expects logits of shape (N, C) with rows, got {}", name,
                    x.shape());
      check_row_list(name, x, chosen);
      rows = chosen.to(i64);
      if (x.device().is_cpu()) {
        const std::int64_t* list = rows.data<std::int64_t>();
        for (std::int64_t i = 0; i < rows.numel(); ++i)
          LIPGRAD_CHECK(list[i] >= 0 && list[i] < x.size(0),
                        "{}: row {} at position {} is not in [0, {})", name, list[i], i, x.size(0));
      }
    }
    const Sizes s = sizes(x, rows);
    LIPGRAD_CHECK(s.count > 0 && s.cols > 0, "{}: nothing to average in {} rows of {}", name,
                  s.count, x.shape());
    Tensor loss = empty({}, x.dtype(), x.device()), known = empty({}, f64, x.device());
    visit_float(name, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      LIPGRAD_LAUNCH(x.device(), bce_rows, s.total, s.count, s.cols, x.data<T>(),
                     data_or_null<std::int64_t>(rows), t.data<T>(), skip_missing,
                     known.mutable_data<double>(), loss.mutable_data<T>());
    });
    for (const Tensor& saved : {x, t, rows, known}) ctx.save(saved);
    return loss;
  }

  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    const Tensor &x = ctx.saved(0), &t = ctx.saved(1), &rows = ctx.saved(2);
    const Sizes s = sizes(x, rows);
    Tensor g[2];
    for (int i : {0, 1})
      if (ctx.needs_grad(i)) g[i] = empty_like(x);
    visit_float(name, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      LIPGRAD_LAUNCH(x.device(), bce_rows_backward, s.total, s.count, s.cols, x.data<T>(),
                     data_or_null<std::int64_t>(rows), t.data<T>(), skip_missing,
                     ctx.saved(3).data<double>(), gy.data<T>(), mutable_data_or_null<T>(g[0]),
                     mutable_data_or_null<T>(g[1]));
    });
    for (int i : {0, 1}) gx[i] = std::move(g[i]);
  }

 private:
  struct Sizes {
    std::int64_t total, count, cols;
  };
  // Of other shapes than (N, C), without rows: any matrix of as many elements.
  static Sizes sizes(const Tensor& x, const Tensor& rows) {
    const std::int64_t cols = x.rank() > 0 ? x.size(x.rank() - 1) : 1;
    const std::int64_t total = cols > 0 ? x.numel() / cols : 0;
    return {total, rows.defined() ? rows.numel() : total, cols};
  }
};

Tensor hits_of(const char* op, const Tensor& logits, const Tensor& labels, const Tensor& rows) {
  const std::int64_t count = check_rows(op, logits, labels, rows);
  const Tensor chosen = rows.defined() ? rows.to(i64) : Tensor();
  Tensor hits = empty({}, i64, logits.device());
  visit_float(op, logits.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    visit_label(labels, [&](auto label_tag) {
      using Label = typename decltype(label_tag)::type;
      LIPGRAD_LAUNCH(logits.device(), count_correct, logits.size(0), count, logits.size(1),
                     logits.data<T>(), data_or_null<std::int64_t>(chosen), labels.data<Label>(),
                     hits.mutable_data<std::int64_t>());
    });
  });
  return hits;
}

}  // namespace

Tensor cross_entropy(const Tensor& logits, const Tensor& labels,
                     const CrossEntropyOptions& options) {
  LIPGRAD_CHECK(options.label_smoothing >= 0 && options.label_smoothing <= 1,
                "cross_entropy: label_smoothing must lie in [0, 1], got {}",
                options.label_smoothing);
  return apply(CrossEntropy{options.label_smoothing}, logits, labels, options.rows);
}

Tensor soft_cross_entropy(const Tensor& logits, const Tensor& targets) {
  return apply(SoftCrossEntropy{}, logits, targets);
}

Tensor bce_with_logits(const Tensor& logits, const Tensor& targets, const BceOptions& options) {
  if (options.rows.defined() || options.skip_missing)
    return apply(BceRows{options.skip_missing}, logits, targets, options.rows);
  return apply(PairLoss<true>{}, logits, targets);
}

Tensor mse(const Tensor& x, const Tensor& target) { return apply(PairLoss<false>{}, x, target); }

Tensor correct(const Tensor& logits, const Tensor& labels, const Tensor& rows) {
  return hits_of("correct", logits, labels, rows);
}

double accuracy(const Tensor& logits, const Tensor& labels, const Tensor& rows) {
  const Tensor hits = hits_of("accuracy", logits, labels, rows);
  return hits.item() / static_cast<double>(rows.defined() ? rows.numel() : logits.size(0));
}

}  // namespace lipgrad
