// Fuzzes the .npy and .npz readers, and the data sets that an archive may hold.
#include <cstdint>
#include <string>
#include <vector>

#include <lipgrad/core/npz.h>
#include <lipgrad/graph/datasets.h>

#include "allocation_limit.h"
#include "attempt.h"

namespace {

using lipgrad::fuzz::attempt;
// Memory may grow to 64 KiB and this many times the input: the file itself, an array of it, the
// array in C order or widened from one byte to four or eight, the graph's edges in both directions
// while they are sorted. Deflate makes at most 1032 bytes of one.
constexpr std::size_t kFactor = 16, kDeflateRatio = 1032;

bool has_deflated_members(const std::vector<std::byte>& bytes) {
  bool found = false;
  attempt([&] {
    const lipgrad::ZipArchive archive(bytes, "fuzz.npz");
    for (const auto& entry : archive.entries()) found |= entry.method != 0;
  });
  return found;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto* begin = reinterpret_cast<const std::byte*>(data);
  std::vector<std::byte> bytes(begin, begin + size);
  const std::size_t ratio = has_deflated_members(bytes) ? kDeflateRatio : 1;
  const lipgrad::fuzz::AllocationLimit limit((64 << 10) + kFactor * ratio * size);
  if (size > 0 && data[0] == 0x93) {
    attempt([&] { lipgrad::parse_npy(bytes, "fuzz.npy"); });
    return 0;
  }
  attempt([&] {
    const lipgrad::NpzFile file(std::move(bytes), "fuzz.npz");
    for (const std::string& name : file.names()) attempt([&] { file.read(name); });
    attempt([&] { lipgrad::load_npz_dataset(file); });
  });
  return 0;
}
