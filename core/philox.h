#pragma once

// C++17, for host and device compilers alike.

#include <cstdint>

#if defined(__CUDACC__)
#define LIPGRAD_HD __host__ __device__
#else
#define LIPGRAD_HD
#endif

namespace lipgrad {

struct PhiloxBlock {
  std::uint32_t word[4];
};

// Philox 4x32 with 10 rounds (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2,
// 3, SC 2011): four words that depend on (seed, draw, index) alone.
LIPGRAD_HD inline PhiloxBlock philox(std::uint64_t seed, std::uint64_t draw, std::uint64_t index) {
  std::uint32_t c0 = static_cast<std::uint32_t>(index),
                c1 = static_cast<std::uint32_t>(index >> 32);
  std::uint32_t c2 = static_cast<std::uint32_t>(draw), c3 = static_cast<std::uint32_t>(draw >> 32);
  std::uint32_t k0 = static_cast<std::uint32_t>(seed), k1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53} * c0, p1 = std::uint64_t{0xCD9E8D57} * c2;
    const std::uint32_t n0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
    const std::uint32_t n2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<std::uint32_t>(p1);
    c3 = static_cast<std::uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return {{c0, c1, c2, c3}};
}

// The word of one element: element e reads word e % 4 of block e / 4.
LIPGRAD_HD inline std::uint32_t philox_word(std::uint64_t seed, std::uint64_t draw,
                                            std::uint64_t element) {
  const PhiloxBlock block = philox(seed, draw, element / 4);
  // By selection: an index that varies would put the block into a GPU's local memory.
  const std::uint64_t i = element % 4;
  return i < 2 ? (i == 0 ? block.word[0] : block.word[1])
               : (i == 2 ? block.word[2] : block.word[3]);
}

// A number in [0, 1) from 24 of the 32 bits; exact in float.
LIPGRAD_HD inline float unit_float(std::uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1p-24f;
}

}  // namespace lipgrad
