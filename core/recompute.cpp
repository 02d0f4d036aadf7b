#include <lipgrad/core/recompute.h>

#include <memory>

#include <lipgrad/core/check.h>
#include <lipgrad/core/runtime.h>
#include <lipgrad/core/tape_state.h>

namespace lipgrad {
namespace {

thread_local int replays = 0;

struct Replay {
  Replay() { ++replays; }
  ~Replay() { --replays; }
};

using Fn = std::function<std::vector<Tensor>(Inputs)>;

// The generator as it was before a piece of work, and back to where it was after it.
class Rewound {
 public:
  Rewound(Generator& rng, std::uint64_t seed, std::uint64_t next_draw)
      : rng_(rng), seed_(rng.seed()), next_draw_(rng.next_draw()) {
    rng.restore(seed, next_draw);
  }
  ~Rewound() { rng_.restore(seed_, next_draw_); }

 private:
  Generator& rng_;
  std::uint64_t seed_, next_draw_;
};

// Inputs: those of fn, then every parameter that fn used. Outputs: those of fn, computed
// beforehand.
struct Recompute {
  static constexpr auto name = "checkpoint";
  Fn fn;
  Generator* rng;
  std::uint64_t seed, next_draw;
  std::size_t num_inputs;
  std::shared_ptr<std::vector<Tensor>> outputs;  // handed over by forward

  std::vector<Tensor> forward(Ctx& ctx, Inputs in) const {
    for (std::size_t i = 0; i < in.size(); ++i) ctx.save(in[i]);
    return std::move(*outputs);
  }

  void backward(Ctx& ctx, Inputs gy, Grads gx) const {
    const Replay replay;
    const Rewound rewound(*rng, seed, next_draw);
    Tape tape;
    std::vector<Tensor> inputs, wanted;
    std::vector<std::size_t> slots;
    for (std::size_t i = 0; i < num_inputs; ++i) {
      const bool needs = ctx.needs_grad(i);
      inputs.push_back(needs ? tape.watch(ctx.saved(i)) : ctx.saved(i).detach());
      if (needs) {
        wanted.push_back(inputs.back());
        slots.push_back(i);
      }
    }
    for (std::size_t i = num_inputs; i < gx.size(); ++i) {
      if (!ctx.needs_grad(i)) continue;
      wanted.push_back(ctx.saved(i));
      slots.push_back(i);
    }
    const std::vector<Tensor> replayed = fn(inputs);
    LIPGRAD_CHECK(replayed.size() == gy.size(),
                  "checkpoint: the function returned {} tensors, and {} when replayed", gy.size(),
                  replayed.size());
    for (std::size_t k = 0; k < gy.size(); ++k) {
      if (!gy[k].defined() || !Tape::is_recorded(replayed[k])) continue;
      const std::vector<Tensor> grads =
          tape.grad(replayed[k], wanted, gy[k], {.retain = k + 1 < gy.size()});
      for (std::size_t i = 0; i < slots.size(); ++i) {
        Tensor& slot = gx[slots[i]];
        if (slot.defined()) {
          slot = slot.clone();
          runtime(slot.device()).accumulate(slot, grads[i]);
        } else {
          slot = grads[i];
        }
      }
    }
  }
};

}  // namespace

bool is_replaying() { return replays > 0; }

std::vector<Tensor> checkpoint(Fn fn, Generator& rng, std::vector<Tensor> inputs) {
  if (!Tape::current()) return fn(inputs);
  Recompute op{std::move(fn),   &rng,          rng.seed(),
               rng.next_draw(), inputs.size(), std::make_shared<std::vector<Tensor>>()};
  std::vector<Tensor> all = inputs;
  {
    std::vector<Tensor> detached;
    for (const Tensor& x : inputs)
      detached.push_back(x.ref().tape == ValueRef::of_parameter ? x : x.detach());
    const LeafTape leaves;
    *op.outputs = op.fn(detached);
    for (Tensor& y : *op.outputs) y = y.detach();
    for (Tensor& parameter : leaves.parameters()) all.push_back(std::move(parameter));
  }
  return apply(std::move(op), Inputs(all));
}

}  // namespace lipgrad
