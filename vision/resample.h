#pragma once

#include <cstdint>
#include <vector>

#include <lipgrad/vision/image.h>

namespace lipgrad {

// `height` x `width` pixels of an image, from row `top` and column `left` on.
struct ImageBox {
  std::int64_t top = 0, left = 0, height = 0, width = 0;
};

enum class ResampleFilter { bilinear, bicubic };

// Resizes parts of images. Where the image becomes smaller the filter covers all pixels that a new
// one stands for, so that nothing aliases; bicubic with a = -1/2. Bit for bit what Pillow's
// Image.crop(box).resize(size, filter) and torchvision's antialiased resize of Pillow images give.
// An object keeps its working memory; it serves one thread at a time.
class Resampler {
 public:
  // Error unless the box lies within the image and the new size is from 1 to 65535.
  void resize(const Image& image, const ImageBox& box, std::int64_t height, std::int64_t width,
              Image& out, ResampleFilter filter = ResampleFilter::bicubic);

 private:
  // For each new pixel the first old one that counts, and the weights of `taps` of them, of 22 bits
  // behind the point.
  struct Weights {
    std::int64_t taps = 0;
    std::vector<std::int64_t> first, count;
    std::vector<std::int32_t> values;
    void compute(std::int64_t from, std::int64_t to, ResampleFilter filter);
  };

  Weights columns_, rows_;
  std::vector<std::uint8_t> narrow_;
};

}  // namespace lipgrad
