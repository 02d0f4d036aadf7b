#pragma once

// Private: used by the readers of data sets.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lipgrad {

// Whether the bytes begin as gzip data do.
bool is_gzip(std::span<const std::byte> bytes);

// What gzip data (RFC 1952, of one or more members) hold. Memory grows as bytes arrive. Error
// "<file>: ..." when they are damaged, truncated, or hold more than max_bytes.
std::vector<std::byte> gunzip(std::span<const std::byte> bytes, const std::string& file,
                              std::int64_t max_bytes);

}  // namespace lipgrad
