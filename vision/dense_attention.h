#pragma once

#include <cstdint>
#include <optional>

#include <lipgrad/core/random.h>
#include <lipgrad/core/tensor.h>

namespace lipgrad {

enum class AttentionScore : std::uint8_t { dot, cosine };
// What the length of z is: sqrt(|z|^2 + eps), which is smooth, or max(|z|, eps).
enum class LengthEps : std::uint8_t { inside_root, clamp };

struct DenseAttentionOptions {
  // Of qkv (B, T, 3 C), which does not tell; 0 elsewhere, or the number that the shape says.
  std::int64_t heads = 0;
  AttentionScore score = AttentionScore::dot;
  bool normalise_v = false;
  // Of q and k under cosine, and of v under normalise_v. Positive.
  double eps = 1e-12;
  LengthEps eps_mode = LengthEps::clamp;
  // What scores are multiplied by, where no tensor is given. Unset: 1 / sqrt(D), or 1 for cosine.
  std::optional<double> tau{};
  // What the result is multiplied by, where no tensor is given.
  double nu = 1;
  // Probability that a weight is dropped in training mode.
  double dropout = 0;
};

// Operands that may be undefined. All but regions have gradients.
struct DenseAttentionTerms {
  Tensor bias{};       // (H, T, T): added to the scores of every window
  Tensor regions{};    // (W, T), i32 or u8, B a multiple of W: tokens of different labels do not
                       // attend to each other; window b has the labels b % W
  Tensor tau{}, nu{};  // one number, or (H): in place of those of the options
};

// Attention of all tokens of a window (or an image) to all of it, for H heads of D features, fused:
//
//   q', k' = q, k; for cosine both divided by their lengths. v' = v; under normalise_v likewise.
//   s_ij = tau <q'_i, k'_j> + bias[h, i, j], for j that i may attend to
//   out_i = nu sum_j softmax_j(s_ij) v'_j
//
// dot with the default tau is Vaswani et al., Attention is all you need, NeurIPS 2017, section
// 3.2.1. cosine with normalise_v and inside_root is scaled cosine similarity attention as
// LipsFormer defines it (Qi, Wang, Chen, Shi, Zhang, ICLR 2023, section 3.2), which has a Lipschitz
// constant; cosine with clamp, tau 10 and plain v is what its published code computes, which has
// none.
//
// qkv: (B, T, 3, H, D) or (B, T, 3 H D), f32 or f64, T, H, D >= 1, read in place. Returns
// (B, T, H D). A token that may attend to nothing gets zeros, and no gradient comes from there. In
// training mode dropout takes one draw of the mode's generator.
//
// Kept for backward: the inputs and two numbers a (window, head, token). Scores are computed again;
// a thread holds some rows of one head's.
Tensor dense_attention(const Tensor& qkv, const DenseAttentionOptions& options = {},
                       const DenseAttentionTerms& terms = {}, Mode mode = Mode::eval());

// The same for q, k and v (B, T, H, D) of their own.
Tensor dense_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                       const DenseAttentionOptions& options = {},
                       const DenseAttentionTerms& terms = {}, Mode mode = Mode::eval());

}  // namespace lipgrad
