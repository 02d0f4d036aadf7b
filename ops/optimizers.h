#pragma once

#include <vector>

#include <lipgrad/core/optimizer.h>

namespace lipgrad {

struct SgdOptions {
  double lr = 1e-2;
  double momentum = 0;
  bool nesterov = false;
  double weight_decay = 0;
  std::vector<OptimizerGroup> groups = {};  // the first that contains a parameter counts
};

// Stochastic gradient descent, by the rule of torch.optim.SGD: with gradient g, parameter p,
//   g' = g + weight_decay p;  m = momentum m + g';
//   p -= lr m,  or in Nesterov's form  p -= lr (g' + momentum m);  without momentum  p -= lr g'.
class Sgd final : public Optimizer {
 public:
  explicit Sgd(Module& module, SgdOptions options = {});
  std::string kind() const override { return "sgd"; }

 private:
  void update(std::span<Slot* const> slots, DType dtype, Device device) override;
  std::vector<std::string> moment_names() const override;
  StateValues settings() const override;

  SgdOptions options_;
};

struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  std::vector<OptimizerGroup> groups = {};  // the first that contains a parameter counts
};

// Adam (Kingma, Ba: Adam: a method for stochastic optimization, ICLR 2015), by the rule of
// torch.optim.Adam: g' = g + weight_decay p;  m = beta1 m + (1 - beta1) g';
// v = beta2 v + (1 - beta2) g'^2;  and at the t-th update of this parameter
//   p -= lr / (1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + epsilon).
class Adam : public Optimizer {
 public:
  explicit Adam(Module& module, AdamOptions options = {});
  std::string kind() const override { return decoupled_ ? "adamw" : "adam"; }

 protected:
  Adam(Module& module, AdamOptions options, bool decoupled);

 private:
  void update(std::span<Slot* const> slots, DType dtype, Device device) override;
  std::vector<std::string> moment_names() const override { return {"m", "v"}; }
  StateValues settings() const override;

  AdamOptions options_;
  bool decoupled_;
};

struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 1e-2;
  std::vector<OptimizerGroup> groups = {};  // the first that contains a parameter counts
};

// Adam with decoupled weight decay (Loshchilov, Hutter: Decoupled weight decay regularization, ICLR
// 2019), by the rule of torch.optim.AdamW: p *= 1 - lr weight_decay, then Adam's rule without
// decay.
class AdamW final : public Adam {
 public:
  explicit AdamW(Module& module, AdamWOptions options = {});
};

}  // namespace lipgrad
