#include "block.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstring>
#include <deque>
#include <exception>

#include "sanitizers.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace lipgrad_emulation {
namespace {

// How much of a stack's top the frames of kernels may use under ThreadSanitizer.
constexpr std::size_t kUsedStack = 16 << 10;

// Makes ThreadSanitizer forget earlier accesses.
void renew(char* p, std::size_t bytes) {
  mmap(p, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

}  // namespace

Block block;
Stats counters;
Stats& stats() { return counters; }

unsigned Block::random(unsigned n) {
  random_ ^= random_ << 13;
  random_ ^= random_ >> 7;
  random_ ^= random_ << 17;
  return static_cast<unsigned>(random_ >> 33) % n;
}

void Block::prepare(dim3 size, std::size_t dynamic_bytes, std::size_t shared_limit,
                    const std::function<void()>& kernel) {
  count_ = static_cast<int>(size.x * size.y * size.z);
  for (int i = 0; i < count_; ++i) {
    const auto n = static_cast<unsigned>(i);
    threads_[i].number = i;
    threads_[i].index = {n % size.x, n / size.x % size.y, n / (size.x * size.y)};
  }
  kernel_ = &kernel;
  order_ = config().order;
  dynamic_bytes_ = dynamic_bytes;
  shared_limit_ = shared_limit;
  aborted_ = false;
  error_.clear();
  main_.bottom = nullptr;
  if (__tsan_get_current_fiber) main_.tsan = __tsan_get_current_fiber();
}

void Block::run() {
  head_ = tail_ = 0;
  live_ = count_;
  arrived_ = predicates_ = 0;
  reset_shared();
  if (under_tsan()) forget_races();
  const int warps = (count_ + 31) / 32;
  for (int w = 0; w < warps; ++w) warps_[w].gone = 0, warps_[w].groups = 0;
  if (count_ % 32 != 0) warps_[warps - 1].gone = ~0u << (count_ % 32);
  for (int i = 0; i < count_; ++i) {
    Thread& thread = threads_[order_ == 1 ? count_ - 1 - i : i];
    thread.state = State::fresh;
    thread.op = Op::none;
    if (under_tsan()) thread.tsan = __tsan_create_fiber(0);
    push(thread);
  }
  ++counters.blocks;
  counters.threads += static_cast<std::uint64_t>(count_);
  go(pop(), &main_.stack_pointer, &main_.fake_stack);
  landed(main_.fake_stack);
  if (under_tsan()) {
    free_count_ = 0;
    retire_fibers();
  }
}

// Only now, since one block's end does not order another block's accesses.
void Block::finish() {
  if (under_tsan()) __tsan_acquire(end_sync_);
}

// Blocks use the same stacks, shared memory and barriers one after another, which is no race.
void Block::forget_races() {
  constexpr std::size_t bytes = 512, blocks = 2048;
  static char* sync = static_cast<char*>(mmap(nullptr, bytes * blocks, PROT_READ | PROT_WRITE,
                                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (counters.blocks % blocks == 0) renew(sync, bytes * blocks);
  sync_ = sync + counters.blocks % blocks * bytes;
  while (stack_count_ < count_) {
    stacks_[stack_count_] = make_stack(256 << 10);
    ++stack_count_;
  }
  for (int i = 0; i < count_; ++i)
    renew(stacks_[i].base + stacks_[i].bytes - kUsedStack, kUsedStack);
}

// ThreadSanitizer reports a race only with a thread that it still knows, so the fibers of the last
// blocks are kept for a while.
void Block::retire_fibers() {
  static auto& old = *new std::deque<void*>;
  static const auto most = static_cast<std::size_t>(environment("TSAN_FIBERS", 1024));
  for (int i = 0; i < count_; ++i) old.push_back(threads_[i].tsan);
  for (; old.size() > most; old.pop_front()) __tsan_destroy_fiber(old.front());
}

void Block::push(Thread& thread) {
  if (thread.state != State::fresh) thread.state = State::ready;
  ring_[tail_++ % kRing] = thread.number;
}

Thread* Block::pop() {
  while (head_ != tail_) {
    if (order_ >= 2) {
      int &first = ring_[head_ % kRing], &other = ring_[(head_ + random(tail_ - head_)) % kRing];
      const int number = first;
      first = other;
      other = number;
    }
    Thread& thread = threads_[ring_[head_++ % kRing]];
    if (!aborted_ || thread.state != State::fresh) return &thread;
    thread.state = State::finished;
  }
  return nullptr;
}

Thread* Block::next_or_deadlock() {
  if (Thread* next = pop()) return next;
  if (live_ == 0 || aborted_) return nullptr;
  deadlock();
  return pop();
}

// Under ThreadSanitizer every thread of a block has its own stack. Otherwise a thread takes one
// when it starts and leaves it to the next when it ends.
Stack* Block::take_stack(const Thread& thread) {
  if (under_tsan()) return &stacks_[thread.number];
  if (free_count_ > 0) return &stacks_[free_stacks_[--free_count_]];
  stacks_[stack_count_] = make_stack(under_asan() ? 256 << 10 : 64 << 10);
  return &stacks_[stack_count_++];
}

// Leaves this context, to be found again by *save, for a thread, or (null) for the caller of run().
void Block::go(Thread* next, void** save, void** fake) {
  ++counters.switches;
  void* load = main_.stack_pointer;
  const void* bottom = main_.bottom;
  std::size_t bytes = main_.bytes;
  current_ = next;
  if (next) {
    if (next->state == State::fresh) {
      next->stack = take_stack(*next);
      unpoison(next->stack->base, next->stack->bytes);
      load = new_context(*next->stack, fiber_entry);
    } else {
      load = next->stack_pointer;
      next->state = State::running;
    }
    bottom = next->stack->base;
    bytes = next->stack->bytes;
    threadIdx = next->index;
  }
  if (__sanitizer_start_switch_fiber) __sanitizer_start_switch_fiber(fake, bottom, bytes);
  if (under_tsan()) __tsan_switch_to_fiber(next ? next->tsan : main_.tsan, 1);
  lipgrad_emulation_switch(save, load);
}

void Block::landed(void* fake) {
  if (__sanitizer_finish_switch_fiber) __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
}

void Block::fiber_entry() {
  if (__sanitizer_finish_switch_fiber) {
    const void* bottom = nullptr;
    std::size_t bytes = 0;
    __sanitizer_finish_switch_fiber(nullptr, &bottom, &bytes);
    if (!block.main_.bottom) {  // the first fiber of a launch is entered from the main context
      block.main_.bottom = bottom;
      block.main_.bytes = bytes;
    }
  }
  block.run_threads();
}

// The life of a fiber: it runs one thread after another, until the next that can run has a fiber
// already.
void Block::run_threads() {
  for (;;) {
    Thread& thread = *current_;
    thread.state = State::running;
    threadIdx = thread.index;
    try {
      (*kernel_)();
    } catch (const Aborted&) {
    } catch (const std::exception& e) {
      abort(std::string("exception in kernel: ") + e.what());
    }
    if (under_tsan()) __tsan_release(end_sync_);
    finished(thread);
    Thread* next = next_or_deadlock();
    if (next && next->state == State::fresh && !under_tsan()) {
      next->stack = thread.stack;
      current_ = next;
      continue;
    }
    free_stacks_[free_count_++] = static_cast<int>(thread.stack - stacks_);
    void* never = nullptr;
    go(next, &never, nullptr);
  }
}

void Block::finished(Thread& thread) {
  thread.state = State::finished;
  --live_;
  if (aborted_) return;
  Warp& warp = warps_[thread.number / 32];
  warp.gone |= 1u << (thread.number % 32);
  if (arrived_ > 0 && arrived_ == live_) release_barrier();
  if (warp.groups > 0) complete_all(warp);
}

void Block::wait(Thread& me) {
  me.state = State::waiting;
  Thread* next = next_or_deadlock();
  if (next == &me) {
    me.state = State::running;
  } else {
    go(next, &me.stack_pointer, &me.fake_stack);
    landed(me.fake_stack);
  }
  if (aborted_) throw Aborted{};
}

void Block::abort(const std::string& message) {
  if (aborted_) return;
  aborted_ = true;
  char where[64];
  std::snprintf(where, sizeof where, "block (%u,%u,%u): ", blockIdx.x, blockIdx.y, blockIdx.z);
  error_ = where + message;
  for (int i = 0; i < count_; ++i)
    if (threads_[i].state == State::waiting) push(threads_[i]);
}

void Block::die(const Thread& thread, const std::string& message) {
  abort(message + " in " + place(thread));
  throw Aborted{};
}

// Nobody can go on: tells who waits where, threads in the same place together.
void Block::deadlock() {
  std::string message = "deadlock, no thread can go on:";
  for (int first = 0; first < count_;) {
    const Thread& thread = threads_[first];
    const auto alike = [&](const Thread& other) {
      if (other.state != thread.state) return false;
      return thread.state != State::waiting ||
             (other.op == thread.op && other.line == thread.line && other.mask == thread.mask);
    };
    int last = first;
    while (last + 1 < count_ && alike(threads_[last + 1])) ++last;
    char text[64];
    std::snprintf(text, sizeof text, " threads %d-%d ", first, last);
    message += text;
    if (thread.state == State::finished) {
      message += "returned;";
    } else {
      message += "wait at " + place(thread);
      if (thread.op >= Op::syncwarp) {
        std::snprintf(text, sizeof text, " mask %08x", thread.mask);
        message += text;
      }
      message += ";";
    }
    first = last + 1;
  }
  abort(message);
}

std::string place(const Thread& thread) {
  const char* slash = std::strrchr(thread.file, '/');
  return std::string(op_name(thread.op)) + " (" + (slash ? slash + 1 : thread.file) + ":" +
         std::to_string(thread.line) + ")";
}

const char* op_name(Op op) {
  static const char* const names[] = {"?",
                                      "__syncthreads",
                                      "__syncthreads_count",
                                      "__syncthreads_and",
                                      "__syncthreads_or",
                                      "__syncwarp",
                                      "__shfl_sync",
                                      "__shfl_up_sync",
                                      "__shfl_down_sync",
                                      "__shfl_xor_sync",
                                      "__ballot_sync",
                                      "__any_sync",
                                      "__all_sync",
                                      "__match_any_sync",
                                      "__reduce_add_sync",
                                      "__reduce_min_sync",
                                      "__reduce_max_sync",
                                      "__reduce_min_sync",
                                      "__reduce_max_sync",
                                      "__reduce_and_sync",
                                      "__reduce_or_sync",
                                      "__reduce_xor_sync"};
  return names[static_cast<int>(op)];
}

}  // namespace lipgrad_emulation
