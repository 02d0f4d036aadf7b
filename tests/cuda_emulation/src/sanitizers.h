#pragma once

// The interfaces by which the emulation tells AddressSanitizer and ThreadSanitizer what it does. It
// is itself compiled without instrumentation; in a program without sanitizers these are null.

#include <cstddef>

extern "C" {
#define LIPGRAD_EMULATION_WEAK __attribute__((weak))
LIPGRAD_EMULATION_WEAK void __sanitizer_start_switch_fiber(void** fake, const void* bottom,
                                                           std::size_t size);
LIPGRAD_EMULATION_WEAK void __sanitizer_finish_switch_fiber(void* fake, const void** bottom,
                                                            std::size_t* size);
LIPGRAD_EMULATION_WEAK void __asan_poison_memory_region(const volatile void*, std::size_t);
LIPGRAD_EMULATION_WEAK void __asan_unpoison_memory_region(const volatile void*, std::size_t);
LIPGRAD_EMULATION_WEAK void* __tsan_get_current_fiber(void);
LIPGRAD_EMULATION_WEAK void* __tsan_create_fiber(unsigned);
LIPGRAD_EMULATION_WEAK void __tsan_destroy_fiber(void*);
LIPGRAD_EMULATION_WEAK void __tsan_switch_to_fiber(void*, unsigned);
LIPGRAD_EMULATION_WEAK void __tsan_acquire(void*);
LIPGRAD_EMULATION_WEAK void __tsan_release(void*);
}

namespace lipgrad_emulation {

// Memory that nobody may touch, and memory that may be touched again.
inline void poison(const void* p, std::size_t bytes) {
  if (__asan_poison_memory_region) __asan_poison_memory_region(p, bytes);
}
inline void unpoison(const void* p, std::size_t bytes) {
  if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(p, bytes);
}
inline bool under_asan() { return __asan_poison_memory_region != nullptr; }
inline bool under_tsan() { return __tsan_create_fiber != nullptr; }

}  // namespace lipgrad_emulation
