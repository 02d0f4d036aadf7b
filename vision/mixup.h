#pragma once

#include <cstdint>

#include <lipgrad/core/tensor.h>
#include <lipgrad/vision/resample.h>

namespace lipgrad {

// How the images of a batch are mixed in pairs, and what their targets become.
struct MixOptions {
  // Beta(a, a) of mixup (Zhang et al., arXiv:1710.09412) and cutmix (Yun et al., arXiv:1905.04899);
  // 0: not done.
  double mixup = 0, cutmix = 0;
  // That a batch is mixed at all, and, where both may be, that it is cut.
  double probability = 1, switch_probability = 0.5;
  // Weight of the uniform distribution in the targets.
  double label_smoothing = 0;

  // Whether there are targets that labels cannot tell.
  bool soft_targets() const { return mixup > 0 || cutmix > 0 || label_smoothing > 0; }
};

// What is done to one batch. Image i is mixed with image B - 1 - i.
struct ImageMix {
  // The share of the image itself, in pixels or in area; 1: nothing is mixed.
  double lambda = 1;
  // Where it has pixels, these come from the other image; else all are averaged.
  ImageBox box = {};
};

// The mix of a batch of images of height x width: depends on (seed, epoch, step) alone. As in
// timm's batch mode: lambda is made right for what a box at the border lacks.
ImageMix draw_mix(const MixOptions& options, std::uint64_t seed, std::int64_t epoch,
                  std::int64_t step, std::int64_t height, std::int64_t width);

// Mixes f32 images on the CPU, (B, C, H, W) or with channels_last (B, H, W, C), in place.
void mix_images(Tensor& images, const ImageMix& mix, bool channels_last = false);

// (B, classes): lambda q(y_i) + (1 - lambda) q(y_(B - 1 - i)) with q(y) = (1 - s) onehot(y) + s /
// classes. labels: (B), i64, on the CPU. dtype: f32 or f64. Error for labels not in [0, classes).
Tensor mixed_targets(const Tensor& labels, std::int64_t classes, double lambda,
                     double label_smoothing = 0, DType dtype = f32);

// Error "<op>: ..." when the options make no sense.
void check_mix_options(const char* op, const MixOptions& options);

}  // namespace lipgrad
