#include <lipgrad/vision/image_file.h>

#include <array>
#include <cstring>
#include <string_view>

#include <lipgrad/core/check.h>
#include <lipgrad/core/file.h>
#include <lipgrad/vision/image_codecs.h>

namespace lipgrad {
namespace {

using namespace std::string_view_literals;

struct Signature {
  std::string_view bytes;
  std::size_t offset;
  const char* name;
};

// What people have that is neither JPEG nor PNG.
constexpr std::array kOthers = {
    Signature{"GIF8"sv, 0, "a GIF"},        Signature{"WEBP"sv, 8, "a WebP"},
    Signature{"BM"sv, 0, "a BMP"},          Signature{"II*\0"sv, 0, "a TIFF"},
    Signature{"MM\0*"sv, 0, "a TIFF"},      Signature{"ftypheic"sv, 4, "a HEIC"},
    Signature{"ftypavif"sv, 4, "an AVIF"},  Signature{"\0\0\0\x0cjP"sv, 0, "a JPEG 2000"},
    Signature{"\xff\x0a"sv, 0, "a JPEG XL"}};

std::uint8_t luma(const std::uint8_t* p) {
  return static_cast<std::uint8_t>((19595u * p[0] + 38470u * p[1] + 7471u * p[2] + 32768u) >> 16);
}

void to_grey(Image& image) {
  const std::int64_t pixels = image.height * image.width;
  std::uint8_t* const data = image.pixels.data();
  for (std::int64_t i = 0; i < pixels; ++i) data[i] = luma(data + 3 * i);
  image.reset(image.height, image.width, 1);
}

void to_colour(Image& image) {
  const std::int64_t pixels = image.height * image.width;
  image.reset(image.height, image.width, 3);
  std::uint8_t* const data = image.pixels.data();
  for (std::int64_t i = pixels - 1; i >= 0; --i) std::memset(data + 3 * i, data[i], 3);
}

}  // namespace

namespace detail {

void check_image_size(const std::string& file, std::int64_t height, std::int64_t width,
                      std::int64_t max_pixels, std::int64_t bytes, std::int64_t pixels_a_byte) {
  LIPGRAD_CHECK(height > 0 && width > 0, "{}: an image of {} x {} pixels", file, width, height);
  LIPGRAD_CHECK(height <= max_pixels / width,
                "{}: an image of {} x {} pixels; at most {} are accepted", file, width, height,
                max_pixels);
  LIPGRAD_CHECK(height * width / pixels_a_byte <= bytes,
                "{}: truncated: {} bytes cannot hold {} x {} pixels", file, bytes, width, height);
}

}  // namespace detail

void decode_image(std::span<const std::byte> bytes, const std::string& file, Image& image,
                  const DecodeOptions& options) {
  LIPGRAD_CHECK(options.channels == 1 || options.channels == 3,
                "decode_image: channels must be 1 or 3, got {}", options.channels);
  LIPGRAD_CHECK(options.max_pixels >= 1 && options.max_pixels <= std::int64_t{1} << 32,
                "decode_image: max_pixels must be from 1 to 2^32, got {}", options.max_pixels);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.starts_with("\xff\xd8\xff"sv)) {
    detail::decode_jpeg(bytes, file, image, options.max_pixels);
  } else if (text.starts_with("\x89PNG\r\n\x1a\n"sv)) {
    detail::decode_png(bytes, file, image, options.max_pixels);
  } else {
    LIPGRAD_CHECK(!text.empty(), "{}: an empty file, expected a JPEG or PNG image", file);
    for (const Signature& other : kOthers)
      LIPGRAD_CHECK(!text.substr(std::min(text.size(), other.offset)).starts_with(other.bytes),
                    "{}: {}; lipgrad reads JPEG and PNG images", file, other.name);
    fail("{}: neither a JPEG nor a PNG image", file);
  }
  if (options.channels == 1 && image.channels == 3) to_grey(image);
  if (options.channels == 3 && image.channels == 1) to_colour(image);
}

Image load_image(const std::string& path, const DecodeOptions& options) {
  Image image;
  decode_image(read_file(path, std::int64_t{256} << 20), path, image, options);
  return image;
}

}  // namespace lipgrad
