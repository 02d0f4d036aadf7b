#pragma once

// Barriers and what the lanes of a warp do together. Each call knows its file and line, for reports
// of barriers that not all threads reach.

#include <cstdint>
#include <cstring>
#include <type_traits>

#include <lipgrad_emulation/executor.h>

#define LIPGRAD_EMULATION_SITE const char *file_ = __builtin_FILE(), int line_ = __builtin_LINE()

namespace lipgrad_emulation {

template <class T>
std::uint64_t to_bits(T value) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>, "at most 8 plain bytes");
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  return bits;
}
template <class T>
T from_bits(std::uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}
template <class T>
T shuffle(Op op, unsigned mask, T value, int parameter, int width, const char* file, int line) {
  static_assert(std::is_arithmetic_v<T> && sizeof(T) >= 4, "CUDA shuffles 4 and 8 byte numbers");
  return from_bits<T>(warp_op(op, mask, to_bits(value), parameter, width, file, line));
}

}  // namespace lipgrad_emulation

inline void __syncthreads(LIPGRAD_EMULATION_SITE) {
  lipgrad_emulation::block_op(lipgrad_emulation::Op::syncthreads, 0, file_, line_);
}
inline int __syncthreads_count(int predicate, LIPGRAD_EMULATION_SITE) {
  return lipgrad_emulation::block_op(lipgrad_emulation::Op::sync_count, predicate, file_, line_);
}
inline int __syncthreads_and(int predicate, LIPGRAD_EMULATION_SITE) {
  return lipgrad_emulation::block_op(lipgrad_emulation::Op::sync_and, predicate, file_, line_);
}
inline int __syncthreads_or(int predicate, LIPGRAD_EMULATION_SITE) {
  return lipgrad_emulation::block_op(lipgrad_emulation::Op::sync_or, predicate, file_, line_);
}
inline void __syncwarp(unsigned mask = 0xffffffffu, LIPGRAD_EMULATION_SITE) {
  lipgrad_emulation::warp_op(lipgrad_emulation::Op::syncwarp, mask, 0, 0, 32, file_, line_);
}
inline void __threadfence() { lipgrad_emulation::fence(); }
inline void __threadfence_block() { lipgrad_emulation::fence(); }

template <class T>
T __shfl_sync(unsigned mask, T value, int lane, int width = 32, LIPGRAD_EMULATION_SITE) {
  return lipgrad_emulation::shuffle(lipgrad_emulation::Op::shfl, mask, value, lane, width, file_,
                                    line_);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, LIPGRAD_EMULATION_SITE) {
  return lipgrad_emulation::shuffle(lipgrad_emulation::Op::shfl_up, mask, value,
                                    static_cast<int>(delta), width, file_, line_);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, LIPGRAD_EMULATION_SITE) {
  return lipgrad_emulation::shuffle(lipgrad_emulation::Op::shfl_down, mask, value,
                                    static_cast<int>(delta), width, file_, line_);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, LIPGRAD_EMULATION_SITE) {
  return lipgrad_emulation::shuffle(lipgrad_emulation::Op::shfl_xor, mask, value, lanes, width,
                                    file_, line_);
}

inline unsigned __ballot_sync(unsigned mask, int predicate, LIPGRAD_EMULATION_SITE) {
  return static_cast<unsigned>(lipgrad_emulation::warp_op(lipgrad_emulation::Op::ballot, mask,
                                                          predicate != 0, 0, 32, file_, line_));
}
inline int __any_sync(unsigned mask, int predicate, LIPGRAD_EMULATION_SITE) {
  return static_cast<int>(lipgrad_emulation::warp_op(lipgrad_emulation::Op::any, mask,
                                                     predicate != 0, 0, 32, file_, line_));
}
inline int __all_sync(unsigned mask, int predicate, LIPGRAD_EMULATION_SITE) {
  return static_cast<int>(lipgrad_emulation::warp_op(lipgrad_emulation::Op::all, mask,
                                                     predicate != 0, 0, 32, file_, line_));
}
template <class T>
unsigned __match_any_sync(unsigned mask, T value, LIPGRAD_EMULATION_SITE) {
  return static_cast<unsigned>(lipgrad_emulation::warp_op(lipgrad_emulation::Op::match_any, mask,
                                                          lipgrad_emulation::to_bits(value), 0, 32,
                                                          file_, line_));
}

#define LIPGRAD_EMULATION_REDUCE(T, name, op)                                                      \
  inline T __reduce_##name##_sync(unsigned mask, T value, LIPGRAD_EMULATION_SITE) {                \
    return static_cast<T>(lipgrad_emulation::warp_op(                                              \
        lipgrad_emulation::Op::op, mask, static_cast<std::uint64_t>(value), 0, 32, file_, line_)); \
  }
LIPGRAD_EMULATION_REDUCE(int, add, reduce_add)
LIPGRAD_EMULATION_REDUCE(int, min, reduce_min)
LIPGRAD_EMULATION_REDUCE(int, max, reduce_max)
LIPGRAD_EMULATION_REDUCE(unsigned, add, reduce_add)
LIPGRAD_EMULATION_REDUCE(unsigned, min, reduce_umin)
LIPGRAD_EMULATION_REDUCE(unsigned, max, reduce_umax)
LIPGRAD_EMULATION_REDUCE(unsigned, and, reduce_and)
LIPGRAD_EMULATION_REDUCE(unsigned, or, reduce_or)
LIPGRAD_EMULATION_REDUCE(unsigned, xor, reduce_xor)
#undef LIPGRAD_EMULATION_REDUCE
