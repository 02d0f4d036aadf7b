// Fuzzes the checkpoint reader: each file as it comes, and once more with its checksums and footer
// made right, so that what lies behind them is reached too.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <lipgrad/core/checkpoint_info.h>
#include <lipgrad/core/crc32c.h>
#include <lipgrad/core/error.h>

#include "allocation_limit.h"

namespace {

using Bytes = std::vector<std::uint8_t>;

template <class T>
T get(const Bytes& bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

template <class T>
void put(Bytes& bytes, std::size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

void fix_record(Bytes& bytes, std::size_t at, std::uint64_t size) {
  const std::uint32_t crc =
      lipgrad::crc32c(bytes.data() + at + 8, 8 + size, lipgrad::crc32c(bytes.data() + at, 4));
  put(bytes, at + 4, lipgrad::mask_crc(crc));
}

// Layout: core/record_file.h.
void fix_checksums(Bytes& bytes) {
  if (bytes.size() % 64 != 48) bytes.resize(bytes.size() / 64 * 64 + 48);
  if (bytes.size() < 112) return;
  std::memcpy(bytes.data(), "LIPGCKPT", 8);
  put(bytes, 44, lipgrad::mask_crc(lipgrad::crc32c(bytes.data(), 44)));
  const std::size_t footer = bytes.size() - 64;
  std::size_t last = 48;
  for (std::size_t at = 48; at + 16 <= footer;) {
    last = at;
    const auto size = get<std::uint64_t>(bytes, at + 8);
    if (size > footer - at - 16) break;
    fix_record(bytes, at, size);
    at = (at + 16 + size + 15) / 64 * 64 + 48;
  }
  put(bytes, footer, std::uint32_t{4});
  put(bytes, footer + 8, std::uint64_t{48});
  put(bytes, footer + 16, static_cast<std::uint64_t>(last));
  put(bytes, footer + 24, static_cast<std::uint64_t>(bytes.size()));
  std::memcpy(bytes.data() + footer + 56, "LIPGCKPT", 8);
  fix_record(bytes, footer, 48);
}

// The worst a reader can be made to allocate: in the manifest, an empty State takes 2 bytes of the
// file, 64 in memory, and up to 24 for the pointer to it while the array of these grows.
constexpr std::size_t kFactor = 64;

void read(const Bytes& bytes) {
  static const int fd = ::memfd_create("checkpoint", 0);
  if (::ftruncate(fd, 0) != 0 ||
      ::pwrite(fd, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    std::abort();
  const lipgrad::fuzz::AllocationLimit limit((64 << 10) + kFactor * bytes.size());
  try {
    lipgrad::read_checkpoint_info("/proc/self/fd/" + std::to_string(fd), true);
  } catch (const lipgrad::Error& error) {
    // Every error is one line.
    if (std::strchr(error.what(), '\n') != nullptr) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Bytes bytes(data, data + size);
  read(bytes);
  fix_checksums(bytes);
  read(bytes);
  return 0;
}
