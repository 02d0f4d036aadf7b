#pragma once

// Atomics, for the types that CUDA has them for. All are relaxed, as CUDA's are.

#include <cstdint>

#include <lipgrad_emulation/intrinsics.h>

namespace lipgrad_emulation {

template <class T, class F>
T atomic_update(T* p, F next) {
  T old = __atomic_load_n(p, __ATOMIC_RELAXED);
  while (
      !__atomic_compare_exchange_n(p, &old, next(old), true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return old;
}
template <class T, class Bits>
T atomic_add_real(T* p, T value) {
  const Bits old = atomic_update(reinterpret_cast<Bits*>(p), [value](Bits bits) {
    return static_cast<Bits>(to_bits(from_bits<T>(bits) + value));
  });
  return from_bits<T>(old);
}

}  // namespace lipgrad_emulation

#define LIPGRAD_EMULATION_ATOMIC(T, name, next)                                       \
  inline T atomic##name(T* p, T value) {                                              \
    return lipgrad_emulation::atomic_update(p, [value](T old) -> T { return next; }); \
  }
// What CUDA has for int, unsigned and unsigned long long; long long has less.
#define LIPGRAD_EMULATION_ATOMICS(T)                                                            \
  LIPGRAD_EMULATION_ATOMIC(T, Add, old + value)                                                 \
  LIPGRAD_EMULATION_ATOMIC(T, Exch, ((void)old, value))                                         \
  inline T atomicCAS(T* p, T compare, T value) {                                                \
    __atomic_compare_exchange_n(p, &compare, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED); \
    return compare;                                                                             \
  }
#define LIPGRAD_EMULATION_ATOMIC_BITS(T)                      \
  LIPGRAD_EMULATION_ATOMIC(T, Min, value < old ? value : old) \
  LIPGRAD_EMULATION_ATOMIC(T, Max, old < value ? value : old) \
  LIPGRAD_EMULATION_ATOMIC(T, And, old& value)                \
  LIPGRAD_EMULATION_ATOMIC(T, Or, old | value)                \
  LIPGRAD_EMULATION_ATOMIC(T, Xor, old ^ value)
LIPGRAD_EMULATION_ATOMICS(int)
LIPGRAD_EMULATION_ATOMICS(unsigned)
LIPGRAD_EMULATION_ATOMICS(unsigned long long)
LIPGRAD_EMULATION_ATOMIC_BITS(int)
LIPGRAD_EMULATION_ATOMIC_BITS(unsigned)
LIPGRAD_EMULATION_ATOMIC_BITS(unsigned long long)
LIPGRAD_EMULATION_ATOMIC_BITS(long long)
LIPGRAD_EMULATION_ATOMIC(int, Sub, old - value)
LIPGRAD_EMULATION_ATOMIC(unsigned, Sub, old - value)
LIPGRAD_EMULATION_ATOMIC(unsigned, Inc, old >= value ? 0u : old + 1)
LIPGRAD_EMULATION_ATOMIC(unsigned, Dec, old == 0 || old > value ? value : old - 1)
#undef LIPGRAD_EMULATION_ATOMIC_BITS
#undef LIPGRAD_EMULATION_ATOMICS
#undef LIPGRAD_EMULATION_ATOMIC

inline float atomicAdd(float* p, float value) {
  return lipgrad_emulation::atomic_add_real<float, std::uint32_t>(p, value);
}
inline double atomicAdd(double* p, double value) {
  return lipgrad_emulation::atomic_add_real<double, std::uint64_t>(p, value);
}
