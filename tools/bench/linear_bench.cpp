#include <lipgrad/core/tape.h>
#include <lipgrad/ops/linear.h>

#include "bench.h"

namespace lipgrad::bench {
namespace {

// Arguments: rows, in, out, activation, threads. Forward and all three gradients.
void linear_step_f32(benchmark::State& state) {
  const std::int64_t rows = state.range(0), in = state.range(1), out = state.range(2);
  const auto f = static_cast<Activation>(state.range(3));
  const Threads threads(state.range(4));
  const Tensor x = normal({rows, in}), w = normal({out, in}), b = normal({out}),
               g = normal({rows, out});
  const auto step = [&] {
    Tape tape;
    const Tensor vx = tape.watch(x), vw = tape.watch(w), vb = tape.watch(b);
    const Tensor y = linear(vx, vw, vb, {f});
    return tape.grad(y, {vx, vw, vb}, g);
  };
  time(state, step);
  state.counters["flop/s"] = per_second(6.0 * double(rows) * double(in) * double(out));
}
BENCHMARK(linear_step_f32)
    ->Args({784, 768, 3072, static_cast<int>(Activation::identity), 1})
    ->Args({784, 768, 3072, static_cast<int>(Activation::identity), 2})
    ->Args({784, 768, 3072, static_cast<int>(Activation::gelu), 2})
    ->Args({2708, 64, 7, static_cast<int>(Activation::identity), 1})
    ->Args({2708, 64, 7, static_cast<int>(Activation::identity), 2})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace lipgrad::bench
