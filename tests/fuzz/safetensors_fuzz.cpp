// Fuzzes the reader of .safetensors files: each as it comes, and once more with the size of its
// header made to fit, so that what lies behind is reached too.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <lipgrad/core/safetensors.h>

#include "allocation_limit.h"
#include "attempt.h"

namespace {

using lipgrad::fuzz::attempt;
using Bytes = std::vector<std::uint8_t>;

// Memory may grow to 64 KiB and this many times the input: seven bytes of metadata make a node of
// 96 bytes beside the header itself.
constexpr std::size_t kFactor = 16;

void read(const Bytes& bytes) {
  static const int fd = ::memfd_create("safetensors", 0);
  if (::ftruncate(fd, 0) != 0 ||
      ::pwrite(fd, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    std::abort();
  const lipgrad::fuzz::AllocationLimit limit((64 << 10) + kFactor * bytes.size());
  attempt([&] {
    const lipgrad::SafetensorsFile file("/proc/self/fd/" + std::to_string(fd));
    for (const auto& tensor : file.tensors()) attempt([&] { file.read(tensor.name); });
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Bytes bytes(data, data + size);
  read(bytes);
  // The header ends with the last brace.
  const auto brace = std::find(bytes.rbegin(), bytes.rend(), '}');
  if (brace == bytes.rend() || bytes.rend() - brace < 8) return 0;
  const auto header = static_cast<std::uint64_t>(bytes.rend() - brace) - 8;
  std::memcpy(bytes.data(), &header, sizeof header);
  read(bytes);
  return 0;
}
