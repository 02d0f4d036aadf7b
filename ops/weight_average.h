#pragma once

#include <map>
#include <string>
#include <vector>

#include <lipgrad/core/module.h>

namespace lipgrad {

// An exponential moving average of a module's parameters (Polyak, Juditsky, 1992): after every
// update of the optimiser a = decay a + (1 - decay) p. Buffers are not averaged.
//
//   WeightAverage average{model, 0.999};
//   for (...) { ...; optimizer.step(); average.update(); }
//   average.copy_to_module();   // evaluate, save
class WeightAverage {
 public:
  // Starts from the parameters' values; the module, whose parameters must not change in number,
  // outlives the average. Error unless decay is in [0, 1).
  WeightAverage(Module& module, double decay);

  // One pass over memory, on the parameters' device.
  void update();
  // Gives the parameters the averaged values.
  void copy_to_module() const;

  // For checkpoints (SaveOptions::tensors), by names "<path>/average". The tensors share storage
  // with the average until its next update.
  std::map<std::string, Tensor> state() const;
  // Error, with nothing changed, unless these are tensors of the same names, shapes and dtypes.
  void load_state(const std::map<std::string, Tensor>& state);

 private:
  struct Entry {
    std::string name;
    Parameter* parameter;
    Tensor average;
  };
  std::vector<Entry> entries_;
  double decay_;
};

}  // namespace lipgrad
