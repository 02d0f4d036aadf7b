#include <doctest/doctest.h>
#include <lipgrad/core/crc32c.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace lipgrad {

TEST_CASE("crc32c: published vectors") {
  CHECK(crc32c("123456789", 9) == 0xe3069283U);
  CHECK(mask_crc(crc32c("123456789", 9)) == 0xc78ab0e5U);
  CHECK(crc32c("", 0) == 0U);
  // RFC 3720, appendix B.4.
  std::vector<unsigned char> bytes(32, 0);
  CHECK(crc32c(bytes.data(), 32) == 0x8a9136aaU);
  bytes.assign(32, 0xff);
  CHECK(crc32c(bytes.data(), 32) == 0x62a8ab43U);
  for (int i = 0; i < 32; ++i) bytes[i] = static_cast<unsigned char>(i);
  CHECK(crc32c(bytes.data(), 32) == 0x46dd794eU);
  for (int i = 0; i < 32; ++i) bytes[i] = static_cast<unsigned char>(31 - i);
  CHECK(crc32c(bytes.data(), 32) == 0x113fdb5cU);
}

TEST_CASE("crc32c: the processor's instruction and the table agree at every length and offset") {
  if (!detail::has_hardware_crc32c()) {
    MESSAGE("skipped: this processor has no SSE4.2");
    return;
  }
  std::mt19937 random(7);
  std::vector<unsigned char> bytes(4096);
  for (auto& byte : bytes) byte = static_cast<unsigned char>(random());
  for (std::size_t offset = 0; offset < 9; ++offset) {
    for (std::size_t size = 0; size < 300; ++size) {
      const auto start = static_cast<std::uint32_t>(random());
      REQUIRE(detail::crc32c_hardware(bytes.data() + offset, size, start) ==
              detail::crc32c_table(bytes.data() + offset, size, start));
    }
  }
  CHECK(detail::crc32c_hardware(bytes.data(), 4096, 0) ==
        detail::crc32c_table(bytes.data(), 4096, 0));
}

TEST_CASE("crc32c: pieces chain") {
  const std::string text = "attention that stays Lipschitz, whatever the input";
  const std::uint32_t whole = crc32c(text.data(), text.size());
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    CHECK(crc32c(text.data() + cut, text.size() - cut, crc32c(text.data(), cut)) == whole);
  }
}

}  // namespace lipgrad
