#include <lipgrad/vision/dense_attention.h>

#include <cmath>
#include <vector>

#include <lipgrad/core/check.h>
#include <lipgrad/core/launch.h>
#include <lipgrad/core/op.h>
#include <lipgrad/core/optional_data.h>
#include <lipgrad/ops/kernels/dropout.h>
#include <lipgrad/vision/kernels/dense_attention.h>

namespace lipgrad {
namespace {

// Inputs: tau, nu, bias (each may be undefined), then qkv, or q, k and v.
struct DenseAttention {
  static constexpr auto name = "dense_attention";
  DenseForm form;
  Tensor regions;

  Tensor forward(Ctx& ctx, Inputs in) const {
    const Tensor& x = in[3];
    Tensor out =
        empty({form.batch, form.tokens, form.heads * form.features}, x.dtype(), x.device());
    Tensor stats = empty({form.batch, form.heads, 2, form.tokens}, x.dtype(), x.device());
    visit_float(name, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      LIPGRAD_LAUNCH(x.device(), dense_attention_forward, form, input<T>(in), out.mutable_data<T>(),
                     stats.mutable_data<T>());
    });
    for (std::size_t i = 0; i < in.size(); ++i) ctx.save(in[i]);
    ctx.save(stats);
    return out;
  }

  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    std::vector<Tensor> in;
    for (std::size_t i = 0; i < gx.size(); ++i) in.push_back(ctx.saved(i));
    const Tensor& stats = ctx.saved(gx.size());
    bool rows = false;
    for (std::size_t i = 3; i < gx.size(); ++i) rows = rows || ctx.needs_grad(i);
    std::vector<Tensor> grads(gx.size());
    for (std::size_t i = 0; i < gx.size(); ++i)
      if (i < 3 ? ctx.needs_grad(i) : rows) grads[i] = empty_like(in[i]);
    visit_float(name, gy.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      DenseGrads<T> grad;
      grad.tau = mutable_data_or_null<T>(grads[0]);
      grad.nu = mutable_data_or_null<T>(grads[1]);
      grad.bias = mutable_data_or_null<T>(grads[2]);
      if (rows) {
        grad.q = grads[3].mutable_data<T>();
        grad.k = in.size() == 6 ? grads[4].mutable_data<T>() : grad.q + width();
        grad.v = in.size() == 6 ? grads[5].mutable_data<T>() : grad.q + 2 * width();
      }
      LIPGRAD_LAUNCH(gy.device(), dense_attention_backward, form, input<T>(Inputs(in)),
                     stats.data<T>(), gy.data<T>(), grad);
    });
    for (std::size_t i = 0; i < gx.size(); ++i)
      if (ctx.needs_grad(i)) gx[i] = grads[i];
  }

 private:
  std::int64_t width() const { return form.heads * form.features; }

  template <class T>
  DenseInput<T> input(Inputs in) const {
    DenseInput<T> input;
    input.tau = data_or_null<T>(in[0]);
    input.nu = data_or_null<T>(in[1]);
    input.bias = data_or_null<T>(in[2]);
    input.q = in[3].data<T>();
    input.k = in.size() == 6 ? in[4].data<T>() : input.q + width();
    input.v = in.size() == 6 ? in[5].data<T>() : input.q + 2 * width();
    input.row = in.size() == 6 ? width() : 3 * width();
    input.regions = data_or_null<std::int32_t>(regions);
    return input;
  }
};

// One number or one a head; the step from head to head.
std::int64_t check_numbers(const char* what, const Tensor& numbers, const Tensor& x,
                           std::int64_t heads) {
  constexpr auto op = DenseAttention::name;
  if (!numbers.defined()) return 0;
  check_same_kind(op, {&x, &numbers});
  LIPGRAD_CHECK(numbers.numel() == 1 || numbers.numel() == heads,
                "{}: {} must be one number or one for each of {} heads, got {}", op, what, heads,
                numbers.shape());
  return numbers.numel() == 1 ? 0 : 1;
}

// x: qkv or q, whose sizes B, T, H and D the form holds.
DenseAttention make(DenseForm form, const Tensor& x, const DenseAttentionOptions& options,
                    const DenseAttentionTerms& terms, Mode mode) {
  constexpr auto op = DenseAttention::name;
  DenseAttention made;
  LIPGRAD_CHECK(form.tokens >= 1 && form.heads >= 1 && form.features >= 1,
                "{}: tokens, heads and features must be at least 1, got {}", op, x.shape());
  LIPGRAD_CHECK(options.heads == 0 || options.heads == form.heads,
                "{}: options say {} heads, the shape {} says {}", op, options.heads, x.shape(),
                form.heads);
  form.cosine = options.score == AttentionScore::cosine;
  form.normalise_v = options.normalise_v;
  form.clamp = options.eps_mode == LengthEps::clamp;
  form.eps = options.eps;
  LIPGRAD_CHECK(options.eps > 0 && std::isfinite(options.eps), "{}: eps must be positive, got {}",
                op, options.eps);
  form.tau =
      options.tau.value_or(form.cosine ? 1 : 1 / std::sqrt(static_cast<double>(form.features)));
  form.nu = options.nu;
  LIPGRAD_CHECK(std::isfinite(form.tau) && std::isfinite(form.nu),
                "{}: tau and nu must be finite, got {} and {}", op, form.tau, form.nu);
  LIPGRAD_CHECK(!options.tau || !terms.tau.defined(), "{}: tau is both a number and a tensor", op);
  LIPGRAD_CHECK(options.nu == 1 || !terms.nu.defined(), "{}: nu is both a number and a tensor", op);
  form.tau_step = check_numbers("tau", terms.tau, x, form.heads);
  form.nu_step = check_numbers("nu", terms.nu, x, form.heads);
  if (terms.bias.defined()) {
    check_same_kind(op, {&x, &terms.bias});
    LIPGRAD_CHECK(terms.bias.shape() == Shape({form.heads, form.tokens, form.tokens}),
                  "{}: bias must be ({}, {}, {}), got {}", op, form.heads, form.tokens, form.tokens,
                  terms.bias.shape());
  }
  if (const Tensor& regions = terms.regions; regions.defined()) {
    LIPGRAD_CHECK(
        (regions.dtype() == i32 || regions.dtype() == u8) && regions.device() == x.device(),
        "{}: regions must be i32 or u8 on {}, got {} on {}", op, x.device(), regions.dtype(),
        regions.device());
    LIPGRAD_CHECK(regions.rank() == 2 && regions.size(1) == form.tokens && regions.size(0) >= 1 &&
                      form.batch % regions.size(0) == 0,
                  "{}: regions must be (windows, {}) with {} a multiple of windows, got {}", op,
                  form.tokens, form.batch, regions.shape());
    made.regions = regions.to(i32);
    form.windows = regions.size(0);
  }
  const double p = options.dropout;
  LIPGRAD_CHECK(p >= 0 && p <= 1, "{}: dropout must be from 0 to 1, got {}", op, p);
  if (mode.is_train() && p > 0) {
    form.dropout = true;
    form.threshold = dropout_threshold(p);
    form.keep_scale = p < 1 ? 1 / (1 - p) : 0;
    form.seed = mode.rng().seed();
    form.draw = mode.rng().take_draw();
  }
  made.form = form;
  return made;
}

}  // namespace

Tensor dense_attention(const Tensor& qkv, const DenseAttentionOptions& options,
                       const DenseAttentionTerms& terms, Mode mode) {
  constexpr auto op = DenseAttention::name;
  check_same_kind(op, {&qkv});
  DenseForm form;
  if (qkv.rank() == 3) {
    LIPGRAD_CHECK(options.heads >= 1 && qkv.size(2) % (3 * options.heads) == 0,
                  "{}: qkv {} does not split into 3 times {} heads", op, qkv.shape(),
                  options.heads);
    form.heads = options.heads;
    form.features = qkv.size(2) / (3 * options.heads);
  } else {
    LIPGRAD_CHECK(qkv.rank() == 5 && qkv.size(2) == 3,
                  "{}: qkv must be (B, T, 3, H, D) or (B, T, 3 H D), got {}", op, qkv.shape());
    form.heads = qkv.size(3);
    form.features = qkv.size(4);
  }
  form.batch = qkv.size(0);
  form.tokens = qkv.size(1);
  return apply(make(form, qkv, options, terms, mode), terms.tau, terms.nu, terms.bias, qkv);
}

Tensor dense_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                       const DenseAttentionOptions& options, const DenseAttentionTerms& terms,
                       Mode mode) {
  constexpr auto op = DenseAttention::name;
  check_same_kind(op, {&q, &k, &v});
  LIPGRAD_CHECK(q.rank() == 4 && q.shape() == k.shape() && q.shape() == v.shape(),
                "{}: q, k and v must be (B, T, H, D) all three, got {}, {} and {}", op, q.shape(),
                k.shape(), v.shape());
  DenseForm form;
  form.batch = q.size(0);
  form.tokens = q.size(1);
  form.heads = q.size(2);
  form.features = q.size(3);
  return apply(make(form, q, options, terms, mode), terms.tau, terms.nu, terms.bias, q, k, v);
}

}  // namespace lipgrad
