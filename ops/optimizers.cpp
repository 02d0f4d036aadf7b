#include <lipgrad/ops/optimizers.h>

#include <cmath>
#include <utility>

#include <lipgrad/core/check.h>
#include <lipgrad/core/launch.h>
#include <lipgrad/ops/kernels/optimizer.h>

namespace lipgrad {
namespace {

void check_factor(const char* op, const char* name, double value, double below) {
  LIPGRAD_CHECK(value >= 0 && value < below, "{}: {} {} is not in [0, {})", op, name, value, below);
}

}  // namespace

Sgd::Sgd(Module& module, SgdOptions options)
    : Optimizer(module, options.lr, options.weight_decay, options.groups),
      options_(std::move(options)) {
  check_factor("sgd", "momentum", options_.momentum, 1);
  LIPGRAD_CHECK(!options_.nesterov || options_.momentum > 0,
                "sgd: Nesterov's form needs a momentum above 0");
}

std::vector<std::string> Sgd::moment_names() const {
  return options_.momentum > 0 ? std::vector<std::string>{"m"} : std::vector<std::string>{};
}

StateValues Sgd::settings() const {
  return {{"momentum", options_.momentum},
          {"nesterov", std::int64_t{options_.nesterov}},
          {"weight_decay", options_.weight_decay}};
}

void Sgd::update(std::span<Slot* const> slots, DType dtype, Device device) {
  visit_float("sgd", dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    std::vector<SgdTensor<T>> list;
    for (Slot* slot : slots) {
      Parameter& parameter = *slot->parameter;
      list.push_back({parameter.numel(), parameter.template mutable_data<T>(),
                      parameter.grad().template data<T>(),
                      slot->moments.empty() ? nullptr : slot->moments[0].template mutable_data<T>(),
                      lr_of(*slot), slot->weight_decay});
    }
    LIPGRAD_LAUNCH(device, sgd, static_cast<std::int64_t>(list.size()), list.data(),
                   SgdRule{options_.momentum, options_.nesterov});
  });
}

Adam::Adam(Module& module, AdamOptions options) : Adam(module, std::move(options), false) {}

Adam::Adam(Module& module, AdamOptions options, bool decoupled)
    : Optimizer(module, options.lr, options.weight_decay, options.groups),
      options_(std::move(options)),
      decoupled_(decoupled) {
  const char* op = decoupled ? "adamw" : "adam";
  check_factor(op, "beta1", options_.beta1, 1);
  check_factor(op, "beta2", options_.beta2, 1);
  LIPGRAD_CHECK(options_.epsilon >= 0 && std::isfinite(options_.epsilon),
                "{}: epsilon {} must be finite and >= 0", op, options_.epsilon);
}

AdamW::AdamW(Module& module, AdamWOptions options)
    : Adam(module,
           {.lr = options.lr,
            .beta1 = options.beta1,
            .beta2 = options.beta2,
            .epsilon = options.epsilon,
            .weight_decay = options.weight_decay,
            .groups = std::move(options.groups)},
           true) {}

StateValues Adam::settings() const {
  return {{"beta1", options_.beta1},
          {"beta2", options_.beta2},
          {"epsilon", options_.epsilon},
          {"weight_decay", options_.weight_decay}};
}

void Adam::update(std::span<Slot* const> slots, DType dtype, Device device) {
  visit_float("adam", dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    std::vector<AdamTensor<T>> list;
    for (Slot* slot : slots) {
      Parameter& parameter = *slot->parameter;
      list.push_back({parameter.numel(), parameter.template mutable_data<T>(),
                      parameter.grad().template data<T>(),
                      slot->moments[0].template mutable_data<T>(),
                      slot->moments[1].template mutable_data<T>(), lr_of(*slot), slot->weight_decay,
                      slot->steps});
    }
    LIPGRAD_LAUNCH(device, adam, static_cast<std::int64_t>(list.size()), list.data(),
                   AdamRule{options_.beta1, options_.beta2, options_.epsilon, decoupled_});
  });
}

}  // namespace lipgrad
