#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <lipgrad/core/module.h>
#include <lipgrad/core/tensor.h>

namespace lipgrad {

// A height and a width; one number stands for both.
struct Size2d {
  std::int64_t height, width;
  constexpr Size2d(std::int64_t both) : height(both), width(both) {}
  constexpr Size2d(std::int64_t h, std::int64_t w) : height(h), width(w) {}
  bool operator==(const Size2d&) const = default;
};

struct Conv2dOptions {
  Size2d stride = 1;
  Size2d padding = 0;       // zeros on every side
  std::int64_t groups = 1;  // that the channels are split into, each with its own kernels
};

// Convolution of images x(B, H, W, in), channels last: y(B, H', W', out) with H' = (H + 2 padding -
// kh) / stride + 1 rounded down, likewise W',
//   y[b, i, j, o] = bias[o] + sum of weight[o, c, u, v] x[b, i stride - padding + u,
//                                                         j stride - padding + v, c]
// over the taps u, v and the in / groups channels c of o's group. weight(out, in / groups, kh, kw)
// as in PyTorch; bias(out) may be undefined. f32 or f64. (A cross-correlation, as everywhere.)
// Convolutions of each channel by its own kernel (groups = in = out), by 1 x 1 kernels, and of
// patches (stride = kernel, without padding) have ways of their own; for others the pixels that
// outputs read are copied side by side and multiplied, some megabytes at a time. Error when shapes
// do not fit or the kernel is larger than the padded image.
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              const Conv2dOptions& options = {});

struct Conv2dLayerOptions {
  Size2d stride = 1;
  Size2d padding = 0;
  std::int64_t groups = 1;
  bool bias = true;
  // Unset: both uniform in +- 1 / sqrt(in / groups kh kw).
  Initializer weight_initializer{}, bias_initializer{};
  DType dtype = f32;
};

// conv2d() from `in` to `out` channels. Parameters: weight (out, in / groups, kh, kw) and, unless
// options.bias is false, bias (out). Error unless the sizes are at least 1 and groups divides both
// numbers of channels.
class Conv2d : public Module {
 public:
  Conv2d(Module& parent, std::string name, std::int64_t in, std::int64_t out, Size2d kernel,
         const Conv2dLayerOptions& options = {});

  Tensor forward(const Tensor& x) const;

  Parameter weight;
  std::optional<Parameter> bias;

 private:
  Conv2dOptions options_;
};

}  // namespace lipgrad
