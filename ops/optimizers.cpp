#include <lipgrad/ops/optimizers.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include <lipgrad/core/check.h>
#include <lipgrad/core/threads.h>

namespace lipgrad {
namespace {

constexpr std::int64_t kGrain = std::int64_t{1} << 14;

// Calls f(slot, begin, end) for pieces of all slots' elements, spread over the threads.
template <class Slots, class F>
void for_pieces(const Slots& slots, F&& f) {
  std::vector<std::pair<std::size_t, std::int64_t>> pieces;
  for (std::size_t i = 0; i < slots.size(); ++i)
    for (std::int64_t begin = 0; begin < slots[i]->parameter->numel(); begin += kGrain)
      pieces.emplace_back(i, begin);
  parallel_for(static_cast<std::int64_t>(pieces.size()), 1,
               [&](std::int64_t from, std::int64_t to) {
                 for (std::int64_t k = from; k < to; ++k) {
                   const auto [i, begin] = pieces[static_cast<std::size_t>(k)];
                   f(*slots[i], begin, std::min(begin + kGrain, slots[i]->parameter->numel()));
                 }
               });
}

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
  LIPGRAD_CHECK(device.is_cpu(), "sgd: parameters on {}", device);
  visit_float("sgd", dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T momentum = static_cast<T>(options_.momentum);
    const bool nesterov = options_.nesterov;
    for_pieces(slots, [&](Slot& slot, std::int64_t begin, std::int64_t end) {
      T* p = slot.parameter->template mutable_data<T>();
      const T* g = slot.parameter->grad().template data<T>();
      const T lr = static_cast<T>(lr_of(slot)), decay = static_cast<T>(slot.weight_decay);
      if (slot.moments.empty()) {
        for (std::int64_t i = begin; i < end; ++i) p[i] -= lr * (g[i] + decay * p[i]);
        return;
      }
      T* m = slot.moments[0].template mutable_data<T>();
      for (std::int64_t i = begin; i < end; ++i) {
        const T d = g[i] + decay * p[i];
        m[i] = momentum * m[i] + d;
        p[i] -= lr * (nesterov ? d + momentum * m[i] : m[i]);
      }
    });
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
  LIPGRAD_CHECK(device.is_cpu(), "adam: parameters on {}", device);
  visit_float("adam", dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T b1 = static_cast<T>(1 - options_.beta1), beta2 = static_cast<T>(options_.beta2),
            b2 = static_cast<T>(1 - options_.beta2), epsilon = static_cast<T>(options_.epsilon);
    for_pieces(slots, [&](Slot& slot, std::int64_t begin, std::int64_t end) {
      T* p = slot.parameter->template mutable_data<T>();
      const T* g = slot.parameter->grad().template data<T>();
      T* m = slot.moments[0].template mutable_data<T>();
      T* v = slot.moments[1].template mutable_data<T>();
      const auto t = static_cast<double>(slot.steps);
      const double lr = lr_of(slot);
      const T decay = decoupled_ ? T{0} : static_cast<T>(slot.weight_decay);
      const T shrink = decoupled_ ? static_cast<T>(1 - lr * slot.weight_decay) : T{1};
      const T rate = static_cast<T>(lr / (1 - std::pow(options_.beta1, t)));
      const T root = static_cast<T>(std::sqrt(1 - std::pow(options_.beta2, t)));
      for (std::int64_t i = begin; i < end; ++i) {
        const T q = p[i] * shrink, d = g[i] + decay * q;
        m[i] += b1 * (d - m[i]);
        v[i] = beta2 * v[i] + b2 * d * d;
        p[i] = q - rate * (m[i] / (std::sqrt(v[i]) / root + epsilon));
      }
    });
  });
}

}  // namespace lipgrad
