#include "memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <map>
#include <string>

#include "sanitizers.h"
#include "state.h"
#include "streams.h"

namespace lipgrad_emulation {
namespace {

constexpr std::size_t kArena = std::size_t{64} << 30;
constexpr std::size_t kAlign = 256;
constexpr std::size_t kPage = 4096;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
// Larger blocks are neither filled nor kept back when they are freed.
constexpr std::size_t kLarge = std::size_t{64} << 20;
// Freed blocks are used again only after so much else was freed.
constexpr std::size_t kQuarantine = std::size_t{64} << 20;
// Protecting walks over the pages in use (about 0.1 us each, huge or not), so this is given up for
// programs that use much memory.
constexpr std::size_t kMostProtected = std::size_t{1} << 30;
constexpr std::size_t kMostProtectedInSmallPages = std::size_t{32} << 20;

struct Live {
  std::size_t bytes, capacity;  // the rest of the capacity is what nobody may touch
};
struct Freed {
  char* begin;
  std::size_t bytes, capacity;
};

struct Arena {
  char* base = nullptr;
  std::size_t used = 0;  // bytes from the base that blocks were cut from
  std::size_t live_bytes = 0, quarantined = 0;
  std::map<char*, Live> live;
  std::deque<Freed> quarantine;
  std::multimap<std::size_t, Freed> reusable;  // by capacity
};

Arena arenas[kMaxDevices];
std::map<char*, std::size_t> pinned;
int access_depth = 0;
bool open_for_good = false;
std::atomic<std::uint64_t> memory_limit{0};
const bool limit_from_environment = [] {
  if (const char* text = std::getenv("LIPGRAD_EMULATION_MEMORY")) memory_limit = std::atoll(text);
  return true;
}();

std::size_t up_to(std::size_t unit, std::size_t bytes) { return (bytes + unit - 1) / unit * unit; }

bool huge_pages() {
  static const bool there = [] {
    std::ifstream in("/sys/kernel/mm/transparent_hugepage/enabled");
    std::string line;
    std::getline(in, line);
    return line.find("[always]") != std::string::npos ||
           line.find("[madvise]") != std::string::npos;
  }();
  return there;
}

void open_arenas(bool open) {
  if (open_for_good) return;
  std::size_t used = 0;
  for (const Arena& arena : arenas) used += arena.used;
  if (used > (huge_pages() ? kMostProtected : kMostProtectedInSmallPages))
    open_for_good = open = true;
  for (const Arena& arena : arenas)
    if (arena.used)
      mprotect(arena.base, up_to(kHugePage, arena.used), open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

// A block cut from the end of the arena.
char* cut(Arena& arena, std::size_t capacity) {
  if (!arena.base) {
    void* p = mmap(nullptr, kArena + kHugePage, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return nullptr;
    const auto at = reinterpret_cast<std::uintptr_t>(p);
    arena.base = static_cast<char*>(p) + (up_to(kHugePage, at) - at);
  }
  const std::size_t first =
      arena.used == 0 ? kAlign : 0;  // nobody may touch what is before a block
  if (capacity + first > kArena - arena.used) return nullptr;
  const std::size_t before = up_to(kHugePage, arena.used);
  char* p = arena.base + arena.used + first;
  arena.used += first + capacity;
  const std::size_t after = up_to(kHugePage, arena.used);
  if (after > before) {
    mprotect(arena.base + before, after - before, PROT_READ | PROT_WRITE);
    // A large block is touched here and there.
    madvise(arena.base + before, after - before,
            capacity > kLarge ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
  }
  poison(p - first, first);
  return p;
}

// Makes a block reachable. Of a large one that was freed only the first page was out of reach,
// since the shadow of it all would cost an eighth of its size.
void unpoison_block(char* p, std::size_t bytes, std::size_t bytes_before) {
  if (bytes <= kLarge) return unpoison(p, bytes);
  unpoison(p, kPage);
  if (bytes > bytes_before && bytes_before > 0) unpoison(p + bytes_before, bytes - bytes_before);
}

// A freed block of about this size, or a new one; reachable.
char* take(Arena& arena, std::size_t bytes, std::size_t& capacity) {
  while (arena.quarantined > kQuarantine) {
    const Freed oldest = arena.quarantine.front();
    arena.quarantine.pop_front();
    arena.quarantined -= oldest.capacity;
    arena.reusable.emplace(oldest.capacity, oldest);
  }
  const auto fits = arena.reusable.lower_bound(capacity);
  if (fits != arena.reusable.end() && fits->first <= capacity + capacity / 4) {
    const Freed block = fits->second;
    arena.reusable.erase(fits);
    capacity = block.capacity;
    unpoison_block(block.begin, bytes, block.bytes);
    return block.begin;
  }
  return cut(arena, capacity);
}

template <class Map>
auto find_in(Map& blocks, const void* p) {
  char* at = const_cast<char*>(static_cast<const char*>(p));
  auto it = blocks.upper_bound(at);
  return it == blocks.begin() ? blocks.end() : std::prev(it);
}

}  // namespace

DeviceAccess::DeviceAccess() {
  if (access_depth++ == 0 && config().protect) open_arenas(true);
}
DeviceAccess::~DeviceAccess() {
  if (--access_depth == 0 && config().protect) open_arenas(false);
}

void* allocate_device(int device, std::size_t bytes) {
  Arena& arena = arenas[device];
  if (bytes > device_memory_total() - std::min(arena.live_bytes, device_memory_total()))
    return nullptr;
  // There is always something behind a block that nobody may touch.
  std::size_t capacity = (bytes + kAlign - 1) / kAlign * kAlign + kAlign;
  const DeviceAccess access;
  char* p = take(arena, bytes, capacity);
  if (!p) return nullptr;
  if (config().poison && bytes <= kLarge) std::memset(p, 0xff, bytes);
  poison(p + bytes, std::min(capacity - bytes, kLarge));
  arena.live[p] = {bytes, capacity};
  arena.live_bytes += bytes;
  return p;
}

bool free_device(void* data) {
  char* p = static_cast<char*>(data);
  for (Arena& arena : arenas) {
    const auto it = arena.live.find(p);
    if (it == arena.live.end()) continue;
    const Live block = it->second;
    arena.live.erase(it);
    arena.live_bytes -= block.bytes;
    if (block.bytes > kLarge) {
      madvise(arena.base + up_to(kPage, static_cast<std::size_t>(p - arena.base)),
              (block.bytes - kPage) / kPage * kPage, MADV_DONTNEED);
      poison(p, kPage);
      arena.reusable.emplace(block.capacity, Freed{p, block.bytes, block.capacity});
      return true;
    }
    if (config().poison) {
      const DeviceAccess access;
      std::memset(p, 0xff, block.bytes);
    }
    poison(p, block.bytes);
    arena.quarantine.push_back({p, block.bytes, block.capacity});
    arena.quarantined += block.capacity;
    return true;
  }
  return false;
}

Allocation find_device_block(const void* p) {
  for (int device = 0; device < kMaxDevices; ++device) {
    Arena& arena = arenas[device];
    const auto it = find_in(arena.live, p);
    if (it != arena.live.end() && static_cast<const char*>(p) <= it->first + it->second.bytes)
      return {it->first, it->second.bytes, device};
  }
  return {};
}

Allocation find_pinned_block(const void* p) {
  const auto it = find_in(pinned, p);
  if (it != pinned.end() && static_cast<const char*>(p) <= it->first + it->second)
    return {it->first, it->second, -1};
  return {};
}

std::size_t device_memory_total() {
  const std::uint64_t limit = memory_limit;
  return limit ? std::min<std::uint64_t>(limit, kArena) : kArena;
}
std::size_t device_memory_free(int device) {
  return device_memory_total() - std::min(arenas[device].live_bytes, device_memory_total());
}
void set_memory_limit(std::uint64_t bytes) { memory_limit = bytes; }

bool is_device_pointer(const void* p) {
  const Lock lock(mutex());
  return find_device_block(p).begin != nullptr;
}

bool check_range(const void* p, std::size_t bytes, const char* what, int device) {
  const Lock lock(mutex());
  if (device < 0) device = current_device();
  Allocation block = find_device_block(p);
  if (!block.begin) block = find_pinned_block(p);
  const std::string name = what;
  if (!block.begin) {
    report(cudaErrorIllegalAddress, name + ": not a device pointer");
  } else if (block.device >= 0 && block.device != device) {
    report(cudaErrorIllegalAddress, name + ": memory of device " + std::to_string(block.device) +
                                        " used on device " + std::to_string(device));
  } else if (const std::size_t there = block.begin + block.bytes - static_cast<const char*>(p);
             bytes > there) {
    report(cudaErrorIllegalAddress, name + ": needs " + std::to_string(bytes) +
                                        " bytes, the allocation has " + std::to_string(there) +
                                        " from there");
  } else {
    return true;
  }
  return false;
}

}  // namespace lipgrad_emulation

using namespace lipgrad_emulation;

cudaError_t cudaMalloc(void** p, size_t bytes) {
  LIPGRAD_EMULATION_ENTRY;
  if (const cudaError_t error = unsafe_in_capture("cudaMalloc")) return error;
  if (!p) return fail(cudaErrorInvalidValue);
  *p = bytes ? allocate_device(current_device(), bytes) : nullptr;
  return *p || !bytes ? cudaSuccess : fail(cudaErrorMemoryAllocation);
}

cudaError_t cudaFree(void* p) {
  LIPGRAD_EMULATION_ENTRY;
  if (!p) return cudaSuccess;
  if (const cudaError_t error = unsafe_in_capture("cudaFree")) return error;
  drain_all();
  if (free_device(p)) return cudaSuccess;
  return report(cudaErrorInvalidValue,
                "cudaFree of a pointer that cudaMalloc did not return (or freed twice)");
}

cudaError_t cudaMallocAsync(void** p, size_t bytes, cudaStream_t stream) {
  LIPGRAD_EMULATION_ENTRY;
  if (state_of(stream)->capture)
    return report(cudaErrorNotSupported, "cudaMallocAsync in a capture is not emulated");
  if (!p) return fail(cudaErrorInvalidValue);
  *p = bytes ? allocate_device(state_of(stream)->device, bytes) : nullptr;
  return *p || !bytes ? cudaSuccess : fail(cudaErrorMemoryAllocation);
}

cudaError_t cudaFreeAsync(void* p, cudaStream_t stream) {
  LIPGRAD_EMULATION_ENTRY;
  if (!p) return cudaSuccess;
  if (state_of(stream)->capture)
    return report(cudaErrorNotSupported, "cudaFreeAsync in a capture is not emulated");
  return push(state_of(stream), {NodeKind::free, "cudaFreeAsync", [p] {
                                   if (!free_device(p))
                                     report(cudaErrorInvalidValue,
                                            "cudaFreeAsync of a pointer that was not allocated");
                                 }});
}

cudaError_t cudaHostAlloc(void** p, size_t bytes, unsigned) {
  LIPGRAD_EMULATION_ENTRY;
  if (const cudaError_t error = unsafe_in_capture("cudaHostAlloc")) return error;
  *p = std::aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
  if (!*p) return fail(cudaErrorMemoryAllocation);
  pinned[static_cast<char*>(*p)] = bytes;
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* p) {
  LIPGRAD_EMULATION_ENTRY;
  if (!p) return cudaSuccess;
  if (const cudaError_t error = unsafe_in_capture("cudaFreeHost")) return error;
  drain_all();
  if (!pinned.erase(static_cast<char*>(p))) return fail(cudaErrorInvalidValue);
  std::free(p);
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  LIPGRAD_EMULATION_ENTRY;
  *total = device_memory_total();
  *free = device_memory_free(current_device());
  return cudaSuccess;
}
