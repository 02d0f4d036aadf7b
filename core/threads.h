#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

namespace lipgrad {

// Number of threads that parallel_for uses, the calling one included. At first: the processors this
// process may run on, or the value of the environment variable LIPGRAD_THREADS. Results never
// depend on it.
int num_threads();
// Error unless 1 <= count <= 1024. Not to be called while a parallel_for runs on another thread.
void set_num_threads(int count);

namespace detail {
using BlockFn = void (*)(void* context, std::int64_t block);
void run_blocks(std::int64_t blocks, BlockFn fn, void* context);
}  // namespace detail

// Calls f(begin, end) for consecutive pieces of [0, n) that hold `grain` items each (the last one
// fewer), on the threads of the pool. The pieces depend on n and grain alone: an f that combines
// partial results piece by piece gives the same bits on any number of threads. Inside another
// parallel_for the pieces run on the calling thread. The first exception is re-thrown here after
// all pieces ended.
template <class F>
void parallel_for(std::int64_t n, std::int64_t grain, F&& f) {
  if (n <= 0) return;
  if (grain < 1) grain = 1;
  if (n <= grain) {
    f(std::int64_t{0}, n);
    return;
  }
  struct Context {
    std::remove_reference_t<F>& f;
    std::int64_t n, grain;
  } context{f, n, grain};
  detail::run_blocks((n + grain - 1) / grain,
                     [](void* p, std::int64_t block) {
                       auto& c = *static_cast<Context*>(p);
                       const std::int64_t begin = block * c.grain;
                       c.f(begin, c.n - begin < c.grain ? c.n : begin + c.grain);
                     },
                     &context);
}

}  // namespace lipgrad
