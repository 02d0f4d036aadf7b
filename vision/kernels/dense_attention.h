#pragma once

// C++17, for host and device compilers alike. Fused multi-head attention of all tokens of a window
// (or image) to all, for B windows of T tokens, H heads of D features:
//
//   q', k' = q, k, or under `cosine` both divided by their lengths; v' = v, or v by its length
//   s_ij   = tau <q'_i, k'_j> + bias[h, i, j], or -infinity where regions of i and j differ
//   p_ij   = softmax over j of s_ij; zeros where every s_ij is -infinity
//   out_i  = nu sum over j of keep_ij p_ij v'_j
//
// The length of z is sqrt(|z|^2 + eps), or max(|z|, eps) under `clamp`. Scores are computed again
// in backward from two numbers a (window, head, query); a thread or block holds some rows of the
// scores of one (window, head) at a time. Work is cut, and sums are taken, by shapes alone.

#include <cstdint>

#include <lipgrad/core/kernel.h>
#include <lipgrad/core/philox.h>

namespace lipgrad {

struct DenseForm {
  std::int64_t batch = 0, tokens = 0, heads = 0, features = 0;  // B, T, H, D
  bool cosine = false, normalise_v = false, clamp = false;
  double eps = 0;
  double tau = 1, nu = 1;                  // where no tensor is given
  std::int64_t tau_step = 0, nu_step = 0;  // of the tensors: 0 one number, 1 one a head
  std::int64_t windows = 1;                // b has the regions of b % windows
  bool dropout = false;                    // element ((b H + h) T + i) T4 + j of the draw is that
  std::uint32_t threshold = 0;             // of p_ij, T4 = T rounded up to a multiple of 4
  double keep_scale = 1;
  std::uint64_t seed = 0, draw = 0;

  LIPGRAD_HD std::int64_t keep_row() const { return (tokens + 3) / 4 * 4; }
};

// Element (b, t, h, d) of q, k and v is (b T + t) row + h D + d elements behind the pointer; so is
// that of their gradients.
template <class T>
struct DenseInput {
  const T *q = nullptr, *k = nullptr, *v = nullptr;
  std::int64_t row = 0;
  const T *tau = nullptr, *nu = nullptr;  // null: those of the form
  const T* bias = nullptr;                // (H, T, T), or null
  const std::int32_t* regions = nullptr;  // (windows, T), or null
};

// What backward writes. Null: not wanted; q, k and v are written all or none.
template <class T>
struct DenseGrads {
  T *q = nullptr, *k = nullptr, *v = nullptr;
  T *tau = nullptr, *nu = nullptr;  // one number, or one a head
  T* bias = nullptr;
};

}  // namespace lipgrad

LIPGRAD_KERNELS(
    // out (B, T, H, D). stats (B, H, 2, T): the largest s_ij of query i and 1 / sum_j exp(s_ij -
    // largest), both 0 where all are -infinity.
    template <class T>
    void dense_attention_forward(const DenseForm& form, const DenseInput<T>& in, T* out, T* stats);
    template <class T>
    void dense_attention_backward(const DenseForm& form, const DenseInput<T>& in, const T* stats,
                                  const T* grad_out, const DenseGrads<T>& grad);)
