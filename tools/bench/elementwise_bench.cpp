#include <lipgrad/core/tape.h>
#include <lipgrad/ops/activation.h>
#include <lipgrad/ops/dropout.h>
#include <lipgrad/ops/elementwise.h>

#include "bench.h"

namespace lipgrad::bench {
namespace {

// Arguments: elements, threads. "byte/s" counts each tensor read or written once.
template <class F>
void run(benchmark::State& state, double tensors, F f) {
  const Threads threads(state.range(1));
  const Tensor x = normal({state.range(0)});
  time(state, [&] { return f(x); });
  state.counters["byte/s"] = per_second(4.0 * tensors * double(state.range(0)));
}

void add_f32(benchmark::State& state) {
  const Tensor y = normal({state.range(0)});
  run(state, 3, [&](const Tensor& x) { return x + y; });
}
void relu_f32(benchmark::State& state) {
  run(state, 2, [](const Tensor& x) { return relu(x); });
}
void exp_f32(benchmark::State& state) {
  run(state, 2, [](const Tensor& x) { return exp(x); });
}
void elu_f32(benchmark::State& state) {
  run(state, 2, [](const Tensor& x) { return elu(x); });
}
void gelu_f32(benchmark::State& state) {
  run(state, 2, [](const Tensor& x) { return gelu(x); });
}
void dropout_f32(benchmark::State& state) {
  Generator rng{1};
  run(state, 2, [&](const Tensor& x) { return dropout(x, 0.6, Mode::train(rng)); });
}
// Forward and backward.
void gelu_step_f32(benchmark::State& state) {
  const Tensor g = normal({state.range(0)});
  run(state, 5, [&](const Tensor& x) {
    Tape tape;
    const Tensor vx = tape.watch(x);
    return tape.grad(gelu(vx), {vx}, g);
  });
}

void sizes(benchmark::internal::Benchmark* b) {
  for (std::int64_t n : {1 << 10, 173312, 1 << 24})  // 173312: 2708 x 64
    for (std::int64_t threads : {1, 2}) b->Args({n, threads});
  b->UseRealTime()->Unit(benchmark::kMicrosecond);
}
BENCHMARK(add_f32)->Apply(sizes);
BENCHMARK(relu_f32)->Apply(sizes);
BENCHMARK(exp_f32)->Apply(sizes);
BENCHMARK(elu_f32)->Apply(sizes);
BENCHMARK(gelu_f32)->Apply(sizes);
BENCHMARK(dropout_f32)->Apply(sizes);
BENCHMARK(gelu_step_f32)->Apply(sizes);

}  // namespace
}  // namespace lipgrad::bench
