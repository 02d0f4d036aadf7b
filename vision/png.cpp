#include <lipgrad/core/check.h>
#include <lipgrad/vision/image_codecs.h>
#include <lipgrad/vision/image_file.h>

#ifndef LIPGRAD_WITH_PNG

namespace lipgrad {

bool has_png() { return false; }

void detail::decode_png(std::span<const std::byte>, const std::string& file, Image&, std::int64_t) {
  fail(
      "{}: a PNG image, and this build of lipgrad has no libpng; install it (Debian: libpng-dev) "
      "and configure with -DLIPGRAD_PNG=ON",
      file);
}

}  // namespace lipgrad

#else

#include <png.h>

#include <cstdio>
#include <cstring>
#include <vector>

#include <lipgrad/core/printable.h>

namespace lipgrad {
namespace {

// Deflate makes 1032 bytes of one at most, and a byte holds eight pixels of one bit.
constexpr std::int64_t kPixelsAByte = 8 * 1032;

// As with libjpeg: a call that fails ends by longjmp(), so each step is a function of its own.
class Decoder {
 public:
  explicit Decoder(std::span<const std::byte> bytes) : rest_(bytes) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, &on_error, &on_warning);
    info_ = png_ ? png_create_info_struct(png_) : nullptr;
  }
  ~Decoder() { png_destroy_read_struct(&png_, &info_, nullptr); }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  bool open() {
    if (!info_) return false;
    if (setjmp(png_jmpbuf(png_))) return false;
    // Text and profiles are not looked at; without limits they could fill the memory.
    png_set_user_limits(png_, 0x7fffffff, 0x7fffffff);
    png_set_chunk_malloc_max(png_, 1 << 20);
    png_set_chunk_cache_max(png_, 16);
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, 0);
    png_set_read_fn(png_, this, &on_read);
    png_read_info(png_, info_);
    return true;
  }
  // One or three channels of eight bits.
  bool start() {
    if (setjmp(png_jmpbuf(png_))) return false;
    png_set_scale_16(png_);
    png_set_expand(png_);
    png_set_strip_alpha(png_);
    png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    return true;
  }
  bool read(png_bytepp rows) {
    if (setjmp(png_jmpbuf(png_))) return false;
    png_read_image(png_, rows);
    png_read_end(png_, nullptr);
    return true;
  }

  std::int64_t height() const { return png_get_image_height(png_, info_); }
  std::int64_t width() const { return png_get_image_width(png_, info_); }
  std::int64_t channels() const { return png_get_channels(png_, info_); }
  std::int64_t row_bytes() const {
    return static_cast<std::int64_t>(png_get_rowbytes(png_, info_));
  }
  std::string message() const { return printable(message_, sizeof message_); }

 private:
  [[noreturn]] static void on_error(png_structp png, png_const_charp message) {
    auto* self = static_cast<Decoder*>(png_get_error_ptr(png));
    std::snprintf(self->message_, sizeof self->message_, "%s", message);
    png_longjmp(png, 1);
  }
  static void on_warning(png_structp, png_const_charp) {}
  static void on_read(png_structp png, png_bytep out, png_size_t size) {
    auto* self = static_cast<Decoder*>(png_get_io_ptr(png));
    if (size > self->rest_.size()) png_error(png, "truncated: it ends before its end");
    std::memcpy(out, self->rest_.data(), size);
    self->rest_ = self->rest_.subspan(size);
  }

  std::span<const std::byte> rest_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  char message_[128] = "libpng cannot be initialised";
};

}  // namespace

bool has_png() { return true; }

void detail::decode_png(std::span<const std::byte> bytes, const std::string& file, Image& image,
                        std::int64_t max_pixels) {
  Decoder decoder(bytes);
  const auto broken = [&] { fail("{}: damaged PNG image: {}", file, decoder.message()); };
  if (!decoder.open()) broken();
  check_image_size(file, decoder.height(), decoder.width(), max_pixels,
                   static_cast<std::int64_t>(bytes.size()), kPixelsAByte);
  if (!decoder.start()) broken();
  image.reset(decoder.height(), decoder.width(), decoder.channels());
  LIPGRAD_CHECK(
      (image.channels == 1 || image.channels == 3) &&
          decoder.row_bytes() == image.width * image.channels,
      "{}: a PNG image of {} channels in rows of {} bytes, expected 8 bits of grey or RGB", file,
      image.channels, decoder.row_bytes());
  std::vector<png_bytep> rows(static_cast<std::size_t>(image.height));
  for (std::size_t y = 0; y < rows.size(); ++y)
    rows[y] = image.pixels.data() + y * static_cast<std::size_t>(decoder.row_bytes());
  if (!decoder.read(rows.data())) broken();
}

}  // namespace lipgrad

#endif
