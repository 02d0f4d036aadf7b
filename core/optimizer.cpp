#include <lipgrad/core/optimizer.h>

#include <cmath>
#include <utility>

#include <fmt/ranges.h>

#include <lipgrad/core/check.h>

namespace lipgrad {
namespace {

std::string joined(const std::vector<std::string>& lines) {
  return fmt::format("{}", fmt::join(lines, "; "));
}

// The tensor itself if it is on the device and nobody else sees its storage, else a copy there:
// moments are changed in place.
Tensor taken(Tensor x, Device device) {
  if (x.device() != device) return x.to(device);
  return x.owns_storage() ? std::move(x) : x.clone();
}

}  // namespace

OptimizerGroup no_decay_on_vectors() {
  return {.contains = [](const std::string&, const Parameter& p) { return p.shape().rank() <= 1; },
          .weight_decay = 0.0};
}

Optimizer::Optimizer(Module& module, double lr, double weight_decay,
                     const std::vector<OptimizerGroup>& groups) {
  set_lr(lr);
  LIPGRAD_CHECK(weight_decay >= 0 && std::isfinite(weight_decay),
                "optimizer: weight decay {} must be finite and >= 0", weight_decay);
  for (const OptimizerGroup& group : groups) {
    LIPGRAD_CHECK(group.contains, "optimizer: a group has no predicate");
    LIPGRAD_CHECK(group.lr_factor >= 0 && std::isfinite(group.lr_factor),
                  "optimizer: the factor {} of a group must be finite and >= 0", group.lr_factor);
    const double decay = group.weight_decay.value_or(0);
    LIPGRAD_CHECK(decay >= 0 && std::isfinite(decay),
                  "optimizer: the weight decay {} of a group must be finite and >= 0", decay);
  }
  for (auto& [path, parameter] : module.named_parameters()) {
    Slot slot;
    slot.path = path;
    slot.parameter = parameter;
    slot.weight_decay = weight_decay;
    for (const OptimizerGroup& group : groups) {
      if (!group.contains(path, *parameter)) continue;
      slot.weight_decay = group.weight_decay.value_or(weight_decay);
      slot.lr_factor = group.lr_factor;
      break;
    }
    slots_.push_back(std::move(slot));
  }
}

void Optimizer::set_lr(double lr) {
  LIPGRAD_CHECK(lr >= 0 && std::isfinite(lr), "optimizer: learning rate {} must be finite and >= 0",
                lr);
  lr_ = lr;
}

void Optimizer::step() {
  const std::size_t moments = moment_names().size();
  std::vector<Slot*> ready;
  std::int64_t skipped = 0;
  for (Slot& slot : slots_) {
    const Parameter& parameter = *slot.parameter;
    if (!parameter.trainable()) continue;
    if (!parameter.grad().defined()) {
      ++skipped;
      continue;
    }
    const Tensor& value = parameter.value();
    if (slot.moments.size() != moments) slot.moments.assign(moments, Tensor());
    for (Tensor& moment : slot.moments)
      moment = moment.defined() ? moment.to(value.dtype()).to(value.device()) : zeros_like(value);
    ready.push_back(&slot);
  }
  // Usually a single batch: all parameters of a module share dtype and device.
  for (std::size_t begin = 0; begin < ready.size();) {
    const Tensor& first = ready[begin]->parameter->value();
    std::size_t end = begin;
    for (; end < ready.size(); ++end) {
      const Tensor& value = ready[end]->parameter->value();
      if (value.dtype() != first.dtype() || value.device() != first.device()) break;
      ++ready[end]->steps;
    }
    update(std::span(ready).subspan(begin, end - begin), first.dtype(), first.device());
    begin = end;
  }
  skipped_ = skipped;
  ++steps_;
}

void Optimizer::zero_grad() {
  for (Slot& slot : slots_) slot.parameter->zero_grad();
}

OptimizerState Optimizer::state() const {
  OptimizerState state;
  state.kind = kind();
  state.values = settings();
  state.values["lr"] = lr_;
  state.values["steps"] = steps_;
  const std::vector<std::string> names = moment_names();
  for (const Slot& slot : slots_) {
    state.tensors[slot.path + "/steps"] = from_values<std::int64_t>({}, {slot.steps});
    if (slot.steps == 0) continue;
    for (std::size_t i = 0; i < names.size(); ++i)
      state.tensors[slot.path + "/" + names[i]] = slot.moments[i];
  }
  return state;
}

std::vector<std::string> Optimizer::problems(const OptimizerState& state) const {
  std::vector<std::string> found;
  if (state.kind != kind()) {
    found.push_back(fmt::format("state of {}, the optimiser is {}", state.kind, kind()));
    return found;
  }
  const auto lr = state.values.find("lr");
  const auto steps = state.values.find("steps");
  if (lr == state.values.end() || !std::holds_alternative<double>(lr->second) ||
      !(std::get<double>(lr->second) >= 0) || std::isinf(std::get<double>(lr->second)))
    found.push_back("no valid learning rate");
  if (steps == state.values.end() || !std::holds_alternative<std::int64_t>(steps->second))
    found.push_back("no number of steps");
  std::size_t used = 0;
  const auto check = [&](const std::string& name, DType dtype, const Shape& shape) {
    const auto at = state.tensors.find(name);
    if (at == state.tensors.end()) {
      found.push_back(fmt::format("missing {}", name));
      return false;
    }
    ++used;
    if (at->second.dtype() == dtype && at->second.shape() == shape) return true;
    found.push_back(fmt::format("{} is {} {}, expected {} {}", name, at->second.dtype(),
                                at->second.shape(), dtype, shape));
    return false;
  };
  for (const Slot& slot : slots_) {
    if (!check(slot.path + "/steps", i64, Shape{})) continue;
    const std::int64_t taken_steps = state.tensors.at(slot.path + "/steps").data<std::int64_t>()[0];
    if (taken_steps < 0) found.push_back(fmt::format("{}/steps is {}", slot.path, taken_steps));
    if (taken_steps <= 0) continue;
    for (const std::string& name : moment_names())
      check(slot.path + "/" + name, slot.parameter->dtype(), slot.parameter->shape());
  }
  if (used < state.tensors.size())
    found.push_back(
        fmt::format("{} tensors of no parameter of this model", state.tensors.size() - used));
  return found;
}

void Optimizer::load_state(OptimizerState state) {
  const std::vector<std::string> found = problems(state);
  LIPGRAD_CHECK(found.empty(), "{}: the state does not fit: {}", kind(), joined(found));
  lr_ = std::get<double>(state.values["lr"]);
  steps_ = std::get<std::int64_t>(state.values["steps"]);
  skipped_ = 0;
  for (Slot& slot : slots_) {
    slot.steps = state.tensors[slot.path + "/steps"].data<std::int64_t>()[0];
    slot.moments.clear();
    if (slot.steps == 0) continue;
    for (const std::string& name : moment_names())
      slot.moments.push_back(taken(std::move(state.tensors[slot.path + "/" + name]),
                                   slot.parameter->value().device()));
  }
}

std::vector<std::string> Schedule::problems(const CheckpointInfo::StateInfo& given) const {
  if (given.kind != kind())
    return {fmt::format("state of {}, the schedule is {}", given.kind, kind())};
  std::vector<std::string> found;
  for (const auto& [key, value] : state()) {
    const auto at = given.values.find(key);
    if (at == given.values.end() || at->second.index() != value.index())
      found.push_back(fmt::format("missing {}", key));
  }
  return found;
}

void Schedule::load_state(const CheckpointInfo::StateInfo& given) {
  const std::vector<std::string> found = problems(given);
  LIPGRAD_CHECK(found.empty(), "{} schedule: the state does not fit: {}", kind(), joined(found));
  restore(given.values);
}

}  // namespace lipgrad
