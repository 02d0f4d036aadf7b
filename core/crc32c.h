#pragma once

#include <cstddef>
#include <cstdint>

namespace lipgrad {

// CRC-32C (Castagnoli, polynomial 0x1EDC6F41, reflected), the checksum of iSCSI, ext4 and
// TensorFlow's record files. `crc` is the checksum of the bytes before, so that
// crc32c(b, nb, crc32c(a, na)) is the checksum of a followed by b. Uses the SSE4.2 instruction
// where the processor has it. crc32c("123456789", 9) == 0xe3069283.
std::uint32_t crc32c(const void* data, std::size_t size, std::uint32_t crc = 0);

// The masked form that files store: a checksum of data that itself holds checksums would be weak
// (the CRC of a string followed by its own CRC is a constant). TensorFlow and LevelDB use the same.
constexpr std::uint32_t mask_crc(std::uint32_t crc) {
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
}

namespace detail {
// The two implementations behind crc32c, for tests. The hardware one may be called only where
// has_hardware_crc32c() is true.
std::uint32_t crc32c_table(const void* data, std::size_t size, std::uint32_t crc);
std::uint32_t crc32c_hardware(const void* data, std::size_t size, std::uint32_t crc);
bool has_hardware_crc32c();
}  // namespace detail

}  // namespace lipgrad
