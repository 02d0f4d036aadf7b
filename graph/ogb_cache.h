#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <lipgrad/core/tensor.h>

// The cache of OGB's raw files; not for users.
namespace lipgrad {

// A file that a cache was made from.
struct CacheSource {
  std::string name;                     // relative to the cache's folder
  std::int64_t size = 0, modified = 0;  // nanoseconds since 1970
  std::uint32_t crc = 0;                // CRC-32C
};

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

// Size and time of a file now; its checksum is left 0. Error when it is no regular file.
CacheSource source_of(const std::string& folder, const std::string& name);

// Writes the file <folder>/<file> (whole or not at all) with these tensors, on the CPU.
void write_cache(const std::string& folder, const std::string& file,
                 const std::vector<CacheSource>& sources, const std::vector<NamedTensor>& tensors);

// What it holds, if it was made from `sources` as they are now: of those whose time differs the
// checksum is computed. Empty, and why in `reason`, when it was not, is damaged or not readable;
// the reason is empty when there is no such file.
std::vector<NamedTensor> read_cache(const std::string& folder, const std::string& file,
                                    const std::vector<CacheSource>& sources, std::string& reason);

}  // namespace lipgrad
