#pragma once

#include <cstdint>

#include <lipgrad/core/tensor.h>

namespace lipgrad {

// The bias that attention adds to the scores of a window's tokens by where they lie relative to one
// another (Liu et al.: Swin Transformer, ICCV 2021, section 3.2):
//
//   bias[h, a, b] = table[(ya - yb + height - 1) (2 width - 1) + xa - xb + width - 1, h]
//
// for the query a = ya width + xa and the key b likewise. table: ((2 height - 1) (2 width - 1), H),
// f32 or f64. Returns (H, T, T), T = height width. Its gradient adds up all pairs at an offset.
Tensor relative_position_bias(const Tensor& table, std::int64_t height, std::int64_t width);

// The offsets of a window's rows of the table as Swin-V2 gives them to a network (Liu et al.: Swin
// Transformer V2, CVPR 2022, equation 4 and its code): ((2 height - 1) (2 width - 1), 2) on the
// CPU, sign(z) log2(1 + |z|) / 3 with z = 8 (ya - yb) / (height - 1), and the same along the width;
// 0 along an edge of one token.
Tensor relative_position_coordinates(std::int64_t height, std::int64_t width, DType dtype = f32);

}  // namespace lipgrad
