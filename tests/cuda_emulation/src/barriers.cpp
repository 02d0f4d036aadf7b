// Barriers of a block.

#include "block.h"
#include "sanitizers.h"

namespace lipgrad_emulation {

// All threads that did not return are here: checks that they came to the same barrier and wakes
// them.
void Block::release_barrier() {
  const Thread* first = nullptr;
  for (int i = 0; i < count_; ++i) {
    const Thread& thread = threads_[i];
    if (thread.state == State::finished || thread.op == Op::none || thread.op > Op::sync_or)
      continue;
    if (thread.state != State::waiting && &thread != current_) continue;
    if (!first) first = &thread;
    if (thread.line != first->line || thread.op != first->op || thread.file != first->file)
      return abort("divergent barrier: thread " + std::to_string(first->number) + " waits at " +
                   place(*first) + ", thread " + std::to_string(thread.number) + " at " +
                   place(thread));
  }
  if (config().strict_exit && live_ != count_)
    return abort(std::to_string(count_ - live_) + " threads returned before " + place(*first));
  barrier_result_[generation_ & 1] = predicates_;
  ++generation_;
  arrived_ = predicates_ = 0;
  for (int i = 0; i < count_; ++i) {
    Thread& thread = threads_[order_ == 1 ? count_ - 1 - i : i];
    if (thread.state == State::waiting && thread.op <= Op::sync_or) push(thread);
  }
}

int block_op(Op op, int predicate, const char* file, int line) {
  Block& b = block;
  Thread& me = *b.current_;
  me.op = op;
  me.file = file;
  me.line = line;
  const unsigned parity = b.generation_ & 1;
  if (under_tsan()) __tsan_release(b.sync_ + 8 * parity);
  b.predicates_ += predicate != 0;
  const int threads = b.live_;
  if (++b.arrived_ == b.live_) {
    b.release_barrier();
    if (b.aborted_) throw Aborted{};
  } else {
    b.wait(me);
  }
  if (under_tsan()) __tsan_acquire(b.sync_ + 8 * parity);
  const int result = b.barrier_result_[parity];
  return op == Op::sync_and ? result == threads : op == Op::sync_or ? result != 0 : result;
}

// Stronger than CUDA's fences, which order only the caller's accesses.
void fence() {
  static char sync[8];
  if (!under_tsan()) return;
  __tsan_acquire(sync);
  __tsan_release(sync);
}

}  // namespace lipgrad_emulation
