#include <lipgrad/vision/augment.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include <lipgrad/core/check.h>

namespace lipgrad {
namespace {

constexpr int kAttempts = 10;

bool in_unit(double x) { return x >= 0 && x <= 1; }

}  // namespace

double ImageRandom::normal() {
  // 1 - uniform() is in (0, 1].
  const double radius = std::sqrt(-2 * std::log(1 - uniform()));
  return radius * std::cos(2 * std::numbers::pi * uniform());
}

// Marsaglia, Tsang: A simple method for generating gamma variables, ACM TOMS 26, 2000.
double ImageRandom::gamma(double a) {
  if (a < 1) {
    const double larger = gamma(a + 1);
    return larger * std::pow(1 - uniform(), 1 / a);
  }
  const double d = a - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = normal(), v = std::pow(1 + c * x, 3);
    const double u = 1 - uniform();
    if (v > 0 && std::log(u) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v;
  }
}

double ImageRandom::beta(double a) {
  const double x = gamma(a), y = gamma(a);
  // Both underflow where a is tiny: then one of the ends is as good as the other.
  return x + y > 0 ? x / (x + y) : (uniform() < 0.5 ? 0.0 : 1.0);
}

ImageBox random_resized_box(std::int64_t height, std::int64_t width, const AugmentOptions& options,
                            ImageRandom& random) {
  const double area = static_cast<double>(height) * static_cast<double>(width);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const double target = area * random.uniform(options.min_scale, options.max_scale);
    const double ratio =
        std::exp(random.uniform(std::log(options.min_ratio), std::log(options.max_ratio)));
    const std::int64_t w = std::llround(std::sqrt(target * ratio)),
                       h = std::llround(std::sqrt(target / ratio));
    if (w < 1 || h < 1 || w > width || h > height) continue;
    const std::int64_t top = random.below(height - h + 1), left = random.below(width - w + 1);
    return {top, left, h, w};
  }
  // The middle, as much of it as the ratios allow.
  const double ratio = static_cast<double>(width) / static_cast<double>(height);
  std::int64_t w = width, h = height;
  if (ratio < options.min_ratio)
    h = std::clamp<std::int64_t>(std::llround(static_cast<double>(w) / options.min_ratio), 1, h);
  else if (ratio > options.max_ratio)
    w = std::clamp<std::int64_t>(std::llround(static_cast<double>(h) * options.max_ratio), 1, w);
  return {(height - h) / 2, (width - w) / 2, h, w};
}

ImageTransform::ImageTransform(const ImageSetInfo& info, const AugmentOptions& augment,
                               const EvaluationOptions& evaluation, bool channels_last)
    : channels_(info.channels),
      augment_(augment),
      evaluation_(evaluation),
      channels_last_(channels_last) {
  constexpr std::int64_t most = 16384;
  const auto& a = augment_;
  auto& e = evaluation_;
  for (const std::int64_t size : {a.height, a.width, e.height, e.width})
    LIPGRAD_CHECK(size >= 1 && size <= most,
                  "ImageTransform: height and width must be from 1 to {}, got {}", most, size);
  if (e.resize == 0) e.resize = (std::max(e.height, e.width) * 256 + 112) / 224;
  LIPGRAD_CHECK(e.resize >= std::max(e.height, e.width) && e.resize <= 2 * most,
                "ImageTransform: resize must be from {} to {}, got {}", std::max(e.height, e.width),
                2 * most, e.resize);
  LIPGRAD_CHECK(a.min_scale > 0 && a.min_scale <= a.max_scale && a.max_scale <= 1,
                "ImageTransform: scale must lie in (0, 1], got {} to {}", a.min_scale, a.max_scale);
  LIPGRAD_CHECK(a.min_ratio > 0 && a.min_ratio <= a.max_ratio && std::isfinite(a.max_ratio),
                "ImageTransform: ratios must be positive and ascend, got {} to {}", a.min_ratio,
                a.max_ratio);
  LIPGRAD_CHECK(a.padding >= 0 && a.padding <= most,
                "ImageTransform: padding must be from 0 to {}, got {}", most, a.padding);
  LIPGRAD_CHECK(in_unit(a.flip) && in_unit(a.erase),
                "ImageTransform: probabilities must lie in [0, 1], got flip {} and erase {}",
                a.flip, a.erase);
  LIPGRAD_CHECK(a.erase_min_area > 0 && a.erase_min_area <= a.erase_max_area &&
                    a.erase_max_area <= 1 && a.erase_ratio > 0 && a.erase_ratio <= 1,
                "ImageTransform: erased areas must lie in (0, 1] and ratios in (0, 1], got {} to "
                "{} and {}",
                a.erase_min_area, a.erase_max_area, a.erase_ratio);
  const auto channels = static_cast<std::size_t>(channels_);
  LIPGRAD_CHECK((channels_ == 1 || channels_ == 3) && info.mean.size() == channels &&
                    info.stddev.size() == channels,
                "ImageTransform: {} channels, {} means and {} deviations", channels_,
                info.mean.size(), info.stddev.size());
  for (std::size_t c = 0; c < channels; ++c) {
    LIPGRAD_CHECK(info.stddev[c] > 0, "ImageTransform: deviation {} of channel {}, expected > 0",
                  info.stddev[c], c);
    for (int value = 0; value < 256; ++value)
      table_.push_back(static_cast<float>((value / 255.0 - info.mean[c]) / info.stddev[c]));
  }
}

void ImageTransform::check_image(const Image& image) const {
  LIPGRAD_CHECK(image.channels == channels_ && image.height > 0 && image.width > 0 &&
                    image.pixels.size() ==
                        static_cast<std::size_t>(image.height * image.width * image.channels),
                "ImageTransform: an image of {} x {} pixels and {} channels, expected {} channels",
                image.width, image.height, image.channels, channels_);
}

// The box may reach beyond the image: there pixels are zero.
void ImageTransform::to_floats(const Image& image, const ImageBox& box, bool flip,
                               float* out) const {
  const std::int64_t step = channels_last_ ? channels_ : 1,
                     plane = channels_last_ ? 1 : box.height * box.width;
  // Columns [begin, end) of the box lie within the image.
  const std::int64_t begin = std::clamp<std::int64_t>(-box.left, 0, box.width),
                     end = std::clamp<std::int64_t>(image.width - box.left, begin, box.width);
  for (std::int64_t y = 0; y < box.height; ++y) {
    const std::int64_t from = box.top + y;
    const bool inside = from >= 0 && from < image.height;
    for (std::int64_t c = 0; c < channels_; ++c) {
      const float* const table = table_.data() + 256 * c;
      float* const row = out + c * plane + y * box.width * step;
      const auto fill = [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t x = first; x < last; ++x)
          row[(flip ? box.width - 1 - x : x) * step] = table[0];
      };
      if (!inside) {
        fill(0, box.width);
        continue;
      }
      fill(0, begin);
      fill(end, box.width);
      const std::uint8_t* p =
          image.pixels.data() + (from * image.width + box.left + begin) * channels_ + c;
      float* to = row + (flip ? box.width - 1 - begin : begin) * step;
      const std::int64_t forward = flip ? -step : step;
      for (std::int64_t x = begin; x < end; ++x, p += channels_, to += forward) *to = table[*p];
    }
  }
}

void ImageTransform::erase(ImageRandom& random, float* out) const {
  const std::int64_t height = augment_.height, width = augment_.width;
  const double area = static_cast<double>(height * width);
  const double log_ratio = -std::log(augment_.erase_ratio);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const double target = area * random.uniform(augment_.erase_min_area, augment_.erase_max_area),
                 ratio = std::exp(random.uniform(-log_ratio, log_ratio));
    const std::int64_t h = std::llround(std::sqrt(target * ratio)),
                       w = std::llround(std::sqrt(target / ratio));
    if (h < 1 || w < 1 || h >= height || w >= width) continue;
    const std::int64_t top = random.below(height - h + 1), left = random.below(width - w + 1);
    for (std::int64_t y = top; y < top + h; ++y)
      for (std::int64_t x = left; x < left + w; ++x)
        for (std::int64_t c = 0; c < channels_; ++c)
          out[channels_last_ ? (y * width + x) * channels_ + c : (c * height + y) * width + x] =
              static_cast<float>(random.normal());
    return;
  }
}

void ImageTransform::train(const Image& image, std::uint64_t seed, std::int64_t epoch,
                           std::int64_t index, TransformScratch& scratch, float* out) const {
  check_image(image);
  ImageRandom random(seed, epoch, index);
  const std::int64_t height = augment_.height, width = augment_.width;
  const Image* source = &image;
  ImageBox box{0, 0, height, width};
  if (augment_.crop == ImageCrop::random_resized) {
    const ImageBox part = random_resized_box(image.height, image.width, augment_, random);
    scratch.resampler.resize(image, part, height, width, scratch.part);
    source = &scratch.part;
  } else {
    if (image.height != height || image.width != width) {
      scratch.resampler.resize(image, {0, 0, image.height, image.width}, height, width,
                               scratch.part);
      source = &scratch.part;
    }
    if (augment_.crop == ImageCrop::padded) {
      box.top = random.below(2 * augment_.padding + 1) - augment_.padding;
      box.left = random.below(2 * augment_.padding + 1) - augment_.padding;
    }
  }
  const bool flip = random.uniform() < augment_.flip;
  to_floats(*source, box, flip, out);
  if (augment_.erase > 0 && random.uniform() < augment_.erase) erase(random, out);
}

void ImageTransform::evaluate(const Image& image, TransformScratch& scratch, float* out) const {
  check_image(image);
  const std::int64_t height = evaluation_.height, width = evaluation_.width;
  if (image.height == height && image.width == width)
    return to_floats(image, {0, 0, height, width}, false, out);
  const std::int64_t shorter = std::min(image.height, image.width);
  // The longer side is cut, as torchvision does. Beyond this the middle is all that is needed.
  const auto scaled = [&](std::int64_t side) { return side * evaluation_.resize / shorter; };
  const std::int64_t new_height = scaled(image.height), new_width = scaled(image.width);
  LIPGRAD_CHECK(new_height <= 65535 && new_width <= 65535,
                "ImageTransform: an image of {} x {} pixels is too narrow to be resized",
                image.width, image.height);
  scratch.resampler.resize(image, {0, 0, image.height, image.width}, new_height, new_width,
                           scratch.resized);
  // Halves are rounded to even, as torchvision does.
  const auto middle = [](std::int64_t rest) { return rest / 2 + (rest % 2) * (rest / 2 % 2); };
  to_floats(scratch.resized,
            {middle(new_height - height), middle(new_width - width), height, width}, false, out);
}

}  // namespace lipgrad
