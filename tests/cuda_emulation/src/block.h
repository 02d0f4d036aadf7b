#pragma once

// The executor: it runs the blocks of a launch one after another, each CUDA thread as a fiber. A
// thread runs until it returns or waits at a barrier; then the next that can run goes on.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include <cuda_runtime.h>

#include "fiber.h"
#include "state.h"

namespace lipgrad_emulation {

constexpr int kMaxThreads = 1024;
constexpr int kMaxWarps = kMaxThreads / 32;

enum class State : std::uint8_t { fresh, ready, running, waiting, finished };

struct Thread {
  uint3 index;
  int number;
  State state;
  // Of the barrier or intrinsic that it waits in.
  Op op;
  int predicate, parameter, width, line;
  unsigned mask;
  const char* file;
  std::uint64_t value, result;
  // Of its fiber.
  void* stack_pointer;
  Stack* stack;
  void* fake_stack;  // AddressSanitizer's
  void* tsan;        // ThreadSanitizer's fiber
};

// Lanes that gave the same mask and wait for each other.
struct Group {
  unsigned mask, arrived;
  Op op;
};
struct Warp {
  unsigned gone;  // lanes that returned, or that the block does not have
  int groups;
  Group group[32];
};

// Thrown through a kernel to end its threads after an error.
struct Aborted {};

// There is one, which all launches use. What runs on fibers calls no function that the sanitizers
// intercept, and allocates nothing except for an error's text: they would take it for the kernel's.
class Block {
 public:
  // For a launch: `shared_limit` bytes of shared memory, static and dynamic together.
  void prepare(dim3 block, std::size_t dynamic_bytes, std::size_t shared_limit,
               const std::function<void()>& kernel);
  // Runs the block of which blockIdx tells the number.
  void run();
  // After the last block of the launch.
  void finish();
  bool aborted() const { return aborted_; }
  const std::string& error() const { return error_; }
  // Random numbers for the orders of threads and blocks.
  unsigned random(unsigned n);
  void seed(std::uint64_t value) { random_ = value; }

  // What a running thread calls, without a detour since kernels spend their time here.
  friend int block_op(Op op, int predicate, const char* file, int line);
  friend std::uint64_t warp_op(Op op, unsigned mask, std::uint64_t value, int parameter, int width,
                               const char* file, int line);
  void* shared(const void* site, std::size_t bytes, std::size_t align);
  void* dynamic(std::size_t align);

 private:
  // Scheduling (block.cpp).
  void push(Thread& thread);
  Thread* pop();
  Thread* next_or_deadlock();
  void go(Thread* next, void** save, void** fake);
  void landed(void* fake);
  void wait(Thread& me);
  static void fiber_entry();
  void run_threads();
  void finished(Thread& thread);
  Stack* take_stack(const Thread& thread);
  void forget_races();
  void retire_fibers();
  void abort(const std::string& message);
  [[noreturn]] void die(const Thread& thread, const std::string& message);
  void deadlock();
  // Barriers of the block (barriers.cpp).
  void release_barrier();
  // Warps (warps.cpp).
  void resolve(Warp& warp, const Group& group);
  bool complete(Warp& warp, int group);
  void complete_all(Warp& warp);
  Thread* lanes(const Warp& warp) { return threads_ + (&warp - warps_) * 32; }
  // Shared memory (shared_memory.cpp).
  void reset_shared();

  const std::function<void()>* kernel_ = nullptr;
  Thread threads_[kMaxThreads];
  Warp warps_[kMaxWarps];
  int order_ = 0;  // as config() says
  int count_ = 0;  // threads
  int live_ = 0;   // those that did not return
  Thread* current_ = nullptr;

  // Threads that can run, as a ring.
  static constexpr unsigned kRing = 2 * kMaxThreads;
  int ring_[kRing];
  unsigned head_ = 0, tail_ = 0;
  std::uint64_t random_ = 1;

  // The context that called run().
  struct {
    void *stack_pointer, *fake_stack;
    const void* bottom;
    std::size_t bytes;
    void* tsan;
  } main_ = {};

  int arrived_ = 0, predicates_ = 0, barrier_result_[2] = {};
  unsigned generation_ = 0;
  // Addresses that stand for this block's barriers, and for its end, towards ThreadSanitizer.
  char* sync_ = nullptr;
  char end_sync_[8];

  bool aborted_ = false;
  std::string error_;

  struct Variable {
    const void* site;
    char* begin;
  };
  static constexpr int kVariables = 64;
  char* memory_ = nullptr;
  std::size_t used_ = 0, dirty_ = 0, static_bytes_ = 0, dynamic_bytes_ = 0, shared_limit_ = 0;
  char* dynamic_ = nullptr;
  Variable variables_[kVariables];
  int variable_count_ = 0;

  Stack stacks_[kMaxThreads + 1];
  int free_stacks_[kMaxThreads + 1];
  int stack_count_ = 0, free_count_ = 0;
};

extern Block block;
extern Stats counters;

const char* op_name(Op op);
// "__syncthreads (softmax.cu:31)"
std::string place(const Thread& thread);

}  // namespace lipgrad_emulation
