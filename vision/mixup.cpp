#include <lipgrad/vision/mixup.h>

#include <algorithm>
#include <cmath>

#include <lipgrad/core/check.h>
#include <lipgrad/core/map.h>
#include <lipgrad/vision/augment.h>

namespace lipgrad {

void check_mix_options(const char* op, const MixOptions& options) {
  LIPGRAD_CHECK(options.mixup >= 0 && options.cutmix >= 0 && std::isfinite(options.mixup) &&
                    std::isfinite(options.cutmix),
                "{}: mixup and cutmix must not be negative, got {} and {}", op, options.mixup,
                options.cutmix);
  for (const double p : {options.probability, options.switch_probability, options.label_smoothing})
    LIPGRAD_CHECK(p >= 0 && p <= 1,
                  "{}: probabilities and label_smoothing must lie in [0, 1], got {}", op, p);
}

ImageMix draw_mix(const MixOptions& options, std::uint64_t seed, std::int64_t epoch,
                  std::int64_t step, std::int64_t height, std::int64_t width) {
  ImageMix mix;
  if (options.mixup == 0 && options.cutmix == 0) return mix;
  ImageRandom random(seed, epoch, step, ImageRandom::mixing);
  if (random.uniform() >= options.probability) return mix;
  const bool cut =
      options.cutmix > 0 && (options.mixup == 0 || random.uniform() < options.switch_probability);
  mix.lambda = random.beta(cut ? options.cutmix : options.mixup);
  if (!cut) return mix;
  const double side = std::sqrt(1 - mix.lambda);
  const auto cut_of = [&](std::int64_t size, std::int64_t& first, std::int64_t& length) {
    const auto wanted = static_cast<std::int64_t>(static_cast<double>(size) * side);
    const std::int64_t center = random.below(size);
    first = std::clamp<std::int64_t>(center - wanted / 2, 0, size);
    length = std::clamp<std::int64_t>(center + wanted / 2, 0, size) - first;
  };
  cut_of(height, mix.box.top, mix.box.height);
  cut_of(width, mix.box.left, mix.box.width);
  mix.lambda =
      1 - static_cast<double>(mix.box.height * mix.box.width) / static_cast<double>(height * width);
  // An empty box would be taken for no box.
  if (mix.box.height == 0 || mix.box.width == 0) mix.box = {};
  return mix;
}

void mix_images(Tensor& images, const ImageMix& mix, bool channels_last) {
  LIPGRAD_CHECK(images.rank() == 4 && images.dtype() == f32 && images.device().is_cpu(),
                "mix_images: expects four dimensions of f32 on the CPU, got {} of shape {} on {}",
                images.dtype(), images.shape(), images.device());
  LIPGRAD_CHECK(mix.lambda >= 0 && mix.lambda <= 1, "mix_images: lambda must lie in [0, 1], got {}",
                mix.lambda);
  if (mix.lambda == 1) return;
  const int c_dim = channels_last ? 3 : 1, h_dim = channels_last ? 1 : 2;
  const std::int64_t batch = images.size(0), channels = images.size(c_dim),
                     height = images.size(h_dim), width = images.size(h_dim + 1),
                     numel = channels * height * width;
  float* const data = images.mutable_data<float>();
  const bool cut = mix.box.height > 0;
  LIPGRAD_CHECK(mix.box.top >= 0 && mix.box.left >= 0 && mix.box.height >= 0 &&
                    mix.box.width >= 0 && mix.box.top + mix.box.height <= height &&
                    mix.box.left + mix.box.width <= width,
                "mix_images: the box of {} x {} at ({}, {}) is not in images of {} x {}",
                mix.box.width, mix.box.height, mix.box.left, mix.box.top, width, height);
  const auto a = static_cast<float>(mix.lambda), b = static_cast<float>(1 - mix.lambda);
  for (std::int64_t i = 0; i < batch / 2; ++i) {
    float *x = data + i * numel, *y = data + (batch - 1 - i) * numel;
    if (!cut) {
      for (std::int64_t k = 0; k < numel; ++k) {
        const float p = x[k], q = y[k];
        x[k] = a * p + b * q;
        y[k] = a * q + b * p;
      }
      continue;
    }
    const std::int64_t step = channels_last ? channels : 1, planes = channels_last ? 1 : channels;
    for (std::int64_t c = 0; c < planes; ++c)
      for (std::int64_t r = mix.box.top; r < mix.box.top + mix.box.height; ++r) {
        const std::int64_t at = ((c * height + r) * width + mix.box.left) * step;
        std::swap_ranges(x + at, x + at + mix.box.width * step, y + at);
      }
  }
}

Tensor mixed_targets(const Tensor& labels, std::int64_t classes, double lambda,
                     double label_smoothing, DType dtype) {
  LIPGRAD_CHECK(labels.rank() == 1 && labels.dtype() == i64 && labels.device().is_cpu(),
                "mixed_targets: expects i64 labels of one dimension on the CPU, got {} of shape "
                "{} on {}",
                labels.dtype(), labels.shape(), labels.device());
  LIPGRAD_CHECK(classes > 0, "mixed_targets: expects classes > 0, got {}", classes);
  const std::int64_t batch = labels.numel();
  const auto* label = labels.data<std::int64_t>();
  for (std::int64_t i = 0; i < batch; ++i)
    LIPGRAD_CHECK(label[i] >= 0 && label[i] < classes,
                  "mixed_targets: label {} at position {} is not in [0, {})", label[i], i, classes);
  Tensor targets = empty({batch, classes}, dtype);
  const double off = label_smoothing / static_cast<double>(classes), on = 1 - label_smoothing + off;
  visit_float("mixed_targets", dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* row = targets.mutable_data<T>();
    for (std::int64_t i = 0; i < batch; ++i, row += classes)
      for (std::int64_t c = 0; c < classes; ++c)
        row[c] = static_cast<T>((c == label[i] ? on : off) * lambda +
                                (c == label[batch - 1 - i] ? on : off) * (1 - lambda));
  });
  return targets;
}

}  // namespace lipgrad
