#pragma once

#include <functional>
#include <vector>

#include <lipgrad/core/op.h>
#include <lipgrad/core/random.h>

namespace lipgrad {

// Trades time for memory: runs fn(inputs) and saves only the inputs; backward runs fn again, with
// the same random numbers, to compute what its ops would have saved (activation checkpointing:
// Chen, Xu, Zhang, Guestrin 2016, arXiv:1604.06174). `rng` is the generator that fn draws from. fn
// must compute from `inputs`, parameters and constants only (a tensor of the surrounding tape that
// it captures is an error), and whatever it refers to must live until backward. The replay updates
// no buffers.
std::vector<Tensor> checkpoint(std::function<std::vector<Tensor>(Inputs)> fn, Generator& rng,
                               std::vector<Tensor> inputs);
// The same for one output: checkpoint([&](Inputs in) { return block.forward(in[0], mode); }, rng,
// x).
template <class F, class... Ts>
requires(std::convertible_to<std::invoke_result_t<F&, Inputs>, Tensor> &&
         (std::convertible_to<const Ts&, const Tensor&> && ...)) Tensor
    checkpoint(F fn, Generator& rng, const Ts&... inputs) {
  return checkpoint(std::function<std::vector<Tensor>(Inputs)>(
                        [fn = std::move(fn)](Inputs in) { return std::vector<Tensor>{fn(in)}; }),
                    rng, std::vector<Tensor>{static_cast<const Tensor&>(inputs)...})[0];
}

// Whether checkpoint() replays a forward pass on this thread.
bool is_replaying();

}  // namespace lipgrad
