#include <lipgrad/vision/augment.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include <lipgrad/core/error.h>

namespace lipgrad {
namespace {

// Pixel (y, x), channel c is 40 y + 3 x + c, so that each place can be told.
Image numbered(std::int64_t height, std::int64_t width, std::int64_t channels = 1) {
  Image image;
  image.reset(height, width, channels);
  for (std::int64_t y = 0, i = 0; y < height; ++y)
    for (std::int64_t x = 0; x < width; ++x)
      for (std::int64_t c = 0; c < channels; ++c, ++i)
        image.pixels[i] = static_cast<std::uint8_t>(40 * y + 3 * x + c);
  return image;
}

// Pixels stay what they are.
ImageSetInfo plain(std::int64_t channels = 1) {
  return {.name = "x",
          .channels = channels,
          .mean = std::vector<double>(channels, 0),
          .stddev = std::vector<double>(channels, 1 / 255.0)};
}

std::vector<float> train(const ImageTransform& transform, const Image& image, std::int64_t index,
                         std::uint64_t seed = 1, std::int64_t epoch = 0) {
  TransformScratch scratch;
  std::vector<float> out(transform.numel(true));
  transform.train(image, seed, epoch, index, scratch, out.data());
  return out;
}

TEST_CASE("ImageTransform: layout, normalisation and flips") {
  const Image image = numbered(2, 3, 3);
  const ImageSetInfo info{.name = "x", .mean = {0.1, 0.2, 0.3}, .stddev = {0.5, 0.25, 2}};
  AugmentOptions options{.height = 2, .width = 3, .crop = ImageCrop::none, .flip = 0};
  const auto value = [&](int y, int x, int c) {
    return static_cast<float>(((40 * y + 3 * x + c) / 255.0 - info.mean[c]) / info.stddev[c]);
  };
  for (const double flip : {0.0, 1.0}) {
    options.flip = flip;
    const ImageTransform first(info, options, {.height = 2, .width = 3}),
        last(info, options, {.height = 2, .width = 3}, true);
    const std::vector<float> planes = train(first, image, 0), pixels = train(last, image, 0);
    for (int y = 0; y < 2; ++y)
      for (int x = 0; x < 3; ++x)
        for (int c = 0; c < 3; ++c) {
          const float expected = value(y, flip == 1 ? 2 - x : x, c);
          CHECK(planes[(c * 2 + y) * 3 + x] == expected);
          CHECK(pixels[(y * 3 + x) * 3 + c] == expected);
        }
  }
}

TEST_CASE("ImageTransform: padded crops have every offset, and zeros around") {
  const Image image = numbered(3, 4);
  const ImageTransform transform(
      plain(), {.height = 3, .width = 4, .crop = ImageCrop::padded, .padding = 1, .flip = 0}, {});
  std::vector<int> seen(9);
  for (std::int64_t index = 0; index < 200; ++index) {
    const std::vector<float> out = train(transform, image, index);
    int matches = 0;
    for (int top = -1; top <= 1; ++top)
      for (int left = -1; left <= 1; ++left) {
        bool same = true;
        for (int y = 0; y < 3; ++y)
          for (int x = 0; x < 4; ++x) {
            const int from_y = y + top, from_x = x + left;
            const bool inside = from_y >= 0 && from_y < 3 && from_x >= 0 && from_x < 4;
            same = same && std::abs(out[4 * y + x] -
                                    (inside ? 40.0f * from_y + 3.0f * from_x : 0.0f)) < 1e-4f;
          }
        matches += same;
        seen[3 * (top + 1) + left + 1] += same;
      }
    CHECK(matches == 1);
  }
  CHECK(*std::min_element(seen.begin(), seen.end()) > 5);
}

TEST_CASE("random_resized_box: areas and shapes are those asked for") {
  const AugmentOptions options;
  double area = 0;
  for (std::int64_t i = 0; i < 2000; ++i) {
    ImageRandom random(7, 0, i);
    const ImageBox box = random_resized_box(300, 400, options, random);
    CHECK(box.top >= 0);
    CHECK(box.left >= 0);
    CHECK(box.top + box.height <= 300);
    CHECK(box.left + box.width <= 400);
    const double share = static_cast<double>(box.height * box.width) / 120000,
                 ratio = static_cast<double>(box.width) / static_cast<double>(box.height);
    CHECK(share > 0.075);
    CHECK(ratio > 0.74);
    CHECK(ratio < 1.345);
    area += share / 2000;
  }
  // Uniform in [0.08, 1], but large ones often do not fit.
  CHECK(area > 0.40);
  CHECK(area < 0.54);
  // No attempt can succeed in a line of pixels: its middle.
  ImageRandom random(7, 0, 0);
  const ImageBox line = random_resized_box(1, 1000, {.min_scale = 0.9}, random);
  CHECK(line.height == 1);
  CHECK(line.width == 1);
  CHECK(line.left == 499);
}

TEST_CASE("ImageTransform: random numbers depend on seed, epoch and image alone") {
  const Image image = numbered(20, 20, 3);
  const ImageTransform transform(plain(3), {.height = 8, .width = 8, .erase = 0.5}, {});
  const auto first = train(transform, image, 5);
  CHECK(first == train(transform, image, 5));
  CHECK(first != train(transform, image, 6));
  CHECK(first != train(transform, image, 5, 2));
  CHECK(first != train(transform, image, 5, 1, 1));
}

TEST_CASE("ImageTransform: what is erased is a rectangle of normal noise") {
  Image image;
  image.reset(40, 40, 1);
  std::fill(image.pixels.begin(), image.pixels.end(), std::uint8_t{200});
  const ImageTransform transform(
      plain(), {.height = 40, .width = 40, .crop = ImageCrop::none, .flip = 0, .erase = 1}, {});
  double sum = 0, squares = 0, count = 0;
  for (std::int64_t index = 0; index < 50; ++index) {
    const auto out = train(transform, image, index);
    int top = 40, bottom = -1, left = 40, right = -1, changed = 0;
    for (int y = 0; y < 40; ++y)
      for (int x = 0; x < 40; ++x) {
        const float v = out[40 * y + x];
        if (std::abs(v - 200) < 1e-3f) continue;
        ++changed;
        top = std::min(top, y);
        bottom = std::max(bottom, y);
        left = std::min(left, x);
        right = std::max(right, x);
        sum += v;
        squares += v * v;
      }
    CHECK(changed == (bottom - top + 1) * (right - left + 1));
    CHECK(changed >= 0.015 * 1600);
    CHECK(changed <= 0.36 * 1600);
    count += changed;
  }
  CHECK(std::abs(sum / count) < 0.05);
  CHECK(std::abs(squares / count - 1) < 0.05);
}

TEST_CASE("ImageTransform::evaluate: the middle, resized where it must be") {
  TransformScratch scratch;
  const ImageTransform small(plain(), {}, {.height = 3, .width = 4});
  std::vector<float> out(small.numel(false));
  small.evaluate(numbered(3, 4), scratch, out.data());
  CHECK(out[4 * 2 + 3] == doctest::Approx(89));
  // 10 x 20 to 5 x 10, of which the middle 4 x 4 are taken.
  const Image image = numbered(10, 20);
  const ImageTransform transform(plain(), {}, {.height = 4, .width = 4, .resize = 5});
  out.resize(transform.numel(false));
  transform.evaluate(image, scratch, out.data());
  Image resized;
  Resampler().resize(image, {0, 0, 10, 20}, 5, 10, resized);
  for (int y = 0; y < 4; ++y)
    for (int x = 0; x < 4; ++x)
      CHECK(out[4 * y + x] == doctest::Approx(resized.pixels[10 * y + 3 + x]));
  CHECK_THROWS_WITH_AS(transform.evaluate(numbered(3, 3, 3), scratch, out.data()),
                       "ImageTransform: an image of 3 x 3 pixels and 3 channels, expected 1 "
                       "channels",
                       Error);
}

TEST_CASE("ImageTransform refuses options that make no sense") {
  CHECK_THROWS_WITH_AS(ImageTransform(plain(), {.height = 0}, {}),
                       "ImageTransform: height and width must be from 1 to 16384, got 0", Error);
  CHECK_THROWS_WITH_AS(ImageTransform(plain(), {.min_scale = 0}, {}),
                       "ImageTransform: scale must lie in (0, 1], got 0 to 1", Error);
  CHECK_THROWS_WITH_AS(ImageTransform(plain(), {}, {.resize = 100}),
                       "ImageTransform: resize must be from 224 to 32768, got 100", Error);
  CHECK_THROWS_WITH_AS(ImageTransform({.name = "x"}, {}, {}),
                       "ImageTransform: 3 channels, 0 means and 0 deviations", Error);
}

TEST_CASE("ImageRandom: uniform, normal, beta, whole numbers") {
  ImageRandom random(3, 1, 2);
  double uniform = 0, normal = 0, squares = 0, beta = 0, beta_squares = 0, tiny = 0;
  std::vector<int> seen(7);
  constexpr int n = 20000;
  for (int i = 0; i < n; ++i) {
    const double u = random.uniform(2, 4), z = random.normal(), b = random.beta(0.8);
    REQUIRE(u >= 2);
    REQUIRE(u < 4);
    REQUIRE(b >= 0);
    REQUIRE(b <= 1);
    uniform += u / n;
    normal += z / n;
    squares += z * z / n;
    beta += b / n;
    beta_squares += (b - 0.5) * (b - 0.5) / n;
    tiny += random.beta(1e-3) / n;
    ++seen[random.below(7)];
  }
  CHECK(uniform == doctest::Approx(3).epsilon(0.01));
  CHECK(std::abs(normal) < 0.03);
  CHECK(squares == doctest::Approx(1).epsilon(0.03));
  CHECK(beta == doctest::Approx(0.5).epsilon(0.02));
  CHECK(beta_squares == doctest::Approx(1 / (4 * 2.6)).epsilon(0.03));  // 1 / (4 (2 a + 1))
  CHECK(tiny == doctest::Approx(0.5).epsilon(0.05));
  CHECK(*std::min_element(seen.begin(), seen.end()) > n / 7 - 300);
}

}  // namespace
}  // namespace lipgrad
