// Fuzzes decode_image(): JPEG and PNG files of at most 2^17 pixels.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>

#include <lipgrad/core/error.h>
#include <lipgrad/vision/image_file.h>

#include "allocation_limit.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  constexpr std::int64_t pixels = 1 << 17;
  // libjpeg works at rows of up to 65500 pixels and 32 lines, with four components: their samples
  // twice, coefficients of two bytes where the file is progressive.
  const lipgrad::fuzz::AllocationLimit limit((std::size_t{40} << 20) + 16 * pixels);
  for (const std::int64_t channels : {3, 1}) {
    try {
      lipgrad::Image image;
      lipgrad::decode_image(bytes, "fuzz.img", image, {.channels = channels, .max_pixels = pixels});
      if (image.height * image.width > pixels || image.channels != channels ||
          image.pixels.size() !=
              static_cast<std::size_t>(image.height * image.width * image.channels))
        std::abort();
    } catch (const lipgrad::Error& error) {
      if (std::strchr(error.what(), '\n') != nullptr) std::abort();
      if (std::strncmp(error.what(), "fuzz.img: ", 10) != 0) std::abort();
    }
  }
  return 0;
}
