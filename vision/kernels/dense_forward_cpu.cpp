#include <lipgrad/vision/kernels/dense_attention.h>

#include <lipgrad/core/threads.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <lipgrad/vision/kernels/dense_forward_cpu.cpp>
#include <hwy/foreach_target.h>

#include <lipgrad/vision/kernels/dense-inl.h>

HWY_BEFORE_NAMESPACE();
namespace lipgrad::cpu::HWY_NAMESPACE {
namespace {

// One thread's memory for a head, and the pass over it.
template <class T>
class Forward {
 public:
  Forward(const DenseForm& form, const DenseInput<T>& in, T* out, T* stats)
      : form_(form),
        in_(in),
        out_(out),
        stats_(stats),
        tokens_(form.tokens),
        features_(form.features),
        width_(whole_vectors<T>(features_)),
        columns_(whole_vectors<T>(tokens_)),
        rows_(query_rows<T>(tokens_)),
        arrays_(size()),
        q_(arrays_.take(tokens_ * width_)),
        k_(arrays_.take(form.cosine ? tokens_ * width_ : 0)),
        v_(arrays_.take(tokens_ * width_)),
        columns_of_k_(arrays_.take(features_ * columns_)),
        score_(arrays_.take(rows_ * columns_)),
        sum_(arrays_.take(rows_ * width_)),
        inverse_(arrays_.take(columns_)),
        keep_(arrays_.take(columns_)),
        labels_(static_cast<std::size_t>(columns_)),
        words_(static_cast<std::size_t>(form.keep_row())) {}

  // The head of number `unit` = b H + h; asks for the rows of the one of number `next`, if that is
  // not the same.
  void run(std::int64_t unit, std::int64_t next) {
    const std::int64_t b = unit / form_.heads, h = unit % form_.heads;
    const Head<T> head(form_, in_, b, h, labels_.data());
    const std::int64_t at = place(unit), soon = place(next);
    read(in_.q + at, form_.cosine, q_);
    read(in_.v + at, form_.normalise_v, v_);
    if (form_.cosine) {
      read(in_.k + at, true, k_);
      transpose_rows(tokens_, features_, k_, width_, columns_of_k_, columns_);
    } else {
      transpose_rows(tokens_, features_, in_.k + at, in_.row, columns_of_k_, columns_);
    }
    T* top = stats_ + (b * form_.heads + h) * 2 * tokens_;
    const std::int64_t out_row = form_.heads * features_;
    T* out = out_ + b * tokens_ * out_row + h * features_;
    for (std::int64_t first = 0; first < tokens_; first += rows_) {
      const std::int64_t count = std::min(rows_, tokens_ - first);
      product(Product<T>{features_, q_ + first * width_, width_, 1, columns_of_k_, columns_, score_,
                         columns_, false},
              count, columns_);
      for (std::int64_t i = first; i < first + count; ++i) {
        prefetch_row(out + i * out_row, features_);
        if (next != unit) {
          prefetch_row(in_.q + soon + i * in_.row, features_);
          prefetch_row(in_.k + soon + i * in_.row, features_);
          prefetch_row(in_.v + soon + i * in_.row, features_);
        }
        weights(head, i, score_ + (i - first) * columns_, top[i], top[tokens_ + i]);
      }
      product(Product<T>{tokens_, score_, columns_, 1, v_, width_, sum_, width_, false}, count,
              width_);
      for (std::int64_t i = first; i < first + count; ++i)
        write(sum_ + (i - first) * width_, head.nu * top[tokens_ + i], out + i * out_row);
    }
  }

 private:
  std::int64_t place(std::int64_t unit) const {
    return unit / form_.heads * tokens_ * in_.row + unit % form_.heads * features_;
  }
  std::int64_t size() const {
    const auto rounded = Arrays<T>::rounded;
    return (form_.cosine ? 3 : 2) * rounded(tokens_ * width_) + rounded(features_ * columns_) +
           rounded(rows_ * columns_) + rounded(rows_ * width_) + 2 * rounded(columns_);
  }

  void read(const T* from, bool normalise, T* to) {
    if (normalise) {
      normal_rows(form_, from, in_.row, to, width_, inverse_);
    } else {
      copy_rows(tokens_, features_, from, in_.row, to, width_);
    }
  }

  // Products of query i with all keys become exp(score - top), times what dropout says.
  void weights(const Head<T>& head, std::int64_t i, T* row, T& top, T& inverse) {
    using V = Simd<T>;
    const std::int64_t lanes = V::lanes();
    V most(-std::numeric_limits<double>::infinity());
    for (std::int64_t j = 0; j < columns_; j += lanes) {
      const V s = head.score(load(row + j), i, j);
      store(s, row + j);
      most = quick_max(most, s);
    }
    top = quick_max_of_lanes(most);
    if (top == -std::numeric_limits<T>::infinity()) {
      bool any_nan = false;  // which quick_max may lose
      for (std::int64_t j = 0; j < tokens_; ++j) any_nan = any_nan || row[j] != row[j];
      if (!any_nan) {
        std::fill(row, row + columns_, T(0));
        top = inverse = 0;
        return;
      }
    }
    const V shift{double(top)};
    V sum(0.0);
    for (std::int64_t j = 0; j < columns_; j += lanes) {
      const V e = exp_below(load(row + j) - shift);
      store(e, row + j);
      sum = sum + e;
    }
    inverse = T(1) / sum_of_lanes(sum);
    if (!form_.dropout) return;
    draw_keep(form_, head, i, words_.data(), keep_);
    for (std::int64_t j = 0; j < columns_; j += lanes)
      store(load(row + j) * load(keep_ + j), row + j);
  }

  void write(const T* sum, T factor, T* out) const {
    const std::int64_t lanes = Simd<T>::lanes();
    const Simd<T> by{double(factor)};
    for (std::int64_t c = 0; c < features_; c += lanes)
      put(load(sum + c) * by, out + c, std::min(lanes, features_ - c));
  }

  const DenseForm& form_;
  const DenseInput<T>& in_;
  T *out_, *stats_;
  std::int64_t tokens_, features_, width_, columns_, rows_;
  Arrays<T> arrays_;
  T *q_, *k_, *v_, *columns_of_k_, *score_, *sum_, *inverse_, *keep_;
  std::vector<LabelOf<T>> labels_;
  std::vector<std::uint32_t> words_;
};

template <class T>
void forward(const DenseForm& form, const DenseInput<T>& in, T* out, T* stats) {
  parallel_for(form.batch * form.heads, heads_per_block(form),
               [&](std::int64_t begin, std::int64_t end) {
                 Forward<T> pass(form, in, out, stats);
                 for (std::int64_t i = begin; i < end; ++i) pass.run(i, std::min(i + 1, end - 1));
               });
}

}  // namespace

void forward_f32(const DenseForm& form, const DenseInput<float>& in, float* out, float* stats) {
  forward(form, in, out, stats);
}
void forward_f64(const DenseForm& form, const DenseInput<double>& in, double* out, double* stats) {
  forward(form, in, out, stats);
}

}  // namespace lipgrad::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lipgrad::cpu {

HWY_EXPORT(forward_f32);
HWY_EXPORT(forward_f64);

template <>
void dense_attention_forward(const DenseForm& form, const DenseInput<float>& in, float* out,
                             float* stats) {
  HWY_DYNAMIC_DISPATCH(forward_f32)(form, in, out, stats);
}
template <>
void dense_attention_forward(const DenseForm& form, const DenseInput<double>& in, double* out,
                             double* stats) {
  HWY_DYNAMIC_DISPATCH(forward_f64)(form, in, out, stats);
}

}  // namespace lipgrad::cpu
#endif
