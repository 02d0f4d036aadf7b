#include <lipgrad/vision/windows.h>

#include <doctest/doctest.h>

#include <lipgrad/core/error.h>
#include <lipgrad/core/npz.h>
#include <lipgrad/core/random.h>
#include <lipgrad/core/tape.h>

#include <support/data.h>
#include <support/tensors.h>

namespace lipgrad {
namespace {

// Pixel (y, x) of a 4 x 4 image is 10 y + x.
Tensor numbered() {
  Tensor image = zeros({1, 4, 4, 1}, f64);
  for (int i = 0; i < 16; ++i) image.mutable_data<double>()[i] = 10 * (i / 4) + i % 4;
  return image;
}

}  // namespace

TEST_CASE("window_partition: windows row by row, their pixels row by row") {
  const Tensor plain = window_partition(numbered(), {2, 2});
  CHECK(plain.shape() == Shape({4, 4, 1}));
  CHECK(plain.to_vector<double>() ==
        std::vector<double>{0, 1, 10, 11, 2, 3, 12, 13, 20, 21, 30, 31, 22, 23, 32, 33});
  const Tensor shifted = window_partition(numbered(), {2, 2, 1, 1});
  CHECK(shifted.to_vector<double>() ==
        std::vector<double>{11, 12, 21, 22, 13, 10, 23, 20, 31, 32, 1, 2, 33, 30, 3, 0});
  const Tensor lying = window_partition(numbered(), {1, 4, 0, 3});
  CHECK(lying.to_vector<double>() ==
        std::vector<double>{3, 0, 1, 2, 13, 10, 11, 12, 23, 20, 21, 22, 33, 30, 31, 32});
}

TEST_CASE("window_reverse gives the image back, and each is the other's gradient") {
  Generator rng{5};
  for (const Window w : {Window{2, 3}, Window{2, 3, 1, 2}, Window{4, 9, 3, 1}, Window{1, 1}}) {
    const Tensor image = randn({3, 4, 9, 5}, f32, rng);
    const Tensor windows = window_partition(image, w);
    CHECK(bitwise_equal(window_reverse(windows, 4, 9, w), image));
    Tape tape;
    const Tensor x = tape.watch(image), u = tape.watch(windows);
    CHECK(bitwise_equal(tape.grad(window_partition(x, w), {x}, windows)[0], image));
    CHECK(bitwise_equal(tape.grad(window_reverse(u, 4, 9, w), {u}, image)[0], windows));
  }
}

TEST_CASE("window_regions: labels differ where Swin's mask is not zero") {
  const auto golden = load_npz(test::golden("lipsformer/swin_mask.npz"));
  for (const char* which : {"8_4_2", "16_4_2"}) {
    CAPTURE(which);
    const Tensor mask = golden.at(std::string("mask_") + which);
    const std::int64_t size = which[0] == '8' ? 8 : 16;
    const Tensor labels = window_regions(size, size, {4, 4, 2, 2});
    REQUIRE(labels.dtype() == u8);
    REQUIRE(labels.shape() == Shape({mask.size(0), 16}));
    const std::uint8_t* label = labels.data<std::uint8_t>();
    int wrong = 0, masked = 0;
    for (std::int64_t w = 0; w < mask.size(0); ++w)
      for (int a = 0; a < 16; ++a)
        for (int b = 0; b < 16; ++b) {
          const bool apart = mask.data<double>()[(w * 16 + a) * 16 + b] != 0;
          masked += apart;
          wrong += apart != (label[w * 16 + a] != label[w * 16 + b]);
        }
    CHECK(wrong == 0);
    CHECK(masked > 0);
  }
}

TEST_CASE("window_regions: none without a shift, and along one direction only") {
  for (const std::uint8_t label : window_regions(8, 6, {4, 3}).to_vector<std::uint8_t>())
    CHECK(label == 0);
  CHECK(window_regions(2, 4, {2, 2, 0, 1}).to_vector<std::uint8_t>() ==
        std::vector<std::uint8_t>{0, 0, 0, 0, 1, 2, 1, 2});
  CHECK(window_regions(4, 2, {2, 2, 1, 0}).to_vector<std::uint8_t>() ==
        std::vector<std::uint8_t>{0, 0, 0, 0, 3, 3, 6, 6});
}

TEST_CASE("windows: errors say what does not fit") {
  CHECK_THROWS_WITH_AS(
      window_partition(ones({1, 10, 7, 3}), {7, 7}),
      "window_partition: windows of 7 x 7 do not divide an image of 10 x 7: pad or "
      "resize it to 14 x 7, or choose a window that divides it",
      Error);
  CHECK_THROWS_WITH_AS(window_partition(ones({8, 8, 3}), {4, 4}),
                       "window_partition: expects (B, H, W, C), got (8, 8, 3)", Error);
  CHECK_THROWS_WITH_AS(window_partition(ones({1, 8, 8, 3}), {4, 4, 4, 0}),
                       "window_partition: shifts of windows of 4 x 4 must be at least 0 and less "
                       "than these, got 4 and 0",
                       Error);
  CHECK_THROWS_AS(window_partition(ones({1, 8, 8, 3}), {0, 4}), Error);
  CHECK_THROWS_WITH_AS(
      window_reverse(ones({3, 16, 2}), 8, 8, {4, 4}),
      "window_reverse: images of 8 x 8 in windows of 4 x 4 are (B * 4, 16, C), got "
      "(3, 16, 2)",
      Error);
  CHECK_THROWS_AS(window_reverse(ones({4, 15, 2}), 8, 8, {4, 4}), Error);
  CHECK_THROWS_AS(window_partition(ones({1, 8, 8, 3}, i64), {4, 4}), Error);
}

}  // namespace lipgrad
