#include <lipgrad/vision/resample.h>

#include <doctest/doctest.h>

#include <algorithm>

#include <lipgrad/core/error.h>
#include <lipgrad/core/npz.h>

#include "support/data.h"

namespace lipgrad {
namespace {

std::string fmt_key(int n, const char* what) { return "resize/" + std::to_string(n) + "/" + what; }

Image image_of(const NpyArray& array) {
  Image image;
  image.reset(array.shape[0], array.shape[1], array.shape.rank() == 3 ? array.shape[2] : 1);
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(array.bytes.data());
  image.pixels.assign(bytes, bytes + array.bytes.size());
  return image;
}

TEST_CASE("Resampler: bit for bit what Pillow gives") {
  const NpzFile golden(test::golden("image/pillow.npz"));
  const Image image = image_of(golden.read("resize/image"));
  Resampler resampler;
  Image out;
  int cases = 0;
  for (; golden.contains(fmt_key(cases, "out")); ++cases) {
    CAPTURE(cases);
    const NpyArray corners = golden.read(fmt_key(cases, "box"));
    const auto box = corners.values<std::int64_t>();
    const Image expected = image_of(golden.read(fmt_key(cases, "out")));
    const bool linear = golden.read(fmt_key(cases, "filter")).values<std::int64_t>()[0] == 2;
    resampler.resize(image, {box[1], box[0], box[3] - box[1], box[2] - box[0]}, expected.height,
                     expected.width, out,
                     linear ? ResampleFilter::bilinear : ResampleFilter::bicubic);
    CHECK(out.height == expected.height);
    CHECK(out.width == expected.width);
    CHECK(out.pixels == expected.pixels);
  }
  CHECK(cases == 9);
  Image grey;
  grey.reset(image.height, image.width, 1);
  for (std::size_t i = 0; i < grey.pixels.size(); ++i) grey.pixels[i] = image.pixels[3 * i];
  const Image expected = image_of(golden.read("resize/grey"));
  resampler.resize(grey, {3, 2, 41, 58}, 31, 23, out);
  CHECK(out.pixels == expected.pixels);
}

TEST_CASE("Resampler: the same size is the part itself; parts must lie within") {
  Image image;
  image.reset(4, 5, 3);
  for (std::size_t i = 0; i < image.pixels.size(); ++i)
    image.pixels[i] = static_cast<std::uint8_t>(i);
  Resampler resampler;
  Image out;
  resampler.resize(image, {1, 2, 2, 3}, 2, 3, out);
  CHECK(std::equal(out.pixels.begin(), out.pixels.begin() + 9, image.pixels.begin() + 21));
  CHECK(std::equal(out.pixels.begin() + 9, out.pixels.end(), image.pixels.begin() + 36));
  CHECK_THROWS_WITH_AS(resampler.resize(image, {1, 2, 4, 3}, 2, 3, out),
                       "resize: 3 x 4 pixels from (2, 1) are not in an image of 5 x 4", Error);
  CHECK_THROWS_WITH_AS(resampler.resize(image, {0, 0, 4, 5}, 0, 3, out),
                       "resize: the new size must be from 1 to 65535, got 3 x 0", Error);
}

}  // namespace
}  // namespace lipgrad
