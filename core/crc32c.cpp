#include <lipgrad/core/crc32c.h>

#include <array>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace lipgrad {
namespace {

using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

// table[0] is the classic byte table; table[k][b] is the CRC of byte b followed by k zero bytes.
constexpr Tables make_tables() {
  Tables table{};
  for (std::uint32_t b = 0; b < 256; ++b) {
    std::uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? 0x82f63b78U : 0U);
    table[0][b] = crc;
  }
  for (std::size_t k = 1; k < 8; ++k) {
    for (std::size_t b = 0; b < 256; ++b) {
      const std::uint32_t before = table[k - 1][b];
      table[k][b] = (before >> 8) ^ table[0][before & 0xff];
    }
  }
  return table;
}

constexpr Tables kTables = make_tables();

std::uint64_t load64(const unsigned char* p) {
  static_assert(std::endian::native == std::endian::little,
                "lipgrad needs a little-endian machine");
  std::uint64_t word;
  std::memcpy(&word, p, sizeof word);
  return word;
}

}  // namespace

namespace detail {

// Slicing by 8 (Kounavis, Berry: A systematic approach to building high performance software-based
// CRC generators, ISCC 2005).
std::uint32_t crc32c_table(const void* data, std::size_t size, std::uint32_t crc) {
  const auto* p = static_cast<const unsigned char*>(data);
  crc = ~crc;
  for (; size >= 8; p += 8, size -= 8) {
    const std::uint64_t word = load64(p) ^ crc;
    std::uint32_t next = 0;
    for (std::size_t k = 0; k < 8; ++k) next ^= kTables[7 - k][(word >> (8 * k)) & 0xff];
    crc = next;
  }
  for (; size > 0; ++p, --size) crc = (crc >> 8) ^ kTables[0][(crc ^ *p) & 0xff];
  return ~crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) std::uint32_t crc32c_hardware(const void* data, std::size_t size,
                                                                std::uint32_t crc) {
  const auto* p = static_cast<const unsigned char*>(data);
  std::uint64_t wide = static_cast<std::uint32_t>(~crc);
  for (; size >= 8; p += 8, size -= 8) wide = _mm_crc32_u64(wide, load64(p));
  auto narrow = static_cast<std::uint32_t>(wide);
  for (; size > 0; ++p, --size) narrow = _mm_crc32_u8(narrow, *p);
  return ~narrow;
}

bool has_hardware_crc32c() {
  static const bool has = __builtin_cpu_supports("sse4.2");
  return has;
}
#else
std::uint32_t crc32c_hardware(const void* data, std::size_t size, std::uint32_t crc) {
  return crc32c_table(data, size, crc);
}

bool has_hardware_crc32c() { return false; }
#endif

}  // namespace detail

std::uint32_t crc32c(const void* data, std::size_t size, std::uint32_t crc) {
  return detail::has_hardware_crc32c() ? detail::crc32c_hardware(data, size, crc)
                                       : detail::crc32c_table(data, size, crc);
}

}  // namespace lipgrad
