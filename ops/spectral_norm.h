#pragma once

#include <lipgrad/core/tensor.h>

namespace lipgrad {

// The l2 operator norm of a weight (out, in, ...), f32 or f64: the largest singular value of the
// matrix (out, rest), computed in f64 to about 1e-15 relative (largest_singular_value() in
// core/blas.h), no power iteration. For a convolution that is the norm of the reshaped matrix, not
// of the operator. Not differentiable: a number, whatever tape records w. Error for fewer than two
// dimensions, and when an element is not finite.
double spectral_norm(const Tensor& w);

// The same as a tensor of shape () with a gradient: that of the largest singular value is the outer
// product of its vectors (any pair of them where it repeats), and 0 where the value is 0. Of w's
// dtype and on its device; computed on the CPU.
Tensor spectral_norm_of(const Tensor& w);

// The l2 operator norm of the depth-wise convolution with stride 1 of an unbounded image by
// kernels w(C, 1, kh, kw): the largest absolute value over all channels and frequencies of the
// kernels' Fourier transforms (over all frequencies, not those of one image size; on a grid, then
// refined around its largest values to about 1e-12 relative). With zero padding on an image of any
// size, and with any stride, the norm is at most this, and comes near to it as images grow. Not
// differentiable. Error unless w is (C, 1, kh, kw), and when an element is not finite.
double depthwise_spectral_norm(const Tensor& w);

}  // namespace lipgrad
