#pragma once

#include <cstdint>
#include <vector>

#include <lipgrad/core/philox.h>
#include <lipgrad/vision/image.h>
#include <lipgrad/vision/image_data.h>
#include <lipgrad/vision/resample.h>

namespace lipgrad {

// Random numbers for one image in one epoch: they depend on the seed, the epoch, the image and the
// purpose alone, not on who asks or when.
class ImageRandom {
 public:
  enum Purpose : std::uint64_t { augmentation, mixing, order };

  ImageRandom(std::uint64_t seed, std::int64_t epoch, std::int64_t image,
              Purpose purpose = augmentation)
      : seed_(stream(seed)),
        draw_(static_cast<std::uint64_t>(epoch) * 4 + purpose),
        block_(static_cast<std::uint64_t>(image) << 24) {}

  // The seed by which images are drawn: not that of the model's own numbers.
  static std::uint64_t stream(std::uint64_t seed) { return seed ^ 0x6c69707669736f6eULL; }

  std::uint32_t word() {
    if (used_ == 4) {
      words_ = philox(seed_, draw_, block_++);
      used_ = 0;
    }
    return words_.word[used_++];
  }
  // In [0, 1).
  double uniform() { return word() * 0x1p-32; }
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  // A whole number in [0, n), n from 1 to 2^32.
  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>((std::uint64_t{word()} * static_cast<std::uint64_t>(n)) >> 32);
  }
  // Standard normal.
  double normal();
  // Beta(a, a) for a > 0.
  double beta(double a);

 private:
  double gamma(double a);

  std::uint64_t seed_, draw_, block_;
  PhiloxBlock words_{};
  int used_ = 4;
};

enum class ImageCrop {
  none,            // the whole image, resized where it has another size
  padded,          // the same with a border of zeros, of which a part of the old size is taken
  random_resized,  // a part of random area and shape, resized (Szegedy et al., arXiv:1409.4842)
};

// How images are changed for training.
struct AugmentOptions {
  std::int64_t height = 224, width = 224;
  ImageCrop crop = ImageCrop::random_resized;
  // random_resized: the part's share of the area, and its width over its height (log-uniform).
  double min_scale = 0.08, max_scale = 1, min_ratio = 3.0 / 4, max_ratio = 4.0 / 3;
  // padded: the border's width.
  std::int64_t padding = 4;
  // Probability of being mirrored.
  double flip = 0.5;
  // Probability that a rectangle is replaced by normal noise (Zhong et al., arXiv:1708.04896): its
  // share of the area, and its height over its width from erase_ratio to 1 / erase_ratio
  // (log-uniform).
  double erase = 0, erase_min_area = 0.02, erase_max_area = 1.0 / 3, erase_ratio = 0.3;
};

// How images are changed for evaluation: those of another size are resized, so that the shorter
// side has `resize` pixels, and their middle is taken.
struct EvaluationOptions {
  std::int64_t height = 224, width = 224;
  // 0: the larger of height and width times 256 / 224, rounded.
  std::int64_t resize = 0;
};

// What a thread needs beside the image.
struct TransformScratch {
  Image resized, part;
  Resampler resampler;
};

// Images of 8 bits to normalised floats: (pixel / 255 - mean) / stddev in each channel, (C, H, W)
// or, with channels_last, (H, W, C). May be used by several threads, each with a scratch of its
// own.
class ImageTransform {
 public:
  // Error when the options make no sense, or info has not a mean and a positive deviation for each
  // of its channels.
  ImageTransform(const ImageSetInfo& info, const AugmentOptions& augment,
                 const EvaluationOptions& evaluation, bool channels_last = false);

  // `out` has room for numel() floats. The random numbers are those of (seed, epoch, index).
  void train(const Image& image, std::uint64_t seed, std::int64_t epoch, std::int64_t index,
             TransformScratch& scratch, float* out) const;
  void evaluate(const Image& image, TransformScratch& scratch, float* out) const;

  std::int64_t channels() const { return channels_; }
  // Of training images and of those to evaluate.
  std::int64_t numel(bool train) const {
    return channels_ *
           (train ? augment_.height * augment_.width : evaluation_.height * evaluation_.width);
  }

 private:
  void check_image(const Image& image) const;
  void to_floats(const Image& image, const ImageBox& box, bool flip, float* out) const;
  void erase(ImageRandom& random, float* out) const;

  std::int64_t channels_;
  AugmentOptions augment_;
  EvaluationOptions evaluation_;
  bool channels_last_;
  std::vector<float> table_;  // (C, 256): what each value becomes
};

// The part that random_resized takes, of an image of that size.
ImageBox random_resized_box(std::int64_t height, std::int64_t width, const AugmentOptions& options,
                            ImageRandom& random);

}  // namespace lipgrad
