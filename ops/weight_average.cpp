#include <lipgrad/ops/weight_average.h>

#include <cstdint>
#include <utility>

#include <lipgrad/core/check.h>
#include <lipgrad/core/launch.h>
#include <lipgrad/ops/kernels/optimizer.h>

namespace lipgrad {

WeightAverage::WeightAverage(Module& module, double decay) : decay_(decay) {
  LIPGRAD_CHECK(decay >= 0 && decay < 1, "weight_average: decay {} is not in [0, 1)", decay);
  for (const auto& [path, parameter] : module.named_parameters())
    entries_.push_back({path + "/average", parameter, parameter->value().clone()});
}

void WeightAverage::update() {
  for (std::size_t begin = 0, end; begin < entries_.size(); begin = end) {
    const Tensor& first = entries_[begin].parameter->value();
    const DType dtype = first.dtype();
    const Device device = first.device();
    for (end = begin; end < entries_.size(); ++end) {
      const Tensor& value = entries_[end].parameter->value();
      if (value.dtype() != dtype || value.device() != device) break;
      entries_[end].average = entries_[end].average.to(dtype).to(device);
    }
    visit_float("weight_average", dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      std::vector<SgdTensor<T>> list;
      // A step of the optimiser's kernel along g = p - a, of length 1 - decay and backwards.
      for (std::size_t i = begin; i < end; ++i)
        list.push_back({entries_[i].average.numel(), entries_[i].average.template mutable_data<T>(),
                        entries_[i].parameter->value().template data<T>(), nullptr, decay_ - 1,
                        -1});
      LIPGRAD_LAUNCH(device, sgd, static_cast<std::int64_t>(list.size()), list.data(), SgdRule{});
    });
  }
}

void WeightAverage::copy_to_module() const {
  for (const Entry& entry : entries_)
    entry.parameter->set_value(
        entry.average.to(entry.parameter->dtype()).to(entry.parameter->value().device()));
}

std::map<std::string, Tensor> WeightAverage::state() const {
  std::map<std::string, Tensor> tensors;
  for (const Entry& entry : entries_) tensors[entry.name] = entry.average;
  return tensors;
}

void WeightAverage::load_state(const std::map<std::string, Tensor>& state) {
  LIPGRAD_CHECK(state.size() == entries_.size(), "weight_average: a state of {} tensors for {}",
                state.size(), entries_.size());
  std::vector<Tensor> found;
  for (const Entry& entry : entries_) {
    const auto at = state.find(entry.name);
    LIPGRAD_CHECK(at != state.end(), "weight_average: the state has no {}", entry.name);
    const Tensor& tensor = at->second;
    LIPGRAD_CHECK(
        tensor.dtype() == entry.parameter->dtype() && tensor.shape() == entry.parameter->shape(),
        "weight_average: {} is {} {}, expected {} {}", entry.name, tensor.dtype(), tensor.shape(),
        entry.parameter->dtype(), entry.parameter->shape());
    found.push_back(tensor.clone());
  }
  for (std::size_t i = 0; i < found.size(); ++i)
    entries_[i].average = found[i].to(entries_[i].parameter->value().device());
}

}  // namespace lipgrad
