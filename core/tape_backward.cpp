// The backward pass of a tape: one step a node, the last recorded one first.

#include <algorithm>

#include <lipgrad/core/check.h>
#include <lipgrad/core/op.h>
#include <lipgrad/core/runtime.h>
#include <lipgrad/core/tape_state.h>

namespace lipgrad {

void TapeState::add_gradient(const Node& node, std::int64_t id, Tensor g) {
  Value& value = values[id];
  LIPGRAD_CHECK(g.dtype() == value.dtype && g.device() == value.device &&
                    broadcasts_to(value.shape, g.shape()),
                "{}: backward gave a gradient {} {} for an input {} {}", describe(node), g.dtype(),
                g.shape(), value.dtype, value.shape);
  g.set_ref({});
  Runtime& device = runtime(value.device);
  const bool fits = g.shape() == value.shape;
  if (!value.grad.defined()) {
    if (fits) {
      value.grad = std::move(g);
    } else {
      value.grad = zeros(value.shape, value.dtype, value.device);
      device.accumulate(value.grad, g);
    }
  } else if (value.grad.owns_storage()) {
    device.accumulate(value.grad, g);
  } else if (fits && g.owns_storage()) {
    device.accumulate(g, value.grad);
    value.grad = std::move(g);
  } else {
    value.grad = value.grad.clone();
    device.accumulate(value.grad, g);
  }
}

void TapeState::run_hooks(std::int64_t id) {
  for (const Hook& hook : hooks) {
    if (hook.value != id) continue;
    const NoGrad off;
    Tensor replaced = hook.call(values[id].grad);
    if (!replaced.defined()) continue;
    LIPGRAD_CHECK(replaced.shape() == values[id].shape && replaced.dtype() == values[id].dtype,
                  "on_gradient: the hook returned {} {} for a gradient {} {}", replaced.dtype(),
                  replaced.shape(), values[id].dtype, values[id].shape);
    values[id].grad = replaced.detach();
  }
}

void TapeState::check_saved(const Node& node) const {
  for (std::int32_t k = 0; k < node.saves; ++k) {
    const Saved& saved = saved_tensors[node.saved + k];
    if (!saved.tensor.defined()) continue;
    const std::uint32_t version = saved.tensor.storage()->version.load(std::memory_order_relaxed);
    LIPGRAD_CHECK(version == saved.version,
                  "{}: the saved tensor {} of shape {} was changed after the forward pass and "
                  "before backward; clone() it, or "
                  "change it later",
                  describe(node), k, saved.tensor.shape());
  }
}

void TapeState::step(const Node& node, std::int64_t index, std::vector<Tensor>& gy,
                     std::vector<Tensor>& gx, bool retain, std::span<const std::int64_t> kept) {
  bool reached = false, wanted = false;
  for (std::int32_t i = 0; i < node.outputs; ++i) reached |= values[node.output + i].grad.defined();
  if (!reached) return;
  for (std::int32_t i = 0; i < node.outputs; ++i)
    if (!hooks.empty() && values[node.output + i].grad.defined()) run_hooks(node.output + i);
  for (std::int32_t i = 0; i < node.inputs; ++i) wanted |= needs_grad(index, i);

  gy.clear();
  for (std::int32_t i = 0; i < node.outputs; ++i) {
    const std::int64_t id = node.output + i;
    const bool keep = std::find(kept.begin(), kept.end(), id) != kept.end();
    gy.push_back(keep ? values[id].grad : std::move(values[id].grad));
    if (!keep) values[id].grad = {};
  }
  if (wanted) {
    LIPGRAD_CHECK(
        !node.freed,
        "{}: what it saved was freed by an earlier backward pass; give that one {{.retain = true}}",
        describe(node));
    check_saved(node);
    gx.assign(node.inputs, Tensor());
    Ctx ctx(this, index);
    node.info->backward(node.op, ctx, Inputs(std::span<const Tensor>(gy)), Grads(gx));
    // Released before the gradients are added up, so that an op that hands gy on hands on the only
    // handle.
    gy.clear();
    for (std::int32_t i = 0; i < node.inputs; ++i) {
      if (!gx[i].defined() || !needs_grad(index, i)) continue;
      if (options.anomaly && runtime(gx[i].device()).has_nonfinite(gx[i]))
        fail("{}: the gradient of input {} has a NaN or infinity", describe(node), i);
      add_gradient(node, input_ids[node.input + i], std::move(gx[i]));
    }
  }
  if (!retain) {
    for (std::int32_t k = 0; k < node.saves; ++k) saved_tensors[node.saved + k].tensor = {};
    nodes[index].freed = true;
  }
}

void TapeState::run(std::int64_t output, const Tensor& cotangent, BackwardOptions options,
                    std::span<const std::int64_t> kept) {
  const NoGrad off;
  values[output].grad = cotangent;
  std::vector<Tensor> gy, gx;
  try {
    for (std::int64_t i = values[output].node; i >= 0; --i)
      step(Node(nodes[i]), i, gy, gx, options.retain, kept);
    if (!hooks.empty())
      for (std::int64_t leaf : leaf_values)
        if (values[leaf].grad.defined()) run_hooks(leaf);
  } catch (...) {
    for (std::int64_t id = 0; id < values.size(); ++id) values[id].grad = {};
    throw;
  }
}

}  // namespace lipgrad
