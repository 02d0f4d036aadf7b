#include <algorithm>
#include <cstring>
#include <optional>

#include <lipgrad/core/check.h>
#include <lipgrad/core/printable.h>
#include <lipgrad/vision/image_tree.h>

namespace lipgrad::detail {
namespace {

constexpr std::size_t kBlock = 512;
constexpr std::size_t kLongestName = 1 << 16;

std::string_view text_of(std::span<const std::byte> field) {
  const auto* text = reinterpret_cast<const char*>(field.data());
  return {text, ::strnlen(text, field.size())};
}

// A number in octal digits, or, where the first bit is set, in 63 bits to the base of 256.
std::optional<std::uint64_t> number(std::span<const std::byte> field) {
  std::uint64_t value = 0;
  if (std::to_integer<unsigned>(field[0]) & 0x80) {
    for (std::size_t i = 1; i < field.size(); ++i) {
      if (value >> 54) return {};
      value = value << 8 | std::to_integer<std::uint64_t>(field[i]);
    }
    return value;
  }
  std::string_view digits = text_of(field);
  while (!digits.empty() && digits.front() == ' ') digits.remove_prefix(1);
  while (!digits.empty() && digits.back() == ' ') digits.remove_suffix(1);
  for (const char c : digits) {
    if (c < '0' || c > '7' || value >> 60) return {};
    value = value << 3 | static_cast<std::uint64_t>(c - '0');
  }
  return value;
}

bool checksum_fits(std::span<const std::byte> header) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < kBlock; ++i)
    sum += i >= 148 && i < 156 ? ' ' : std::to_integer<std::uint64_t>(header[i]);
  return number(header.subspan(148, 8)) == sum;
}

// The value of the last record "<length> path=<value>\n" of a pax header.
void take_pax_path(std::string_view text, std::string& path) {
  while (!text.empty()) {
    std::size_t length = 0, digits = 0;
    while (digits < text.size() && text[digits] >= '0' && text[digits] <= '9' && digits < 9)
      length = length * 10 + static_cast<std::size_t>(text[digits++] - '0');
    if (digits == 0 || length <= digits + 1 || length > text.size() || text[digits] != ' ') return;
    const std::string_view record = text.substr(digits + 1, length - digits - 2);
    if (record.starts_with("path=")) path = record.substr(5);
    text.remove_prefix(length);
  }
}

}  // namespace

std::vector<TarEntry> read_tar(std::span<const std::byte> bytes, const std::string& file) {
  std::vector<TarEntry> entries;
  std::string long_name;
  std::size_t at = 0;
  LIPGRAD_CHECK(bytes.size() >= kBlock, "{}: {} bytes are no tar archive", file, bytes.size());
  while (bytes.size() - at >= kBlock) {
    const auto header = bytes.subspan(at, kBlock);
    if (std::all_of(header.begin(), header.end(), [](std::byte b) { return b == std::byte{}; }))
      return entries;
    LIPGRAD_CHECK(checksum_fits(header), "{}: {} at offset {}: a header's checksum is wrong", file,
                  at == 0 ? "not a tar archive" : "damaged tar archive", at);
    const auto size = number(header.subspan(124, 12));
    at += kBlock;
    LIPGRAD_CHECK(size && *size <= bytes.size() - at,
                  "{}: truncated or damaged tar archive: '{}' reaches beyond the end", file,
                  printable(text_of(header.first(100))));
    const auto content = bytes.subspan(at, *size);
    const char type = std::to_integer<char>(header[156]);
    if (type == 'L' || type == 'x') {
      LIPGRAD_CHECK(*size <= kLongestName, "{}: damaged tar archive: a name of {} bytes", file,
                    *size);
      if (type == 'L')
        long_name = text_of(content);
      else
        take_pax_path({reinterpret_cast<const char*>(content.data()), content.size()}, long_name);
    } else {
      if (type == '0' || type == '\0' || type == '7') {
        std::string path(text_of(header.first(100)));
        if (std::memcmp(header.data() + 257, "ustar\0", 6) == 0 && header[345] != std::byte{})
          path = std::string(text_of(header.subspan(345, 155))) + "/" + path;
        entries.push_back({long_name.empty() ? std::move(path) : std::move(long_name), at, *size});
      }
      long_name.clear();
    }
    at += std::min(bytes.size() - at, (*size + kBlock - 1) / kBlock * kBlock);
  }
  fail("{}: truncated: the archive ends without the mark of its end", file);
}

}  // namespace lipgrad::detail
