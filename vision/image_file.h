#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <lipgrad/vision/image.h>

namespace lipgrad {

// Whether this build of lipgrad reads JPEG (with libjpeg-turbo) and PNG (with libpng).
bool has_jpeg();
bool has_png();

struct DecodeOptions {
  // 3: red, green, blue; 1: grey. Grey images become three equal channels, coloured ones the luma
  // (299 R + 587 G + 114 B) / 1000.
  std::int64_t channels = 3;
  // Files that promise more than so many pixels are refused before memory is taken for them.
  std::int64_t max_pixels = std::int64_t{1} << 26;
};

// Decodes a JPEG or PNG file held in memory. JPEG: Huffman coded, baseline or progressive, of 8
// bits; grey, YCbCr, RGB, CMYK and YCCK. PNG: every kind; 16 bits become 8, palettes colours, and
// transparency is dropped. Orientation and colour profiles are not looked at. The file may be
// anything: Error "<file>: ..." for what is neither, truncated or damaged, or promises more pixels
// than a file of its size can hold, and for what this build cannot read.
void decode_image(std::span<const std::byte> bytes, const std::string& file, Image& image,
                  const DecodeOptions& options = {});

// The same from a file of at most 256 MiB.
Image load_image(const std::string& path, const DecodeOptions& options = {});

}  // namespace lipgrad
