#pragma once

#include <cstdint>

#include <lipgrad/core/module.h>

// Initialisers of parameters: Parameter weight{*this, "weight", {out, in}, init::xavier_uniform()}.
// Numbers are drawn on the CPU, one draw of the generator for each tensor, so a seed gives the same
// values on every device and any number of threads.
namespace lipgrad::init {

Initializer zeros();
Initializer ones();
Initializer constant(double value);
// In [low, high). Error unless low <= high, both finite.
Initializer uniform(double low, double high);
Initializer normal(double mean = 0, double deviation = 1);
// Normal, but only values within `bound` deviations of the mean (their deviation is smaller than
// `deviation` by a factor of 0.88 at bound 2).
Initializer truncated_normal(double mean = 0, double deviation = 1, double bound = 2);

// The fans of a weight (out, in, ...): fan_in = in r and fan_out = out r, r the product of the
// remaining sizes. Error for fewer than two dimensions.
struct Fans {
  std::int64_t in, out;
};
Fans fans_of(const Shape& shape);

// Glorot and Bengio 2010, eq. 16: variance gain^2 2 / (fan_in + fan_out); uniform in
// +- sqrt(3 variance), or normal.
Initializer xavier_uniform(double gain = 1);
Initializer xavier_normal(double gain = 1);

enum class Fan : std::uint8_t { in, out };
struct KaimingOptions {
  Fan mode = Fan::in;
  double gain = 1.4142135623730951;  // sqrt(2), for relu; 1 for a linear layer
};
// He et al. 2015, eq. 10: variance gain^2 / fan; uniform in +- sqrt(3 variance), or normal.
Initializer kaiming_uniform(KaimingOptions options = {});
Initializer kaiming_normal(KaimingOptions options = {});

// Draws by `base` and divides by the largest singular value of the weight (out, in, ...) as a
// matrix (out, rest): its spectral_norm() is 1 (Qi et al., LipsFormer, arXiv:2304.09856, spectral
// initialisation). A draw of zeros stays. Error for fewer than two dimensions, and when an element
// drawn is not finite.
Initializer spectral(Initializer base = xavier_normal());

// The same for kernels (C, 1, kh, kw) of a depth-wise convolution, divided by the norm of the
// convolution itself, depthwise_spectral_norm(), in place of that of the matrix (C, kh kw), which
// is another number (for 7 x 7 kernels of 96 channels the convolution's norm is about 1.45 after
// spectral()).
Initializer spectral_depthwise(Initializer base = xavier_normal());

// Uniform in +- 1 / sqrt(fan), the usual start of a linear layer's weight and, with the fan of its
// weight, bias.
Initializer fan_uniform(std::int64_t fan);

}  // namespace lipgrad::init
