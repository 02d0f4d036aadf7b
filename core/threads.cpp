#include <lipgrad/core/threads.h>

#include <sched.h>

#include <atomic>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <lipgrad/core/check.h>

namespace lipgrad {
namespace {

constexpr int max_threads = 1024;

thread_local bool in_parallel = false;

int default_threads() {
  if (const char* text = std::getenv("LIPGRAD_THREADS")) {
    char* end = nullptr;
    const long value = std::strtol(text, &end, 10);
    LIPGRAD_CHECK(end != text && *end == '\0' && value >= 1 && value <= max_threads,
                  "LIPGRAD_THREADS: expected a number from 1 to {}, got '{}'", max_threads, text);
    return static_cast<int>(value);
  }
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1u, std::thread::hardware_concurrency());
}

// One piece of parallel work at a time. Workers sleep on `epoch_`; a job is published by writing
// its fields and raising the epoch. Blocks are handed out by a counter.
class Pool {
 public:
  explicit Pool(int threads) {
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { work(); });
  }

  ~Pool() {
    stop_.store(true, std::memory_order_relaxed);
    epoch_.fetch_add(1, std::memory_order_release);
    epoch_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  void run(std::int64_t blocks, detail::BlockFn fn, void* context) {
    const std::lock_guard lock(run_mutex_);  // one job at a time, whichever thread it comes from
    fn_ = fn;
    context_ = context;
    blocks_ = blocks;
    next_.store(0, std::memory_order_relaxed);
    busy_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
    epoch_.fetch_add(1, std::memory_order_release);
    epoch_.notify_all();
    in_parallel = true;
    take_blocks();
    in_parallel = false;
    for (int spin = 0, left; (left = busy_.load(std::memory_order_acquire)) != 0; ++spin) {
      if (spin < spins) {
        __builtin_ia32_pause();
      } else {
        busy_.wait(left, std::memory_order_acquire);
      }
    }
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  static constexpr int spins = 2000;  // some 20 to 80 microseconds

  void take_blocks() {
    for (;;) {
      const std::int64_t block = next_.fetch_add(1, std::memory_order_relaxed);
      if (block >= blocks_) return;
      try {
        fn_(context_, block);
      } catch (...) {
        const std::lock_guard lock(error_mutex_);
        if (!error_) error_ = std::current_exception();
      }
    }
  }

  void work() {
    in_parallel = true;
    for (std::uint32_t seen = 0;;) {
      for (int spin = 0; epoch_.load(std::memory_order_acquire) == seen; ++spin) {
        if (spin < spins) {
          __builtin_ia32_pause();
        } else {
          epoch_.wait(seen, std::memory_order_acquire);
        }
      }
      ++seen;
      if (stop_.load(std::memory_order_relaxed)) return;
      take_blocks();
      if (busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) busy_.notify_one();
    }
  }

  std::vector<std::thread> workers_;
  std::mutex run_mutex_, error_mutex_;
  std::exception_ptr error_;
  detail::BlockFn fn_ = nullptr;
  void* context_ = nullptr;
  std::int64_t blocks_ = 0;
  std::atomic<std::int64_t> next_{0};
  std::atomic<int> busy_{0};
  std::atomic<std::uint32_t> epoch_{0};
  std::atomic<bool> stop_{false};
};

// The pool is built at its first use and again when the number of threads changes.
std::mutex pool_mutex;
std::unique_ptr<Pool> pool_owner;
std::atomic<Pool*> current_pool{nullptr};
std::atomic<int> wanted_threads{0};

int threads_wanted() {
  int count = wanted_threads.load(std::memory_order_relaxed);
  if (count == 0) {
    count = default_threads();
    wanted_threads.store(count, std::memory_order_relaxed);
  }
  return count;
}

Pool& pool() {
  Pool* existing = current_pool.load(std::memory_order_acquire);
  if (existing && existing->threads() == threads_wanted()) return *existing;
  const std::lock_guard lock(pool_mutex);
  if (!pool_owner || pool_owner->threads() != threads_wanted()) {
    current_pool.store(nullptr, std::memory_order_release);
    pool_owner.reset();
    pool_owner = std::make_unique<Pool>(threads_wanted());
    current_pool.store(pool_owner.get(), std::memory_order_release);
  }
  return *pool_owner;
}

}  // namespace

int num_threads() { return threads_wanted(); }

void set_num_threads(int count) {
  LIPGRAD_CHECK(count >= 1 && count <= max_threads, "set_num_threads: expected 1 to {}, got {}",
                max_threads, count);
  wanted_threads.store(count, std::memory_order_relaxed);
}

void detail::run_blocks(std::int64_t blocks, BlockFn fn, void* context) {
  if (in_parallel || threads_wanted() == 1) {
    for (std::int64_t block = 0; block < blocks; ++block) fn(context, block);
    return;
  }
  pool().run(blocks, fn, context);
}

}  // namespace lipgrad
