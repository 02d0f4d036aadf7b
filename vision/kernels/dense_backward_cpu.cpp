#include <lipgrad/vision/kernels/dense_attention.h>

#include <lipgrad/core/threads.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <lipgrad/vision/kernels/dense_backward_cpu.cpp>
#include <hwy/foreach_target.h>

#include <lipgrad/vision/kernels/dense-inl.h>

HWY_BEFORE_NAMESPACE();
namespace lipgrad::cpu::HWY_NAMESPACE {
namespace {

// One thread's memory for a head, and the pass over it. With g_ij = <grad_out_i, v'_j>:
//   centre_i = sum_j keep p g,  ds_ij = nu p_ij (keep_ij g_ij - centre_i)
//   dq'_i = tau sum_j ds k'_j,  dk'_j = tau sum_i ds q'_i,  dv'_j = nu sum_i keep p grad_out_i
//   dtau = sum_i <q'_i, sum_j ds k'_j>,  dnu = sum_i centre_i
template <class T>
class Backward {
 public:
  Backward(const DenseForm& form, const DenseInput<T>& in, const T* stats, const T* grad_out,
           const DenseGrads<T>& grad)
      : form_(form),
        in_(in),
        stats_(stats),
        grad_out_(grad_out),
        grad_(grad),
        tokens_(form.tokens),
        features_(form.features),
        width_(whole_vectors<T>(features_)),
        columns_(whole_vectors<T>(tokens_)),
        rows_(query_rows<T>(tokens_)),
        arrays_(size()),
        q_(arrays_.take(tokens_ * width_)),
        k_(arrays_.take(tokens_ * width_)),
        v_(arrays_.take(form.normalise_v ? tokens_ * width_ : 0)),
        gy_(arrays_.take(tokens_ * width_)),
        dq_(arrays_.take(rows_ * width_)),
        dk_(arrays_.take(tokens_ * width_)),
        dv_(arrays_.take(tokens_ * width_)),
        columns_of_k_(arrays_.take(features_ * columns_)),
        columns_of_v_(arrays_.take(features_ * columns_)),
        weight_(arrays_.take(rows_ * columns_)),
        slope_(arrays_.take(rows_ * columns_)),
        inverse_q_(arrays_.take(columns_)),
        inverse_k_(arrays_.take(columns_)),
        inverse_v_(arrays_.take(columns_)),
        keep_(arrays_.take(columns_)),
        labels_(static_cast<std::size_t>(columns_)),
        words_(static_cast<std::size_t>(form.keep_row())) {}

  struct Sums {
    double tau = 0, nu = 0;
  };

  // The gradients of the head of number `unit` = b H + h, and its sums; adds its part to bias(T,
  // T), or writes that where `first_window`. Asks for the rows of the head of number `next`, if
  // that is not the same.
  Sums run(std::int64_t unit, std::int64_t next, T* bias, bool first_window) {
    const std::int64_t b = unit / form_.heads, h = unit % form_.heads;
    const Head<T> head(form_, in_, b, h, labels_.data());
    const std::int64_t at = place(unit, in_.row), soon = place(next, in_.row),
                       out_row = form_.heads * features_;
    Sums sums;
    read(in_.q + at, form_.cosine, q_, inverse_q_);
    read(in_.k + at, form_.cosine, k_, inverse_k_);
    transpose_rows(tokens_, features_, k_, width_, columns_of_k_, columns_);
    if (form_.normalise_v) {
      read(in_.v + at, true, v_, inverse_v_);
      transpose_rows(tokens_, features_, v_, width_, columns_of_v_, columns_);
    } else {
      transpose_rows(tokens_, features_, in_.v + at, in_.row, columns_of_v_, columns_);
    }
    copy_rows(tokens_, features_, grad_out_ + place(unit, out_row), out_row, gy_, width_);
    const T* top = stats_ + (b * form_.heads + h) * 2 * tokens_;
    for (std::int64_t first = 0; first < tokens_; first += rows_) {
      const std::int64_t count = std::min(rows_, tokens_ - first);
      const T *q = q_ + first * width_, *gy = gy_ + first * width_;
      product(
          Product<T>{features_, q, width_, 1, columns_of_k_, columns_, weight_, columns_, false},
          count, columns_);
      product(
          Product<T>{features_, gy, width_, 1, columns_of_v_, columns_, slope_, columns_, false},
          count, columns_);
      for (std::int64_t i = first; i < first + count; ++i) {
        const std::int64_t r = (i - first) * columns_;
        if (next != unit) {
          prefetch_row(in_.q + soon + i * in_.row, features_);
          prefetch_row(in_.k + soon + i * in_.row, features_);
          prefetch_row(in_.v + soon + i * in_.row, features_);
          prefetch_row(grad_out_ + place(next, out_row) + i * out_row, features_);
        }
        if (grad_.q) {
          prefetch_row(grad_.q + at + i * in_.row, features_);
          prefetch_row(grad_.k + at + i * in_.row, features_);
          prefetch_row(grad_.v + at + i * in_.row, features_);
        }
        sums.nu += slopes(head, i, top[i], top[tokens_ + i], weight_ + r, slope_ + r);
        if (bias) add(slope_ + r, bias + i * tokens_, first_window);
      }
      product(Product<T>{tokens_, slope_, columns_, 1, k_, width_, dq_, width_, false}, count,
              width_);
      product(Product<T>{count, slope_, 1, columns_, q, width_, dk_, width_, first > 0}, tokens_,
              width_);
      product(Product<T>{count, weight_, 1, columns_, gy, width_, dv_, width_, first > 0}, tokens_,
              width_);
      if (grad_.tau) {
        for (std::int64_t i = 0; i < count; ++i)
          sums.tau += dot(features_, q + i * width_, dq_ + i * width_);
      }
      if (grad_.q)
        finish(count, head.tau, dq_, q, form_.cosine ? inverse_q_ + first : nullptr,
               grad_.q + at + first * in_.row);
    }
    if (!grad_.q) return sums;
    finish(tokens_, head.tau, dk_, k_, form_.cosine ? inverse_k_ : nullptr, grad_.k + at);
    finish(tokens_, head.nu, dv_, v_, form_.normalise_v ? inverse_v_ : nullptr, grad_.v + at);
    return sums;
  }

 private:
  std::int64_t place(std::int64_t unit, std::int64_t row) const {
    return unit / form_.heads * tokens_ * row + unit % form_.heads * features_;
  }
  std::int64_t size() const {
    const auto rounded = Arrays<T>::rounded;
    return (form_.normalise_v ? 6 : 5) * rounded(tokens_ * width_) + rounded(rows_ * width_) +
           2 * rounded(features_ * columns_) + 2 * rounded(rows_ * columns_) +
           4 * rounded(columns_);
  }

  void read(const T* from, bool normalise, T* to, T* inverse) const {
    if (normalise) {
      normal_rows(form_, from, in_.row, to, width_, inverse);
    } else {
      copy_rows(tokens_, features_, from, in_.row, to, width_);
    }
  }
  void finish(std::int64_t count, T factor, const T* raw, const T* unit, const T* inverse,
              T* grad) const {
    finish_rows(count, features_, factor, raw, unit, inverse, width_, grad, in_.row);
  }

  // weight: products with keys become keep p; slope: g becomes ds. Returns centre.
  T slopes(const Head<T>& head, std::int64_t i, T top, T inverse, T* weight, T* slope) {
    using V = Simd<T>;
    const std::int64_t lanes = V::lanes();
    const V shift{double(top)}, scale{double(inverse)}, nu{double(head.nu)};
    V sum(0.0);
    if (form_.dropout) draw_keep(form_, head, i, words_.data(), keep_);
    for (std::int64_t j = 0; j < columns_; j += lanes) {
      const V p = exp_below(head.score(load(weight + j), i, j) - shift) * scale;
      V g = load(slope + j);
      if (form_.dropout) {
        g = g * load(keep_ + j);
        store(g, slope + j);
      }
      store(p, weight + j);
      sum = fma(p, g, sum);
    }
    const T centre = sum_of_lanes(sum);
    const V middle{double(centre)};
    for (std::int64_t j = 0; j < columns_; j += lanes) {
      const V p = load(weight + j);
      store(p * nu * (load(slope + j) - middle), slope + j);
      if (form_.dropout) store(p * load(keep_ + j), weight + j);
    }
    return centre;
  }

  void add(const T* row, T* bias, bool first_window) const {
    const std::int64_t lanes = Simd<T>::lanes();
    for (std::int64_t j = 0; j < tokens_; j += lanes) {
      const std::int64_t count = std::min(lanes, tokens_ - j);
      put(first_window ? load(row + j) : get(bias + j, count) + load(row + j), bias + j, count);
    }
  }

  const DenseForm& form_;
  const DenseInput<T>& in_;
  const T *stats_, *grad_out_;
  const DenseGrads<T>& grad_;
  std::int64_t tokens_, features_, width_, columns_, rows_;
  Arrays<T> arrays_;
  T *q_, *k_, *v_, *gy_, *dq_, *dk_, *dv_, *columns_of_k_, *columns_of_v_, *weight_, *slope_,
      *inverse_q_, *inverse_k_, *inverse_v_, *keep_;
  std::vector<LabelOf<T>> labels_;
  std::vector<std::uint32_t> words_;
};

// Each head leaves its sums, and some windows together those of the bias, to be added in order.
template <class T>
void backward(const DenseForm& form, const DenseInput<T>& in, const T* stats, const T* grad_out,
              const DenseGrads<T>& grad) {
  const std::int64_t heads = form.heads, units = form.batch * heads,
                     size = heads * form.tokens * form.tokens;
  const std::int64_t windows = (form.batch + bias_parts - 1) / bias_parts,
                     parts = windows > 0 ? (form.batch + windows - 1) / windows : 0;
  const bool shared = grad.bias && windows > 1;
  using Sums = typename Backward<T>::Sums;
  std::vector<Sums> sums(static_cast<std::size_t>(units));
  const auto bias = hwy::AllocateAligned<T>(
      static_cast<std::size_t>(grad.bias ? std::max<std::int64_t>(1, parts * size) : 1));
  parallel_for(units, shared ? windows * heads : heads_per_block(form),
               [&](std::int64_t begin, std::int64_t end) {
                 Backward<T> pass(form, in, stats, grad_out, grad);
                 for (std::int64_t unit = begin; unit < end; ++unit) {
                   const std::int64_t b = unit / heads, h = unit % heads;
                   T* to = grad.bias
                               ? bias.get() + b / windows * size + h * form.tokens * form.tokens
                               : nullptr;
                   sums[static_cast<std::size_t>(unit)] =
                       pass.run(unit, std::min(unit + 1, end - 1), to, b % windows == 0);
                 }
               });
  if (grad.bias) {
    parallel_for(heads * form.tokens, 16, [&](std::int64_t begin, std::int64_t end) {
      T* to = grad.bias + begin * form.tokens;
      const std::int64_t count = (end - begin) * form.tokens;
      std::fill(to, to + count, T(0));
      for (std::int64_t part = 0; part < parts; ++part) {
        const T* from = bias.get() + part * size + begin * form.tokens;
        for (std::int64_t j = 0; j < count; ++j) to[j] += from[j];
      }
    });
  }
  const auto total = [&](T* to, std::int64_t step, double Sums::*member) {
    if (!to) return;
    std::vector<double> all(static_cast<std::size_t>(step == 0 ? 1 : heads));
    for (std::int64_t unit = 0; unit < units; ++unit)
      all[static_cast<std::size_t>(unit % heads * step)] +=
          sums[static_cast<std::size_t>(unit)].*member;
    for (std::size_t i = 0; i < all.size(); ++i) to[i] = static_cast<T>(all[i]);
  };
  total(grad.tau, form.tau_step, &Sums::tau);
  total(grad.nu, form.nu_step, &Sums::nu);
}

}  // namespace

void backward_f32(const DenseForm& form, const DenseInput<float>& in, const float* stats,
                  const float* grad_out, const DenseGrads<float>& grad) {
  backward(form, in, stats, grad_out, grad);
}
void backward_f64(const DenseForm& form, const DenseInput<double>& in, const double* stats,
                  const double* grad_out, const DenseGrads<double>& grad) {
  backward(form, in, stats, grad_out, grad);
}

}  // namespace lipgrad::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lipgrad::cpu {

HWY_EXPORT(backward_f32);
HWY_EXPORT(backward_f64);

template <>
void dense_attention_backward(const DenseForm& form, const DenseInput<float>& in,
                              const float* stats, const float* grad_out,
                              const DenseGrads<float>& grad) {
  HWY_DYNAMIC_DISPATCH(backward_f32)(form, in, stats, grad_out, grad);
}
template <>
void dense_attention_backward(const DenseForm& form, const DenseInput<double>& in,
                              const double* stats, const double* grad_out,
                              const DenseGrads<double>& grad) {
  HWY_DYNAMIC_DISPATCH(backward_f64)(form, in, stats, grad_out, grad);
}

}  // namespace lipgrad::cpu
#endif
