#pragma once

#include <benchmark/benchmark.h>

#include <type_traits>

#include <lipgrad/core/random.h>
#include <lipgrad/core/threads.h>

namespace lipgrad::bench {

// Sets the number of threads for one benchmark, whose last argument it is.
class Threads {
 public:
  explicit Threads(std::int64_t count) : before_(num_threads()) {
    set_num_threads(static_cast<int>(count));
  }
  ~Threads() { set_num_threads(before_); }

 private:
  int before_;
};

inline Tensor normal(const Shape& shape, DType dtype = f32) {
  Generator rng{1};
  return randn(shape, dtype, rng);
}

// Times f(), after one call that brings the memory it needs.
template <class F>
void time(benchmark::State& state, F&& f) {
  const auto once = [&] {
    if constexpr (std::is_void_v<decltype(f())>) {
      f();
      benchmark::ClobberMemory();
    } else {
      benchmark::DoNotOptimize(f());
    }
  };
  once();
  for (auto _ : state) once();
}

// For a counter that is shown as a rate: count per iteration and second.
inline benchmark::Counter per_second(double count) {
  return benchmark::Counter(
      count, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kAvgThreads);
}

}  // namespace lipgrad::bench
