#include <lipgrad/ops/loss.h>

#include <lipgrad/core/check.h>
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
  if (rows.defined()) {
    LIPGRAD_CHECK(rows.rank() == 1 && is_index(rows),
                  "{}: expects rows as one i32 or i64 vector, got {} of shape {}", op, rows.dtype(),
                  rows.shape());
    LIPGRAD_CHECK(rows.device() == logits.device(),
                  "{}: logits on {}, rows on {}; move one with to()", op, logits.device(),
                  rows.device());
  }
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

Tensor bce_with_logits(const Tensor& logits, const Tensor& targets) {
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
