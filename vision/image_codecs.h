#pragma once

// Private: what decode_image() calls. Both leave one, three or four channels.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <lipgrad/vision/image.h>

namespace lipgrad::detail {

void decode_jpeg(std::span<const std::byte> bytes, const std::string& file, Image& image,
                 std::int64_t max_pixels);
void decode_png(std::span<const std::byte> bytes, const std::string& file, Image& image,
                std::int64_t max_pixels);

// Error unless height x width is an image of 1 to max_pixels pixels, and no more than
// `pixels_a_byte` for each byte of the file.
void check_image_size(const std::string& file, std::int64_t height, std::int64_t width,
                      std::int64_t max_pixels, std::int64_t bytes, std::int64_t pixels_a_byte);

}  // namespace lipgrad::detail
