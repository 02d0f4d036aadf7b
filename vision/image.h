#pragma once

#include <cstdint>
#include <vector>

namespace lipgrad {

// An image of 8 bits a channel: row by row, the channels of a pixel next to each other.
struct Image {
  std::int64_t height = 0, width = 0, channels = 0;
  std::vector<std::uint8_t> pixels;

  // Makes room for an image of that size, whose pixels are yet undefined; memory is kept.
  void reset(std::int64_t new_height, std::int64_t new_width, std::int64_t new_channels) {
    height = new_height;
    width = new_width;
    channels = new_channels;
    pixels.resize(static_cast<std::size_t>(height * width * channels));
  }
};

}  // namespace lipgrad
