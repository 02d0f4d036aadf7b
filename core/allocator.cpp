#include <sys/mman.h>

#include <bit>
#include <cstdlib>
#include <mutex>
#include <new>
#include <vector>

#include <lipgrad/config.h>
#include <lipgrad/core/check.h>
#include <lipgrad/core/cuda_status.h>
#include <lipgrad/core/memory.h>
#include <lipgrad/core/runtime.h>
#include <lipgrad/core/storage.h>

#if defined(__SANITIZE_ADDRESS__)
#define LIPGRAD_CACHE_BLOCKS 0  // so that a use after free is seen
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LIPGRAD_CACHE_BLOCKS 0
#endif
#endif
#ifndef LIPGRAD_CACHE_BLOCKS
#define LIPGRAD_CACHE_BLOCKS 1
#endif

namespace lipgrad {
namespace {

// A block is a header of 64 bytes, then the data. Blocks up to `small_limit` are kept in lists of
// the thread that frees them, larger ones in lists that all threads share.
constexpr std::int64_t header_bytes = 64;
constexpr std::int64_t small_limit = 2048;
constexpr std::int64_t small_classes = small_limit / 64;
constexpr std::int64_t huge_page = 2 << 20;
static_assert(sizeof(Storage) <= header_bytes);

std::atomic<std::int64_t> live{0}, peak{0}, cached{0}, allocations{0};

// Rounds up to 64 bytes, and above 1 KiB to a sixteenth of the next lower power of two.
std::int64_t block_size(std::int64_t bytes) {
  const std::int64_t size = bytes + header_bytes;
  const std::int64_t step = std::max<std::int64_t>(
      64, static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(size))) / 16);
  return (size + step - 1) / step * step;
}

// Index of a block size among the classes: 16 for each power of two.
int size_class(std::int64_t block) {
  const int exponent = std::bit_width(static_cast<std::uint64_t>(block)) - 1;
  return exponent * 16 + static_cast<int>((block >> (exponent - 4)) & 15);
}

void* take_from_system(std::int64_t block) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  const bool huge = block >= 2 * huge_page;
  const std::int64_t alignment = huge ? huge_page : 64;
  void* memory = std::aligned_alloc(alignment, (block + alignment - 1) / alignment * alignment);
  if (memory && huge) madvise(memory, block, MADV_HUGEPAGE);
  return memory;
}

struct SharedCache {
  std::mutex mutex;
  std::vector<void*> lists[64 * 16];

  void* take(std::int64_t block) {
    const std::lock_guard lock(mutex);
    auto& list = lists[size_class(block)];
    if (list.empty()) return nullptr;
    void* memory = list.back();
    list.pop_back();
    return memory;
  }

  bool give(void* memory, std::int64_t block) noexcept try {
    const std::lock_guard lock(mutex);
    lists[size_class(block)].push_back(memory);
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }

  void release() {
    const std::lock_guard lock(mutex);
    for (int i = 0; i < 64 * 16; ++i) {
      for (void* memory : lists[i]) {
        cached.fetch_sub((std::int64_t{16} + i % 16) << (i / 16 - 4), std::memory_order_relaxed);
        std::free(memory);
      }
      lists[i].clear();
    }
  }
};

// Never destroyed: tensors of static duration may be freed after it would be.
SharedCache& shared_cache() {
  static SharedCache& cache = *new SharedCache;
  return cache;
}

// Small blocks are cut from slabs and never go back to the operating system. Free ones form linked
// lists through the blocks themselves, one a class: each thread has its own and hands full lists
// over to the others.
struct SmallBlocks {
  struct Free {
    Free* next;
  };
  struct List {
    Free* head = nullptr;
    std::int64_t bytes = 0;
  };
  static constexpr std::int64_t slab_bytes = 1 << 20, list_bytes = 1 << 20;
};

struct SharedSmallBlocks : SmallBlocks {
  std::mutex mutex;
  std::vector<List> lists[small_classes + 1];
};

SharedSmallBlocks& shared_small_blocks() {
  static SharedSmallBlocks& blocks = *new SharedSmallBlocks;
  return blocks;
}

class ThreadSmallBlocks : SmallBlocks {
 public:
  ~ThreadSmallBlocks() {
    for (std::int64_t i = 0; i <= small_classes; ++i) hand_over(i);
    alive = false;
  }

  void* take(std::int64_t block) {
    List& list = lists_[block / 64];
    if (!list.head) refill(block / 64);
    if (!list.head) return cut(block);
    list.bytes -= block;
    return std::exchange(list.head, list.head->next);
  }

  void give(void* memory, std::int64_t block) noexcept {
    List& list = lists_[block / 64];
    list.head = new (memory) Free{list.head};
    list.bytes += block;
    if (list.bytes >= list_bytes) hand_over(block / 64);
  }

  static inline thread_local bool alive = true;

 private:
  void refill(std::int64_t index) {
    SharedSmallBlocks& shared = shared_small_blocks();
    const std::lock_guard lock(shared.mutex);
    if (shared.lists[index].empty()) return;
    lists_[index] = shared.lists[index].back();
    shared.lists[index].pop_back();
  }

  void hand_over(std::int64_t index) noexcept {
    if (!lists_[index].head) return;
    SharedSmallBlocks& shared = shared_small_blocks();
    const std::lock_guard lock(shared.mutex);
    try {
      shared.lists[index].push_back(lists_[index]);
      lists_[index] = {};
    } catch (const std::bad_alloc&) {  // then it stays here
    }
  }

  void* cut(std::int64_t block) {
    if (slab_left_ < block) {
      void* slab = take_from_system(slab_bytes);
      if (!slab) return nullptr;
      slab_ = static_cast<char*>(slab);
      slab_left_ = slab_bytes;
    }
    slab_left_ -= block;
    return std::exchange(slab_, slab_ + block);
  }

  List lists_[small_classes + 1];
  char* slab_ = nullptr;
  std::int64_t slab_left_ = 0;
};

thread_local ThreadSmallBlocks small_blocks;

void* take_block(std::int64_t block) {
  if constexpr (LIPGRAD_CACHE_BLOCKS) {
    if (block <= small_limit && ThreadSmallBlocks::alive) {
      if (void* memory = small_blocks.take(block)) return memory;
    } else if (void* memory = block <= small_limit ? nullptr : shared_cache().take(block)) {
      cached.fetch_sub(block, std::memory_order_relaxed);
      return memory;
    }
  }
  if (void* memory = take_from_system(block)) return memory;
  memory::release_cached();
  return take_from_system(block);
}

void give_block(void* memory, std::int64_t block) noexcept {
  if constexpr (LIPGRAD_CACHE_BLOCKS) {
    if (block <= small_limit) {
      // A thread that is ending has no lists any more: the block, perhaps a piece of a slab, is
      // lost.
      if (ThreadSmallBlocks::alive) small_blocks.give(memory, block);
      return;
    }
    if (shared_cache().give(memory, block)) {
      cached.fetch_add(block, std::memory_order_relaxed);
      return;
    }
  }
  std::free(memory);
}

}  // namespace

namespace {

// Storage of CUDA devices: its header is a small block of the CPU's.
[[maybe_unused]] Storage* allocate_cuda_storage(Device device, std::int64_t bytes) {
  const std::int64_t block = block_size(0);
  void* header = take_block(block);
  if (!header) throw std::bad_alloc();
  Storage* storage = new (header) Storage;
  try {
    storage->data = cuda::allocate(device.index, bytes);
  } catch (...) {
    storage->~Storage();
    give_block(header, block);
    throw;
  }
  storage->device = device;
  storage->bytes = bytes;
  storage->block = block;
  return storage;
}

}  // namespace

Storage* allocate_storage(Device device, std::int64_t bytes) {
  if (device.is_cuda()) {
    if constexpr (kWithCuda) return allocate_cuda_storage(device, bytes);
    fail("device: {} asked for, but {}", device, cuda_status().problem);
  }
  const std::int64_t block = block_size(bytes);
  void* memory = take_block(block);
  if (!memory)
    fail("out of memory: {} bytes asked for; {}", bytes,
         memory::describe(cpu_device, memory::counters()));
  Storage* storage = new (memory) Storage;
  storage->device = device;
  storage->bytes = bytes;
  storage->block = block;
  storage->data = static_cast<char*>(memory) + header_bytes;
  const std::int64_t now = live.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  std::int64_t before = peak.load(std::memory_order_relaxed);
  while (now > before && !peak.compare_exchange_weak(before, now, std::memory_order_relaxed)) {
  }
  return storage;
}

void free_storage(Storage* storage) noexcept {
  if constexpr (kWithCuda) {
    if (storage->device.is_cuda()) {
      cuda::free(storage->device.index, storage->data, storage->bytes);
      const std::int64_t block = storage->block;
      storage->~Storage();
      give_block(storage, block);
      return;
    }
  }
  live.fetch_sub(storage->bytes, std::memory_order_relaxed);
  const std::int64_t block = storage->block;
  storage->~Storage();
  give_block(storage, block);
}

memory::Counters memory::counters(Device device) {
  if constexpr (kWithCuda)
    if (device.is_cuda()) return cuda::memory_counters(device.index);
  return {live.load(), peak.load(), cached.load(), allocations.load()};
}

void memory::reset_peak(Device device) {
  if constexpr (kWithCuda)
    if (device.is_cuda()) return cuda::reset_memory_peak(device.index);
  peak.store(live.load());
}

void memory::release_cached(Device device) {
  if constexpr (kWithCuda)
    if (device.is_cuda()) return cuda::release_memory(device.index);
  shared_cache().release();
}

}  // namespace lipgrad
