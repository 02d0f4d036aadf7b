#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <lipgrad/core/csr_matrix.h>
#include <lipgrad/core/module.h>
#include <lipgrad/core/random.h>
#include <lipgrad/ops/linear.h>
#include <lipgrad/ops/sequential.h>

// The layers that all models share. Each is a module: the first two arguments are its parent and
// its name there. Options may be given by name: Linear fc{*this, "fc", 64, 7, {.bias = false}}.
namespace lipgrad {

struct LinearLayerOptions {
  bool bias = true;
  Activation activation = Activation::identity;  // fused, with its parameter as in LinearOptions
  std::optional<double> parameter{};
  // Unset: both uniform in +- 1 / sqrt(in).
  Initializer weight_initializer{}, bias_initializer{};
  DType dtype = f32;
};

// y(..., out) = f(x weight^T + bias) for x(..., in) or a sparse x(rows, in). Parameters: weight
// (out, in) and, unless options.bias is false, bias (out). Error unless in, out >= 1.
class Linear : public Module {
 public:
  Linear(Module& parent, std::string name, std::int64_t in, std::int64_t out,
         const LinearLayerOptions& options = {});

  Tensor forward(const Tensor& x) const;
  Tensor forward(const CsrMatrix& x) const;

  Parameter weight;
  std::optional<Parameter> bias;

 private:
  LinearOptions options_;
};

struct LayerNormOptions {
  double eps = 1e-5;
  bool affine = true;  // learn a scale and a shift of each feature, from 1 and 0
  DType dtype = f32;
};

// Normalises each row x(..., features) along its last dimension: layer_norm(). Parameters, unless
// options.affine is false: weight and bias (features). Error unless features >= 1 and eps >= 0.
class LayerNorm : public Module {
 public:
  LayerNorm(Module& parent, std::string name, std::int64_t features,
            const LayerNormOptions& options = {});

  Tensor forward(const Tensor& x) const;

  std::optional<Parameter> weight, bias;

 private:
  std::int64_t features_;
  double eps_;
};

struct CenterNormOptions {
  bool affine = true;  // learn a scale and a shift of each feature, from 1 and 0
  DType dtype = f32;
};

// Centres each row x(..., features) along its last dimension: center_norm(). Parameters, unless
// options.affine is false: weight and bias (features). Error unless features >= 2.
class CenterNorm : public Module {
 public:
  CenterNorm(Module& parent, std::string name, std::int64_t features,
             const CenterNormOptions& options = {});

  Tensor forward(const Tensor& x) const;

  std::optional<Parameter> weight, bias;

 private:
  std::int64_t features_;
};

struct WeightedResidualOptions {
  double initial = 1;   // of every element of alpha
  bool damped = false;  // x + alpha (f - x), damped_residual(), in place of x + alpha f
  bool scalar = false;  // one alpha for all features, of shape ()
  bool trainable = true;
  DType dtype = f32;
};

// y = x + alpha f for x, f(..., features): weighted_residual() with a learned alpha of each
// feature, which nothing holds within bounds. Parameter: alpha (features). Error unless features
// >= 1 and the initial value is finite. By its options it is
//   LipsFormer's weighted shortcut   {.initial = 1.0 / L} for L blocks
//   LayerScale                       {.initial = 0.1} to 18 blocks, 1e-5 to 24, 1e-6 beyond; f
//                                    starts with a norm of x (Touvron et al., arXiv:2103.17239)
//   ReZero                           {.initial = 0, .scalar = true} (arXiv:2003.04887)
//   DeepNorm                         y = norm(forward(f, x)), the other way round, with {.initial =
//                                    deep_norm_gain(L), .scalar = true, .trainable = false}
class WeightedResidual : public Module {
 public:
  WeightedResidual(Module& parent, std::string name, std::int64_t features,
                   const WeightedResidualOptions& options = {});

  Tensor forward(const Tensor& x, const Tensor& f) const;

  Parameter alpha;

 private:
  bool damped_;
};

// DeepNorm for L blocks of two sublayers each (Wang et al., arXiv:2203.00555, table 1, encoders):
// the factor of x in norm(alpha x + f), alpha = (2 L)^(1/4), and the gain of init::xavier_normal()
// for the weights of the MLP, of values and of the output, (8 L)^(-1/4). Error unless L >= 1.
double deep_norm_gain(std::int64_t blocks);
double deep_norm_init_gain(std::int64_t blocks);

// dropout() with probability p while training, the identity in evaluation. Error unless p is in
// [0, 1].
class Dropout : public Module {
 public:
  Dropout(Module& parent, std::string name, double p);

  Tensor forward(const Tensor& x, Mode mode) const;

 private:
  double p_;
};

struct EmbeddingOptions {
  Initializer initializer{};  // unset: standard normal
  DType dtype = f32;
};

// y(..., features) = the rows of weight (count, features) that index(...), i32 or i64, names. Error
// unless count, features >= 1.
class Embedding : public Module {
 public:
  Embedding(Module& parent, std::string name, std::int64_t count, std::int64_t features,
            const EmbeddingOptions& options = {});

  Tensor forward(const Tensor& index) const;

  Parameter weight;
};

}  // namespace lipgrad
