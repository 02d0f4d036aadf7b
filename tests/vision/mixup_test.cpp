#include <lipgrad/vision/mixup.h>

#include <doctest/doctest.h>

#include <cmath>

#include <lipgrad/core/error.h>
#include <lipgrad/core/npz.h>
#include <lipgrad/core/random.h>

#include "support/data.h"
#include "support/tensors.h"

namespace lipgrad {
namespace {

TEST_CASE("mixed_targets: timm's") {
  const auto golden = load_npz(test::golden("lipsformer/train_utils.npz"));
  const Tensor& expected = golden.at("out.mixup_target_lam0.3_ls0.1");
  CHECK(test::distance(mixed_targets(golden.at("in.labels"), 5, 0.3, 0.1, f64), expected) <= 1e-15);
  const Tensor plain = mixed_targets(from_values<std::int64_t>({2}, {1, 0}), 3, 1);
  CHECK(plain.to_vector<float>() == std::vector<float>{0, 1, 0, 1, 0, 0});
  CHECK_THROWS_WITH_AS(mixed_targets(from_values<std::int64_t>({2}, {1, 3}), 3, 1),
                       "mixed_targets: label 3 at position 1 is not in [0, 3)", Error);
}

TEST_CASE("mix_images: pairs from both ends, in both layouts") {
  Generator rng{1};
  const Tensor before = randn({3, 2, 4, 5}, f32, rng);
  const auto at = [](const Tensor& x, int b, int c, int h, int w) {
    return x.data<float>()[((b * 2 + c) * 4 + h) * 5 + w];
  };
  Tensor mixed = before.clone();
  mix_images(mixed, {.lambda = 0.3});
  for (int b = 0; b < 3; ++b)
    for (int i = 0; i < 40; ++i)
      CHECK(mixed.data<float>()[40 * b + i] ==
            doctest::Approx(0.3 * before.data<float>()[40 * b + i] +
                            0.7 * before.data<float>()[40 * (2 - b) + i])
                .epsilon(1e-5));
  Tensor cut = before.clone();
  const ImageMix mix{.lambda = 1 - 6.0 / 20, .box = {1, 2, 2, 3}};
  mix_images(cut, mix);
  Tensor last = empty({3, 4, 5, 2}), expected = empty({3, 4, 5, 2});
  for (int b = 0; b < 3; ++b)
    for (int c = 0; c < 2; ++c)
      for (int h = 0; h < 4; ++h)
        for (int w = 0; w < 5; ++w) {
          const bool inside = h >= 1 && h < 3 && w >= 2;
          CHECK(at(cut, b, c, h, w) == at(before, inside ? 2 - b : b, c, h, w));
          const int k = ((b * 4 + h) * 5 + w) * 2 + c;
          last.mutable_data<float>()[k] = at(before, b, c, h, w);
          expected.mutable_data<float>()[k] = at(cut, b, c, h, w);
        }
  mix_images(last, mix, true);
  CHECK(bitwise_equal(last, expected));
  CHECK_THROWS_WITH_AS(mix_images(cut, {.lambda = 0.5, .box = {3, 0, 2, 2}}),
                       "mix_images: the box of 2 x 2 at (0, 3) is not in images of 5 x 4", Error);
}

TEST_CASE("draw_mix: what was asked for, by seed, epoch and step") {
  const auto draw = [](const MixOptions& options, std::int64_t step) {
    return draw_mix(options, 9, 2, step, 32, 24);
  };
  int cut = 0, mixed = 0, none = 0;
  const MixOptions both{.mixup = 0.8, .cutmix = 1, .probability = 0.5};
  for (std::int64_t step = 0; step < 400; ++step) {
    const ImageMix mix = draw(both, step), again = draw(both, step);
    CHECK(mix.lambda == again.lambda);
    CHECK(mix.box.left == again.box.left);
    CHECK(mix.lambda >= 0);
    CHECK(mix.lambda <= 1);
    if (mix.box.height > 0) {
      ++cut;
      CHECK(mix.lambda == 1 - static_cast<double>(mix.box.height * mix.box.width) / (32 * 24));
      CHECK(mix.box.top + mix.box.height <= 32);
      CHECK(mix.box.left + mix.box.width <= 24);
    } else {
      ++(mix.lambda == 1 ? none : mixed);
    }
    CHECK(draw({.mixup = 0.2}, step).box.height == 0);
    CHECK(draw({.label_smoothing = 0.1}, step).lambda == 1);
  }
  CHECK(cut > 60);
  CHECK(mixed > 60);
  CHECK(none > 150);
  CHECK_THROWS_WITH_AS(check_mix_options("x", {.mixup = -1}),
                       "x: mixup and cutmix must not be negative, got -1 and 0", Error);
}

}  // namespace
}  // namespace lipgrad
