#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <lipgrad/core/module.h>

namespace lipgrad {

// Stages run one after another, each on the result of the one before:
//
//   Sequential mlp{*this, "mlp"};
//   mlp.emplace_back<Linear>(784, 256);
//   mlp.then(relu);
//   mlp.emplace_back<Linear>(256, 10);
//
// A module's name is its place among all stages, functions counted: here "0" and "2".
class Sequential : public Module {
 public:
  Sequential() = default;
  Sequential(Module& parent, std::string name) : Module(parent, std::move(name)) {}

  // Constructs M(*this, its place, args...) as the last stage. M::forward takes (x, mode) or (x).
  template <class M, class... Args>
  M& emplace_back(Args&&... args) {
    auto module =
        std::make_unique<M>(*this, std::to_string(stages_.size()), std::forward<Args>(args)...);
    M& stage = *module;
    add(std::move(module), [&stage](const Tensor& x, Mode mode) -> Tensor {
      if constexpr (requires { stage.forward(x, mode); }) {
        return stage.forward(x, mode);
      } else {
        return stage.forward(x);
      }
    });
    return stage;
  }

  // Appends a function without parameters, such as relu.
  void then(std::function<Tensor(const Tensor&)> function);

  Tensor forward(const Tensor& x, Mode mode) const;
  // Modules and functions.
  std::size_t size() const { return stages_.size(); }

 private:
  using Run = std::function<Tensor(const Tensor&, Mode)>;
  struct Stage {
    std::unique_ptr<Module> module;  // null for a function
    Run run;
  };
  void add(std::unique_ptr<Module> module, Run run);

  std::vector<Stage> stages_;
};

}  // namespace lipgrad
