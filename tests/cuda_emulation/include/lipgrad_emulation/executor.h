#pragma once

// What the headers and the library stand-ins call: the block executor, checks of pointers, and the
// switches and counters that tests use. Not part of CUDA's interface.

#include <cstddef>
#include <cstdint>

namespace lipgrad_emulation {

// Set from the environment: LIPGRAD_EMULATION_ORDER and so on. A test may change them between
// launches.
struct Config {
  int order = 0;        // 0 forward, 1 reverse, 2 and more: seeds of random thread and block orders
  bool lazy = false;    // stream work runs only when something waits for it
  bool protect = true;  // host code that touches device memory faults
  bool strict_exit = true;      // a thread that returned while others wait at a barrier is an error
  bool poison = true;           // fresh device and shared memory holds NaN
  bool abort_on_error = false;  // stop the program at the first thing found wrong
  int devices = 1;              // at most 2
  int multiprocessors = 4;      // what a device says that it has
};
Config& config();

// Device memory that cudaMalloc hands out on each device, in bytes; 0: as much as there is.
void set_memory_limit(std::uint64_t bytes);

struct Stats {
  std::uint64_t launches, blocks, threads, switches, collectives;
};
Stats& stats();
// The text of what was last found wrong.
const char* last_message();

enum class Op : std::uint8_t {
  none,
  syncthreads,
  sync_count,
  sync_and,
  sync_or,
  syncwarp,
  shfl,
  shfl_up,
  shfl_down,
  shfl_xor,
  ballot,
  any,
  all,
  match_any,
  reduce_add,
  reduce_min,
  reduce_max,
  reduce_umin,
  reduce_umax,
  reduce_and,
  reduce_or,
  reduce_xor
};
// A barrier of the block; the value counts the threads whose predicate is not 0.
int block_op(Op op, int predicate, const char* file, int line);
// What the lanes of `mask` do together.
std::uint64_t warp_op(Op op, unsigned mask, std::uint64_t value, int parameter, int width,
                      const char* file, int line);
// Shared memory of the running block: the same for all its threads that come by the same site.
void* shared_memory(const void* site, std::size_t bytes, std::size_t align);
void* dynamic_shared(std::size_t align);
void fence();

template <class T>
T& shared_variable(const void* site) {
  return *static_cast<T*>(shared_memory(site, sizeof(T), alignof(T) < 16 ? 16 : alignof(T)));
}

// Whether [p, p + bytes) lies in one allocation of the device (-1: the current one) or in pinned
// memory; tells what is wrong when it does not.
bool check_range(const void* p, std::size_t bytes, const char* what, int device = -1);
bool is_device_pointer(const void* p);

}  // namespace lipgrad_emulation
