#pragma once

#include <sanitizer/allocator_interface.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace lipgrad::fuzz {

// While it lives: the program ends as soon as more than `limit` bytes are allocated at one time
// beyond those there were at the beginning. Counts every malloc and operator new, by way of
// AddressSanitizer's hooks; one at a time, one thread.
class AllocationLimit {
 public:
  explicit AllocationLimit(std::size_t limit) {
    static const bool installed =
        __sanitizer_install_malloc_and_free_hooks(&on_malloc, &on_free) != 0;
    if (!installed) std::abort();
    live_ = 0;
    limit_ = static_cast<std::int64_t>(limit);
  }
  ~AllocationLimit() { limit_ = INT64_MAX; }
  AllocationLimit(const AllocationLimit&) = delete;
  AllocationLimit& operator=(const AllocationLimit&) = delete;

 private:
  static void on_malloc(const volatile void*, std::size_t size) {
    live_ += static_cast<std::int64_t>(size);
    if (live_ <= limit_) return;
    std::fprintf(stderr, "allocation limit: %lld bytes are allocated, at most %lld are allowed\n",
                 static_cast<long long>(live_), static_cast<long long>(limit_));
    std::abort();
  }
  static void on_free(const volatile void* pointer) {
    if (pointer != nullptr)
      live_ -= static_cast<std::int64_t>(
          __sanitizer_get_allocated_size(const_cast<const void*>(pointer)));
  }

  static inline std::int64_t live_ = 0, limit_ = INT64_MAX;
};

}  // namespace lipgrad::fuzz
