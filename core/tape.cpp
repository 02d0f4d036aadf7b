#include <lipgrad/core/tape.h>

#include <algorithm>
#include <atomic>

#include <lipgrad/core/check.h>
#include <lipgrad/core/module.h>
#include <lipgrad/core/op.h>
#include <lipgrad/core/runtime.h>
#include <lipgrad/core/tape_state.h>

namespace lipgrad {
namespace {

std::atomic<std::uint64_t> next_serial{1};

// Null when no tape is open or recording is paused; `innermost` is the innermost open tape anyway.
thread_local TapeState* recording = nullptr;
thread_local TapeState* innermost = nullptr;
thread_local const std::string* module_path = nullptr;

// Records of ended tapes, kept for their capacity.
thread_local std::vector<std::unique_ptr<TapeState>> spare_states;

}  // namespace

void* Arena::allocate(std::size_t size, std::size_t alignment) {
  for (;; ++chunk_, used_ = 0) {
    if (chunk_ == chunks_.size()) {
      const std::size_t bytes = std::max(chunk_size, size + alignment);
      chunks_.push_back({std::make_unique_for_overwrite<std::byte[]>(bytes), bytes});
    }
    void* place = chunks_[chunk_].bytes.get() + used_;
    std::size_t space = chunks_[chunk_].size - used_;
    if (std::align(alignment, size, place, space)) {
      used_ = chunks_[chunk_].size - space + size;
      return place;
    }
  }
}

std::int64_t TapeState::leaf_of(const Tensor& x) {
  Parameter* parameter = x.storage()->parameter.load(std::memory_order_acquire);
  if (!parameter || !parameter->trainable()) return -1;
  const auto slot_of = [&](Parameter* key) {
    std::size_t slot = (reinterpret_cast<std::uintptr_t>(key) >> 4) * 0x9E3779B97F4A7C15u >> 32;
    for (;; ++slot) {
      const std::int32_t index = leaf_table[slot & (leaf_table.size() - 1)];
      if (index < 0 ||
          (leaves[index].parameter == key && leaves[index].storage.get() == x.storage().get()))
        return slot & (leaf_table.size() - 1);
    }
  };
  if (leaf_table.size() < 2 * (leaves.size() + 1)) {
    leaf_table.assign(std::max<std::size_t>(16, 4 * leaf_table.size()), -1);
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      std::size_t slot =
          (reinterpret_cast<std::uintptr_t>(leaves[i].parameter) >> 4) * 0x9E3779B97F4A7C15u >> 32;
      while (leaf_table[slot & (leaf_table.size() - 1)] >= 0) ++slot;
      leaf_table[slot & (leaf_table.size() - 1)] = static_cast<std::int32_t>(i);
    }
  }
  const std::size_t slot = slot_of(parameter);
  if (leaf_table[slot] >= 0) return leaves[leaf_table[slot]].value;
  leaf_table[slot] = static_cast<std::int32_t>(leaves.size());
  leaves.push_back({parameter, x.storage(), add_value(x, -1)});
  return leaves.back().value;
}

std::int64_t TapeState::resolve(const char* op, const Tensor& x) {
  const ValueRef& ref = x.ref();
  if (ref.tape == ValueRef::none || !x.defined()) return -1;
  if (ref.tape == serial) return ref.value;
  if (ref.tape == ValueRef::of_parameter) return leaf_of(x);
  for (TapeState* state = outer; state; state = state->outer)
    if (state->serial == ref.tape)
      fail("{}: input {} belongs to an enclosing tape; detach() it or compute it on the inner tape",
           op, x.shape());
  fail("{}: input {} belongs to a tape that has ended; detach() it or compute it again", op,
       x.shape());
}

std::int64_t TapeState::add_value(const Tensor& x, std::int64_t node) {
  if (node < 0) leaf_values.push_back(values.size());
  Value& value = values.append();
  value.shape = x.shape();
  value.node = node;
  value.dtype = x.dtype();
  value.device = x.device();
  return values.size() - 1;
}

std::int32_t TapeState::module_id(const std::string* path) {
  if (!path || path->empty()) return -1;
  // Ops of one module come in runs.
  for (std::int32_t i = module_count; i-- > 0;)
    if (modules[i] == *path) return i;
  if (module_count == static_cast<std::int32_t>(modules.size())) modules.emplace_back();
  modules[module_count] = *path;
  return module_count++;
}

void TapeState::save(std::int64_t node, const Tensor& x) {
  const std::uint32_t version =
      x.defined() ? x.storage()->version.load(std::memory_order_relaxed) : 0;
  Saved& saved = saved_tensors.append();
  saved.tensor = x;
  saved.version = version;
  ++nodes[node].saves;
}

void TapeState::save_value(std::int64_t node, const void* value, std::size_t size,
                           std::size_t alignment) {
  void* copy = arena.allocate(size, alignment);
  std::copy_n(static_cast<const std::byte*>(value), size, static_cast<std::byte*>(copy));
  saved_data.push_back(copy);
  ++nodes[node].data;
}

const Tensor& TapeState::saved(std::int64_t node, std::size_t k) const {
  const Node& n = nodes[node];
  LIPGRAD_CHECK(k < static_cast<std::size_t>(n.saves),
                "{}: backward asks for saved tensor {}, {} were saved", n.info->name, k, n.saves);
  return saved_tensors[n.saved + static_cast<std::int64_t>(k)].tensor;
}

const void* TapeState::saved_value(std::int64_t node, std::size_t k) const {
  const Node& n = nodes[node];
  LIPGRAD_CHECK(k < static_cast<std::size_t>(n.data),
                "{}: backward asks for saved value {}, {} were saved", n.info->name, k, n.data);
  return saved_data[n.datum + static_cast<std::int64_t>(k)];
}

bool Ctx::wanted(std::size_t i) const { return tape_->needs_grad(node_, i); }
void Ctx::keep(const Tensor& x) { tape_->save(node_, x); }
void Ctx::keep(const void* value, std::size_t size, std::size_t alignment) {
  tape_->save_value(node_, value, size, alignment);
}
const Tensor& Ctx::saved(std::size_t k) const { return tape_->saved(node_, k); }
const void* Ctx::kept(std::size_t k) const { return tape_->saved_value(node_, k); }

std::string TapeState::describe(const Node& node) const {
  std::string text = node.info ? node.info->name : "?";
  if (node.module >= 0) text += " in module " + modules[node.module];
  text += " (";
  for (std::int32_t i = 0; i < node.inputs; ++i) {
    const std::int64_t id = input_ids[node.input + i];
    text += fmt::format("{}{}", i ? ", " : "", id < 0 ? "-" : values[id].shape.str());
  }
  text += ") -> (";
  for (std::int32_t i = 0; i < node.outputs; ++i)
    text += fmt::format("{}{}", i ? ", " : "", values[node.output + i].shape);
  return text + ")";
}

namespace detail {

Recording::Recording(const char* name, const Inputs& in, bool differentiable) : name_(name) {
  TapeState* state = recording;
  if (!state) return;
  if (differentiable) {
    const std::size_t first = state->input_ids.size();
    bool any = false;
    try {
      for (std::size_t i = 0; i < in.size(); ++i) {
        const std::int64_t id = state->resolve(name, in[i]);
        any |= id >= 0;
        state->input_ids.push_back(id);
      }
    } catch (...) {
      state->input_ids.resize(first);
      throw;
    }
    if (any && !state->leaves_only) {
      node_ = state->nodes.size();
      TapeState::Node& node = state->nodes.append();
      node.input = static_cast<std::int64_t>(first);
      node.inputs = static_cast<std::int32_t>(in.size());
      node.saved = state->saved_tensors.size();
      node.datum = static_cast<std::int64_t>(state->saved_data.size());
      tape_ = state;
    } else {
      state->input_ids.resize(first);
    }
  }
  paused_ = state;
  recording = nullptr;
}

Recording::~Recording() {
  if (!paused_) return;
  recording = paused_;
  if (!tape_) return;
  const TapeState::Node node = tape_->nodes[node_];
  if (node.info) return;
  tape_->input_ids.resize(node.input);
  tape_->saved_tensors.truncate(node.saved);
  tape_->saved_data.resize(node.datum);
  tape_->nodes.truncate(node_);
}

Ctx Recording::ctx() const { return Ctx(tape_, node_); }

void* Recording::finish(const OpInfo* info, std::size_t size, std::size_t alignment,
                        std::span<Tensor> outputs) {
  if (!tape_) {
    // An op may hand its input on: without a record its result is no value of a tape either.
    for (Tensor& y : outputs) y.set_ref({});
    return nullptr;
  }
  for (Tensor& y : outputs)
    LIPGRAD_CHECK(y.defined() && is_floating(y.dtype()),
                  "{}: a differentiable op must return f32 or f64 tensors", name_);
  void* memory = tape_->arena.allocate(size, alignment);
  TapeState::Node& node = tape_->nodes.back();
  node.output = tape_->values.size();
  node.outputs = static_cast<std::int32_t>(outputs.size());
  node.module = tape_->module_id(module_path);
  for (Tensor& y : outputs) y.set_ref({tape_->serial, tape_->add_value(y, node_)});
  node.op = memory;
  node.info = info;
  if (tape_->options.anomaly)
    for (const Tensor& y : outputs)
      if (runtime(y.device()).has_nonfinite(y))
        fail("{}: produced a NaN or infinity", tape_->describe(node));
  return memory;
}

}  // namespace detail

void TapeState::clear() noexcept {
  for (std::int64_t i = nodes.size(); i-- > 0;)
    if (nodes[i].info && nodes[i].info->destroy) nodes[i].info->destroy(nodes[i].op);
  nodes.truncate(0);
  values.truncate(0);
  input_ids.clear();
  saved_tensors.truncate(0);
  saved_data.clear();
  leaf_values.clear();
  leaves.clear();
  std::fill(leaf_table.begin(), leaf_table.end(), -1);
  hooks.clear();
  module_count = 0;
  arena.reset();
  leaves_only = false;
  options = {};
}

// ---- Tape

Tape::Tape(TapeOptions options) {
  if (spare_states.empty()) {
    state_ = std::make_unique<TapeState>();
  } else {
    state_ = std::move(spare_states.back());
    spare_states.pop_back();
  }
  state_->serial = next_serial.fetch_add(1, std::memory_order_relaxed);
  state_->options = options;
  state_->tape = this;
  state_->outer = innermost;
  state_->resumes = recording;
  innermost = recording = state_.get();
}

Tape::~Tape() {
  innermost = state_->outer;
  recording = state_->resumes;
  state_->clear();
  try {
    spare_states.push_back(std::move(state_));
  } catch (...) {
  }
}

Tensor Tape::watch(const Tensor& x) {
  LIPGRAD_CHECK(x.defined() && is_floating(x.dtype()),
                "watch: expects an f32 or f64 tensor, got {}", x.str());
  Tensor leaf = x.detach();
  leaf.set_ref({state_->serial, state_->add_value(x, -1)});
  return leaf;
}

namespace {

Tensor checked_cotangent(const char* what, const Tensor& output, const Tensor& cotangent) {
  if (!cotangent.defined()) {
    LIPGRAD_CHECK(output.numel() == 1,
                  "{}: the output {} has {} elements; reduce it to one, or give a cotangent", what,
                  output.shape(), output.numel());
    return ones(output.shape(), output.dtype(), output.device());
  }
  LIPGRAD_CHECK(cotangent.shape() == output.shape() && cotangent.dtype() == output.dtype(),
                "{}: cotangent {} {} for an output {} {}", what, cotangent.dtype(),
                cotangent.shape(), output.dtype(), output.shape());
  return cotangent.detach();
}

std::int64_t output_of(const char* what, TapeState& state, const Tensor& output) {
  LIPGRAD_CHECK(output.defined(), "{}: the output is undefined", what);
  const std::int64_t id = state.resolve(what, output);
  LIPGRAD_CHECK(id >= 0,
                "{}: the output {} depends on nothing that this tape watches (was it computed "
                "before the tape began, under NoGrad "
                "or after detach()?)",
                what, output.shape());
  return id;
}

}  // namespace

void Tape::backward(const Tensor& loss, BackwardOptions options) {
  backward(loss, Tensor(), options);
}

void Tape::backward(const Tensor& output, const Tensor& cotangent, BackwardOptions options) {
  TapeState& state = *state_;
  const std::int64_t id = output_of("backward", state, output);
  const Tensor start = checked_cotangent("backward", output, cotangent);
  for (const TapeState::Leaf& leaf : state.leaves)
    LIPGRAD_CHECK(leaf.storage->parameter.load(std::memory_order_acquire) == leaf.parameter,
                  "backward: a parameter of shape {} was destroyed, or moved by to(), after the "
                  "forward pass used it",
                  state.values[leaf.value].shape);
  state.run(id, start, options, {});
  for (const TapeState::Leaf& leaf : state.leaves) {
    Tensor& grad = state.values[leaf.value].grad;
    if (grad.defined()) leaf.parameter->add_grad(std::exchange(grad, Tensor()));
  }
  for (std::int64_t leaf : state.leaf_values) state.values[leaf].grad = {};
}

std::vector<Tensor> Tape::grad(const Tensor& output, std::span<const Tensor> inputs,
                               const Tensor& cotangent, BackwardOptions options) {
  TapeState& state = *state_;
  std::vector<std::int64_t> ids;
  for (const Tensor& x : inputs) {
    LIPGRAD_CHECK(x.defined(), "grad: an input is undefined");
    ids.push_back(state.resolve("grad", x));
    LIPGRAD_CHECK(
        ids.back() >= 0,
        "grad: input {} of shape {} is neither a tensor of this tape nor a trainable parameter",
        ids.size() - 1, x.shape());
  }
  const std::int64_t id = output_of("grad", state, output);
  const Tensor start = checked_cotangent("grad", output, cotangent);
  state.wanted.assign(static_cast<std::size_t>(state.values.size()), 0);
  for (std::int64_t input : ids) state.wanted[input] = 1;
  for (std::int64_t n = 0; n < state.nodes.size(); ++n) {
    const TapeState::Node& node = state.nodes[n];
    bool wanted = false;
    for (std::int32_t i = 0; i < node.inputs; ++i) {
      const std::int64_t input = state.input_ids[node.input + i];
      wanted |= input >= 0 && state.wanted[input];
    }
    if (wanted)
      for (std::int32_t i = 0; i < node.outputs; ++i) state.wanted[node.output + i] = 1;
  }
  const auto finish = [&] {
    state.wanted.clear();
    for (std::int64_t input : ids) state.values[input].grad = {};
    for (std::int64_t leaf : state.leaf_values) state.values[leaf].grad = {};
  };
  std::vector<Tensor> grads;
  try {
    state.run(id, start, options, ids);
    for (std::int64_t input : ids) {
      const TapeState::Value& value = state.values[input];
      grads.push_back(value.grad.defined() ? value.grad
                                           : zeros(value.shape, value.dtype, value.device));
    }
  } catch (...) {
    finish();
    throw;
  }
  finish();
  return grads;
}

void Tape::on_gradient(const Tensor& x, std::function<Tensor(const Tensor&)> hook) {
  const std::int64_t id = state_->resolve("on_gradient", x);
  LIPGRAD_CHECK(id >= 0,
                "on_gradient: {} is neither a tensor of this tape nor a trainable parameter",
                x.str());
  state_->hooks.push_back({id, std::move(hook)});
}

std::int64_t Tape::num_ops() const { return state_->nodes.size(); }

Tape* Tape::current() { return innermost ? innermost->tape : nullptr; }

bool Tape::is_recorded(const Tensor& x) {
  if (!recording || !x.defined()) return false;
  if (x.ref().tape == ValueRef::of_parameter) {
    const Parameter* parameter = x.storage()->parameter.load();
    return parameter && parameter->trainable();
  }
  return x.ref().tape == recording->serial;
}

NoGrad::NoGrad() : paused_(std::exchange(recording, nullptr)) {}
NoGrad::~NoGrad() { recording = paused_; }

ModuleScope::ModuleScope(const std::string& path) : outer_(std::exchange(module_path, &path)) {}
ModuleScope::~ModuleScope() { module_path = outer_; }

LeafTape::LeafTape() { tape_.state_->leaves_only = true; }

std::vector<Tensor> LeafTape::parameters() const {
  std::vector<Tensor> used;
  for (const TapeState::Leaf& leaf : tape_.state_->leaves) used.push_back(leaf.parameter->value());
  return used;
}

}  // namespace lipgrad
