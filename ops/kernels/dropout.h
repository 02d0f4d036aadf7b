#pragma once

// C++17. Inverted dropout whose mask is computed again from the random draw instead of being
// stored.

#include <cstdint>

#include <lipgrad/core/kernel.h>
#include <lipgrad/core/philox.h>

namespace lipgrad {

// Element e of a draw is dropped with probability p: kept when unit_float(word) >= p, that is when
// the upper 24 bits of its word reach this number. For kernels that drop as they go.
LIPGRAD_HD inline std::uint32_t dropout_threshold(double p) {
  const double scaled = p * 16777216.0;
  const std::uint32_t whole = static_cast<std::uint32_t>(scaled);
  return whole < scaled ? whole + 1 : whole;
}
LIPGRAD_HD inline bool dropout_keeps(std::uint32_t word, std::uint32_t threshold) {
  return (word >> 8) >= threshold;
}

}  // namespace lipgrad

LIPGRAD_KERNELS(
    // y[e] = x[e] / (1 - p) where element e of the draw is kept, else 0 (whatever x[e] is); 0 <= p
    // <= 1, e < n. The backward pass is the same with gy for x. y may be x.
    template <class T> void dropout(std::int64_t n, double p, std::uint64_t seed,
                                    std::uint64_t draw, const T* x, T* y);
    // The same for whole rows of x(rows, cols): row r where element r of the draw is kept.
    template <class T> void dropout_rows(std::int64_t rows, std::int64_t cols, double p,
                                         std::uint64_t seed, std::uint64_t draw, const T* x, T* y);)

namespace lipgrad::cpu {
// words[i] = philox_word(seed, draw, first + i) for i < count, on the calling thread; first is a
// multiple of 4. Many at a time: some ten times as fast as philox_word.
void philox_words(std::uint64_t seed, std::uint64_t draw, std::uint64_t first, std::int64_t count,
                  std::uint32_t* words);
}  // namespace lipgrad::cpu
