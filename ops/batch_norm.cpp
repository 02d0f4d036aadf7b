#include <lipgrad/ops/batch_norm.h>

#include <utility>
#include <vector>

#include <lipgrad/core/check.h>
#include <lipgrad/core/launch.h>
#include <lipgrad/core/op.h>
#include <lipgrad/core/optional_data.h>
#include <lipgrad/ops/init.h>
#include <lipgrad/ops/kernels/batch_norm.h>
#include <lipgrad/ops/shape.h>

namespace lipgrad {
namespace {

// Pieces of rows with moments of their own: offsets of a graph's nodes, or {0, N}.
using Offsets = std::vector<std::int64_t>;

Tensor moments_of(const char* name, const Tensor& x, const Offsets& offsets) {
  const std::int64_t cols = x.size(1), pieces = static_cast<std::int64_t>(offsets.size()) - 1;
  Tensor moments = zeros({pieces, 2, cols}, x.dtype(), x.device());
  visit_float(name, x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* to = moments.mutable_data<T>();
    for (std::int64_t g = 0; g < pieces; ++g) {
      const std::int64_t rows = offsets[g + 1] - offsets[g];
      if (rows > 0)
        LIPGRAD_LAUNCH(x.device(), column_moments, rows, cols, x.data<T>() + offsets[g] * cols,
                       to + g * 2 * cols);
    }
  });
  return moments;
}

struct ColumnNormOp {  // x, mean_scale, weight, bias
  double eps;
  bool constant;
  Offsets offsets;
  Tensor moments;  // (pieces, 2, C)
  static constexpr auto name = "batch_norm";

  template <class T>
  ColumnNorm<T> columns(const Tensor& mean_scale, const Tensor& weight, const Tensor& bias) const {
    return {data_or_null<T>(mean_scale), data_or_null<T>(weight), data_or_null<T>(bias)};
  }

  Tensor forward(Ctx& ctx, Inputs in) const {
    const Tensor& x = in[0];
    const std::int64_t cols = x.size(1);
    Tensor y = empty_like(x);
    visit_float(name, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (std::size_t g = 0; g + 1 < offsets.size(); ++g) {
        const std::int64_t rows = offsets[g + 1] - offsets[g], at = offsets[g] * cols;
        if (rows > 0)
          LIPGRAD_LAUNCH(x.device(), column_norm, rows, cols, eps, x.data<T>() + at,
                         moments.data<T>() + static_cast<std::int64_t>(g) * 2 * cols,
                         columns<T>(in[1], in[2], in[3]), y.mutable_data<T>() + at);
      }
    });
    for (std::size_t i = 0; i < 3; ++i) ctx.save(in[i]);
    return y;
  }

  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    const Tensor &x = ctx.saved(0), &mean_scale = ctx.saved(1), &weight = ctx.saved(2);
    const std::int64_t cols = x.size(1), pieces = static_cast<std::int64_t>(offsets.size()) - 1;
    if (ctx.needs_grad(0)) gx[0] = empty_like(x);
    // One row of sums for each piece; the engine adds them up.
    for (std::size_t i = 1; i < 4; ++i)
      if (ctx.needs_grad(i)) gx[i] = zeros({pieces, cols}, x.dtype(), x.device());
    visit_float(name, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (std::int64_t g = 0; g < pieces; ++g) {
        const std::int64_t rows = offsets[g + 1] - offsets[g], at = offsets[g] * cols;
        if (rows == 0) continue;
        const auto row = [&](std::size_t i) {
          return gx[i].defined() ? gx[i].template mutable_data<T>() + g * cols : nullptr;
        };
        LIPGRAD_LAUNCH(x.device(), column_norm_backward, rows, cols, eps, constant,
                       x.data<T>() + at, moments.data<T>() + g * 2 * cols,
                       columns<T>(mean_scale, weight, {}), gy.data<T>() + at,
                       gx[0].defined() ? gx[0].template mutable_data<T>() + at : nullptr,
                       ColumnNormGradients<T>{row(1), row(2), row(3)});
      }
    });
  }
};

void check_matrix(const char* name, const Tensor& x) {
  check_same_kind(name, {&x});
  LIPGRAD_CHECK(x.rank() == 2, "{}: expects a matrix (rows, features), got {}", name, x.shape());
}

// A vector for the columns of x, or undefined.
void check_columns(const char* name, const char* what, const Tensor& x, const Tensor& v) {
  if (!v.defined()) return;
  check_same_kind(name, {&x, &v});
  LIPGRAD_CHECK(v.shape() == Shape({x.size(1)}), "{}: {} {} does not fit the rows of {}", name,
                what, v.shape(), x.shape());
}

Offsets checked(const Tensor& x, const Tensor& offsets) {
  if (!offsets.defined()) return {0, x.size(0)};
  LIPGRAD_CHECK(offsets.device().is_cpu() && offsets.dtype() == i64 && offsets.rank() == 1 &&
                    offsets.numel() >= 1,
                "graph_norm: offsets must be i64 of rank 1 on the CPU, got {}", offsets.str());
  Offsets result = offsets.to_vector<std::int64_t>();
  bool good = result.front() == 0 && result.back() == x.size(0);
  for (std::size_t g = 1; good && g < result.size(); ++g) good = result[g - 1] <= result[g];
  LIPGRAD_CHECK(good, "graph_norm: offsets must go from 0 to {} and not descend", x.size(0));
  return result;
}

std::int64_t checked(std::int64_t features) {
  LIPGRAD_CHECK(features >= 1, "BatchNorm: features must be at least 1, got {}", features);
  return features;
}

}  // namespace

Tensor column_moments(const Tensor& x) {
  check_matrix("column_moments", x);
  LIPGRAD_CHECK(x.size(0) > 0, "column_moments: expects rows, got {}", x.shape());
  return moments_of("column_moments", x.detach(), {0, x.size(0)}).alias({2, x.size(1)}, 0);
}

Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps,
                  Tensor* moments) {
  check_matrix("batch_norm", x);
  check_columns("batch_norm", "weight", x, weight);
  check_columns("batch_norm", "bias", x, bias);
  const Offsets all{0, x.size(0)};
  const Tensor own = moments_of("batch_norm", x.detach(), all);
  if (moments) *moments = own.alias({2, x.size(1)}, 0);
  return apply(ColumnNormOp{eps, false, all, own}, x, Tensor(), weight, bias);
}

Tensor fixed_batch_norm(const Tensor& x, const Tensor& mean, const Tensor& variance,
                        const Tensor& weight, const Tensor& bias, double eps) {
  check_matrix("fixed_batch_norm", x);
  LIPGRAD_CHECK(mean.defined() && variance.defined(), "fixed_batch_norm: a moment is undefined");
  check_columns("fixed_batch_norm", "mean", x, mean);
  check_columns("fixed_batch_norm", "variance", x, variance);
  check_columns("fixed_batch_norm", "weight", x, weight);
  check_columns("fixed_batch_norm", "bias", x, bias);
  const Tensor moments = concat({mean.detach(), variance.detach()}, 0);
  return apply(ColumnNormOp{eps, true, {0, x.size(0)}, moments}, x, Tensor(), weight, bias);
}

Tensor graph_norm(const Tensor& x, const Tensor& mean_scale, const Tensor& weight,
                  const Tensor& bias, const Tensor& offsets, double eps) {
  check_matrix("graph_norm", x);
  check_columns("graph_norm", "mean_scale", x, mean_scale);
  check_columns("graph_norm", "weight", x, weight);
  check_columns("graph_norm", "bias", x, bias);
  Offsets pieces = checked(x, offsets);
  Tensor moments = moments_of("graph_norm", x.detach(), pieces);
  return apply(ColumnNormOp{eps, false, std::move(pieces), std::move(moments)}, x, mean_scale,
               weight, bias);
}

BatchNorm::BatchNorm(Module& parent, std::string name, std::int64_t features,
                     const BatchNormOptions& options)
    : Module(parent, std::move(name)),
      running_mean(*this, "running_mean", {checked(features)}, 0, options.dtype),
      running_var(*this, "running_var", {features}, 1, options.dtype),
      features_(features),
      eps_(options.eps),
      momentum_(options.momentum) {
  LIPGRAD_CHECK(eps_ >= 0, "BatchNorm: eps must not be negative, got {}", eps_);
  LIPGRAD_CHECK(momentum_ >= 0 && momentum_ <= 1, "BatchNorm: momentum must be from 0 to 1, got {}",
                momentum_);
  if (!options.affine) return;
  weight.emplace(*this, "weight", Shape{features}, init::ones(), options.dtype);
  bias.emplace(*this, "bias", Shape{features}, init::zeros(), options.dtype);
}

Tensor BatchNorm::forward(const Tensor& x, Mode mode) const {
  const ModuleScope scope(path());
  LIPGRAD_CHECK(x.rank() == 2 && x.size(1) == features_,
                "BatchNorm: made for rows of {} features, got {}", features_, x.shape());
  const Tensor scale = weight ? weight->value() : Tensor(), shift = bias ? bias->value() : Tensor();
  if (!mode.is_train()) return fixed_batch_norm(x, running_mean, running_var, scale, shift, eps_);
  LIPGRAD_CHECK(x.size(0) >= 2, "BatchNorm: training needs at least 2 rows, got {}", x.shape());
  Tensor moments;
  const Tensor y = batch_norm(x, scale, shift, eps_, &moments);
  visit_float("BatchNorm", x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    LIPGRAD_LAUNCH(x.device(), update_moments, features_, x.size(0), momentum_, moments.data<T>(),
                   running_mean.mutable_data<T>(), running_var.mutable_data<T>());
  });
  return y;
}

}  // namespace lipgrad
