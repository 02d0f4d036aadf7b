#include <lipgrad/core/tape.h>
#include <lipgrad/ops/elementwise.h>

#include "bench.h"

namespace lipgrad::bench {
namespace {

// A chain of `range(0)` ops on one scalar, forward and backward: what the engine costs an op.
// Arguments: ops, kind (0: x * a, 1: x * y with a leaf y).
void tape_chain(benchmark::State& state) {
  const std::int64_t ops = state.range(0);
  const Tensor start = full({}, 1.0), factor = full({}, 0.9999999);
  time(state, [&] {
    Tape tape;
    const Tensor leaf = tape.watch(start), other = tape.watch(factor);
    Tensor x = leaf;
    if (state.range(1) == 0) {
      for (std::int64_t i = 0; i < ops; ++i) x = x * 0.9999999;
    } else {
      for (std::int64_t i = 0; i < ops; ++i) x = x * other;
    }
    return tape.grad(x, {leaf});
  });
  state.counters["op/s"] = per_second(double(ops));
}
BENCHMARK(tape_chain)
    ->Args({500000, 0})
    ->Args({500000, 1})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace lipgrad::bench
