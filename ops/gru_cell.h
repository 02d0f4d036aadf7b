#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <lipgrad/core/module.h>
#include <lipgrad/core/tensor.h>

namespace lipgrad {

// The elementwise part of a gated recurrent unit (Cho et al., EMNLP 2014, in the form of cuDNN and
// PyTorch), y(N, D) of the two projections x(N, 3D) of the input and hidden(N, 3D) of the state, in
// each the parts r, z, n side by side, and the state h(N, D):
//
//   r = sigmoid(x_r + hidden_r)   z = sigmoid(x_z + hidden_z)   n = tanh(x_n + r hidden_n)
//   y = (1 - z) n + z h
//
// All three have gradients; gates are computed again in backward rather than kept. |y| is at most
// max(1, |h|). f32 or f64. Error unless the shapes are these.
Tensor gru_gates(const Tensor& x, const Tensor& hidden, const Tensor& h);

struct GruCellOptions {
  bool bias = true;
  DType dtype = f32;
};

// One step of a gated recurrent unit: gru_gates(x weight_ih^T + bias_ih, h weight_hh^T + bias_hh,
// h) for x(N, in) and h(N, out). Parameters, by name and initialiser those of GRUCell in PyTorch:
// weight_ih (3 out, in), weight_hh (3 out, out) and, unless options.bias is false, bias_ih and
// bias_hh (3 out), all uniform in +- 1 / sqrt(out). Error unless in, out >= 1.
class GruCell : public Module {
 public:
  GruCell(Module& parent, std::string name, std::int64_t in, std::int64_t out,
          const GruCellOptions& options = {});

  Tensor forward(const Tensor& x, const Tensor& h) const;

  Parameter weight_ih, weight_hh;
  std::optional<Parameter> bias_ih, bias_hh;
};

}  // namespace lipgrad
