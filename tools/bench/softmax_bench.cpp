#include <lipgrad/core/tape.h>
#include <lipgrad/ops/softmax.h>

#include "bench.h"

namespace lipgrad::bench {
namespace {

// Arguments: rows, columns, threads. "byte/s" counts each tensor read or written once.
void softmax_f32(benchmark::State& state) {
  const Threads threads(state.range(2));
  const Tensor x = normal({state.range(0), state.range(1)});
  time(state, [&] { return softmax(x); });
  state.counters["byte/s"] = per_second(8.0 * double(x.numel()));
}
void softmax_step_f32(benchmark::State& state) {
  const Threads threads(state.range(2));
  const Tensor x = normal({state.range(0), state.range(1)}), g = normal(x.shape());
  time(state, [&] {
    Tape tape;
    const Tensor vx = tape.watch(x);
    return tape.grad(softmax(vx), {vx}, g);
  });
  state.counters["byte/s"] = per_second(20.0 * double(x.numel()));
}

void sizes(benchmark::internal::Benchmark* b) {
  for (std::int64_t threads : {1, 2}) {
    b->Args({2708, 7, threads});
    b->Args({48 * 197, 197, threads});
    b->Args({4096, 1000, threads});
  }
  b->UseRealTime()->Unit(benchmark::kMicrosecond);
}
BENCHMARK(softmax_f32)->Apply(sizes);
BENCHMARK(softmax_step_f32)->Apply(sizes);

}  // namespace
}  // namespace lipgrad::bench
