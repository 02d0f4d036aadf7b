#include <lipgrad/vision/image_file.h>

#include <doctest/doctest.h>

#include <cstring>

#include <lipgrad/core/error.h>
#include <lipgrad/core/file.h>
#include <lipgrad/core/npz.h>

#include "support/data.h"
#include "support/errors.h"

namespace lipgrad {
namespace {

using test::contains;
using test::error_of;
using Bytes = std::vector<std::byte>;

Bytes file(const std::string& name) { return read_file(test::golden("image/" + name)); }

Bytes bytes_of(const std::string& text) {
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return Bytes(begin, begin + text.size());
}

std::string decode_error(const Bytes& bytes, const DecodeOptions& options = {}) {
  Image image;
  return error_of([&] { decode_image(bytes, "x.img", image, options); });
}

// The largest difference from what Pillow decodes.
int difference(const NpzFile& golden, const std::string& array, const Image& image) {
  const NpyArray expected = golden.read(array);
  REQUIRE(expected.shape == (image.channels == 1
                                 ? Shape{image.height, image.width}
                                 : Shape{image.height, image.width, image.channels}));
  int worst = 0;
  for (std::size_t i = 0; i < image.pixels.size(); ++i)
    worst = std::max(worst, std::abs(int(image.pixels[i]) - int(expected.bytes[i])));
  return worst;
}

TEST_CASE("decode_image: every kind of file, as Pillow decodes it") {
  const NpzFile golden(test::golden("image/pillow.npz"));
  for (const char* name :
       {"rgb.jpg", "rgb444.jpg", "rgb422.jpg", "progressive.jpg", "grey.jpg", "cmyk.jpg", "rgb.png",
        "grey.png", "palette.png", "bits.png", "rgba.png", "grey_alpha.png"}) {
    CAPTURE(name);
    const bool jpeg = std::strstr(name, ".jpg") != nullptr;
    if (jpeg ? !has_jpeg() : !has_png()) {
      CHECK(contains(decode_error(file(name)), "this build of lipgrad has no lib"));
      continue;
    }
    Image image;
    decode_image(file(name), name, image);
    CHECK(image.channels == 3);
    CHECK(difference(golden, std::string(name) + "/rgb", image) == 0);
  }
  for (const char* name : {"grey.jpg", "rgb.png"}) {
    CAPTURE(name);
    if (!has_jpeg() || !has_png()) continue;
    const Image image = load_image(test::golden(std::string("image/") + name), {.channels = 1});
    CHECK(image.channels == 1);
    CHECK(difference(golden, std::string(name) + "/grey", image) == 0);
  }
}

TEST_CASE("decode_image: files cut anywhere are errors that name them") {
  if (!has_jpeg() || !has_png()) return;
  for (const char* name : {"rgb.jpg", "progressive.jpg", "cmyk.jpg", "palette.png", "rgb.png"}) {
    CAPTURE(name);
    const Bytes whole = file(name);
    for (std::size_t size = 0; size + 2 < whole.size(); size += 1 + size / 16) {
      CAPTURE(size);
      const std::string error = decode_error(Bytes(whole.begin(), whole.begin() + size));
      CHECK(error.starts_with("x.img: "));
    }
  }
  // A flipped bit in the middle of a PNG: its checksum tells.
  Bytes damaged = file("rgb.png");
  damaged[damaged.size() / 2] ^= std::byte{0x10};
  CHECK(contains(decode_error(damaged), "x.img: damaged PNG image: "));
}

TEST_CASE("decode_image: sizes are checked before memory is taken") {
  if (!has_jpeg() || !has_png()) return;
  CHECK(decode_error(file("rgb.jpg"), {.max_pixels = 400}) ==
        "x.img: an image of 19 x 22 pixels; at most 400 are accepted");
  CHECK(decode_error(file("rgb.png"), {.max_pixels = 417}) ==
        "x.img: an image of 19 x 22 pixels; at most 417 are accepted");
  CHECK(decode_error(file("rgb.png"), {.max_pixels = 418}).empty());
  // 60000 x 1000 pixels in a file of 800 bytes: the height and width of the frame header.
  Bytes jpeg = file("rgb.jpg");
  for (std::size_t i = 0; i + 9 < jpeg.size(); ++i)
    if (jpeg[i] == std::byte{0xff} && jpeg[i + 1] == std::byte{0xc0}) {
      const std::byte sizes[] = {std::byte{0xea}, std::byte{0x60}, std::byte{3}, std::byte{0xe8}};
      std::copy(sizes, sizes + 4, jpeg.begin() + i + 5);
      break;
    }
  CHECK(contains(decode_error(jpeg), "bytes cannot hold 1000 x 60000 pixels"));
}

TEST_CASE("decode_image: what is neither JPEG nor PNG is named") {
  CHECK(decode_error({}) == "x.img: an empty file, expected a JPEG or PNG image");
  CHECK(decode_error(bytes_of("hello")) == "x.img: neither a JPEG nor a PNG image");
  CHECK(decode_error(bytes_of("GIF89a....")) == "x.img: a GIF; lipgrad reads JPEG and PNG images");
  CHECK(decode_error(bytes_of("RIFF....WEBPVP8 ")) ==
        "x.img: a WebP; lipgrad reads JPEG and PNG images");
  CHECK(decode_error(bytes_of("GIF89a"), {.channels = 2}) ==
        "decode_image: channels must be 1 or 3, got 2");
  CHECK(contains(error_of([] { load_image("/nowhere/x.png"); }), "/nowhere/x.png: cannot open"));
}

}  // namespace
}  // namespace lipgrad
