#include <lipgrad/ops/loss.h>

#include <algorithm>

#include <lipgrad/core/check.h>
#include <lipgrad/core/op.h>
#include <lipgrad/ops/kernels/loss.h>

namespace lipgrad {
namespace {

// Calls f with the labels as const int32* or const int64*.
template <class F>
void visit_labels(const Tensor& labels, F&& f) {
  if (labels.dtype() == i32) {
    f(labels.data<std::int32_t>());
  } else {
    f(labels.data<std::int64_t>());
  }
}

const std::int64_t* rows_or_null(const Tensor& rows) {
  return rows.defined() ? rows.data<std::int64_t>() : nullptr;
}

// Returns the number of rows chosen.
std::int64_t check_classification(const char* op, const Tensor& logits, const Tensor& labels,
                                  const Tensor& rows) {
  LIPGRAD_CHECK(logits.defined() && logits.rank() == 2 && is_floating(logits.dtype()),
                "{}: logits must be f32 or f64 of shape (N, C), got {}", op, logits.str());
  const std::int64_t n = logits.size(0), classes = logits.size(1);
  LIPGRAD_CHECK(labels.defined() && (labels.dtype() == i32 || labels.dtype() == i64) &&
                    labels.shape() == Shape{n},
                "{}: labels must be i32 or i64 of shape ({}), got {}", op, n, labels.str());
  LIPGRAD_CHECK(!rows.defined() || (rows.dtype() == i64 && rows.rank() == 1),
                "{}: rows must be i64 of rank 1, got {}", op, rows.str());
  const std::int64_t count = rows.defined() ? rows.numel() : n;
  LIPGRAD_CHECK(count > 0, "{}: no row is chosen: there is nothing to average", op);
  const std::int64_t* row = rows_or_null(rows);
  visit_labels(labels, [&](const auto* label) {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t r = row ? row[i] : i;
      LIPGRAD_CHECK(r >= 0 && r < n, "{}: row {} (entry {}) is not in [0, {})", op, r, i, n);
      LIPGRAD_CHECK(label[r] >= 0 && label[r] < classes, "{}: label {} of row {} is not in [0, {})",
                    op, label[r], r, classes);
    }
  });
  return count;
}

struct CrossEntropy {
  static constexpr auto name = "cross_entropy";
  std::int64_t count;
  double smoothing;

  Tensor forward(Ctx& ctx, Inputs in) const {
    const Tensor &x = in[0], &labels = in[1], &rows = in[2];
    Tensor loss = empty({}, x.dtype(), x.device()), lse = empty({count}, x.dtype(), x.device());
    visit_float(name, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      visit_labels(labels, [&](const auto* label) {
        LIPGRAD_LAUNCH(x.device(), cross_entropy, count, x.size(1), x.data<T>(), rows_or_null(rows),
                       label, smoothing, lse.mutable_data<T>(), loss.mutable_data<T>());
      });
    });
    for (const Tensor& saved : {x, labels, rows, lse}) ctx.save(saved);
    return loss;
  }

  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    const Tensor &x = ctx.saved(0), &labels = ctx.saved(1), &rows = ctx.saved(2),
                 &lse = ctx.saved(3);
    Tensor g = empty_like(x);
    visit_float(name, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      visit_labels(labels, [&](const auto* label) {
        LIPGRAD_LAUNCH(x.device(), cross_entropy_backward, x.size(0), count, x.size(1), x.data<T>(),
                       rows_or_null(rows), label, smoothing, lse.data<T>(), gy.data<T>(),
                       g.mutable_data<T>());
      });
    });
    gx[0] = std::move(g);
  }
};

// Two inputs of one shape, one number out.
struct BceWithLogits {
  static constexpr auto name = "bce_with_logits";
  template <class T>
  static void value(Device device, std::int64_t n, const T* x, const T* t, T* loss) {
    LIPGRAD_LAUNCH(device, bce_with_logits, n, x, t, loss);
  }
  template <class T>
  static void gradient(Device device, std::int64_t n, const T* x, const T* t, const T* gy, T* gx,
                       T* gt) {
    LIPGRAD_LAUNCH(device, bce_with_logits_backward, n, x, t, gy, gx, gt);
  }
};

struct Mse {
  static constexpr auto name = "mse";
  template <class T>
  static void value(Device device, std::int64_t n, const T* x, const T* t, T* loss) {
    LIPGRAD_LAUNCH(device, mse, n, x, t, loss);
  }
  template <class T>
  static void gradient(Device device, std::int64_t n, const T* x, const T* t, const T* gy, T* gx,
                       T* gt) {
    LIPGRAD_LAUNCH(device, mse_backward, n, x, t, gy, gx, gt);
  }
};

template <class Loss>
struct PairLoss {
  static constexpr auto name = Loss::name;

  Tensor forward(Ctx& ctx, Inputs in) const {
    const Tensor &x = in[0], &t = in[1];
    ctx.save(x);
    ctx.save(t);
    Tensor loss = empty({}, x.dtype(), x.device());
    visit_float(name, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      Loss::template value<T>(x.device(), x.numel(), x.data<T>(), t.data<T>(),
                              loss.mutable_data<T>());
    });
    return loss;
  }

  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    const Tensor &x = ctx.saved(0), &t = ctx.saved(1);
    if (ctx.needs_grad(0)) gx[0] = empty_like(x);
    if (ctx.needs_grad(1)) gx[1] = empty_like(x);
    visit_float(name, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      Loss::template gradient<T>(x.device(), x.numel(), x.data<T>(), t.data<T>(), gy.data<T>(),
                                 gx[0].defined() ? gx[0].template mutable_data<T>() : nullptr,
                                 gx[1].defined() ? gx[1].template mutable_data<T>() : nullptr);
    });
  }
};

template <class Loss>
Tensor pair_loss(const Tensor& x, const Tensor& target) {
  check_same_kind(Loss::name, {&x, &target});
  LIPGRAD_CHECK(x.shape() == target.shape(), "{}: shapes {} and {} differ", Loss::name, x.shape(),
                target.shape());
  LIPGRAD_CHECK(x.numel() > 0, "{}: {} has no elements: there is nothing to average", Loss::name,
                x.shape());
  return apply(PairLoss<Loss>{}, x, target);
}

}  // namespace

Tensor cross_entropy(const Tensor& logits, const Tensor& labels,
                     const CrossEntropyOptions& options) {
  const std::int64_t count = check_classification("cross_entropy", logits, labels, options.rows);
  LIPGRAD_CHECK(options.label_smoothing >= 0 && options.label_smoothing <= 1,
                "cross_entropy: label smoothing must be from 0 to 1, got {}",
                options.label_smoothing);
  return apply(CrossEntropy{count, options.label_smoothing}, logits, labels, options.rows);
}

Tensor bce_with_logits(const Tensor& logits, const Tensor& targets) {
  return pair_loss<BceWithLogits>(logits, targets);
}
Tensor mse(const Tensor& x, const Tensor& target) { return pair_loss<Mse>(x, target); }

double accuracy(const Tensor& logits, const Tensor& labels, const Tensor& rows) {
  const std::int64_t count = check_classification("accuracy", logits, labels, rows);
  const Tensor x = logits.detach().to(cpu_device);
  const std::int64_t* row = rows_or_null(rows);
  std::int64_t right = 0;
  visit_float("accuracy", x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    visit_labels(labels, [&](const auto* label) {
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t r = row ? row[i] : i;
        const T* logit = x.data<T>() + r * x.size(1);
        right += std::max_element(logit, logit + x.size(1)) - logit == label[r];
      }
    });
  });
  return static_cast<double>(right) / static_cast<double>(count);
}

}  // namespace lipgrad
