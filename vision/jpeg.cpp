#include <lipgrad/core/check.h>
#include <lipgrad/vision/image_codecs.h>
#include <lipgrad/vision/image_file.h>

#ifndef LIPGRAD_WITH_JPEG

namespace lipgrad {

bool has_jpeg() { return false; }

void detail::decode_jpeg(std::span<const std::byte>, const std::string& file, Image&,
                         std::int64_t) {
  fail(
      "{}: a JPEG image, and this build of lipgrad has no libjpeg-turbo; install it (Debian: "
      "libjpeg62-turbo-dev) and configure with -DLIPGRAD_JPEG=ON",
      file);
}

}  // namespace lipgrad

#else

#include <csetjmp>
#include <cstdio>
// libjpeg's headers need stdio.h and, for the codes of its messages, the list of them.
#include <jerror.h>
#include <jpeglib.h>

#include <lipgrad/core/printable.h>

namespace lipgrad {
namespace {

// More scans than this serve only to keep a processor busy.
constexpr int kMostScans = 500;
// A block of 8 x 8 pixels takes a bit at the least, and blocks of the finest component cover at
// least an eighth of the pixels, whatever its sampling factors.
constexpr std::int64_t kPixelsAByte = 8 * 64 * 8;

// libjpeg ends a call that fails by longjmp(): no object with a destructor may live between it and
// setjmp(), which is why each step is a function of its own here.
class Decoder {
 public:
  Decoder() {
    info_.err = jpeg_std_error(&errors_.base);
    errors_.base.error_exit = &on_error;
    errors_.base.emit_message = &on_message;
    progress_.progress_monitor = &on_progress;
  }
  ~Decoder() {
    if (created_) jpeg_destroy_decompress(&info_);
  }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  bool open(const unsigned char* data, std::size_t size, long memory) {
    if (setjmp(errors_.jump)) return false;
    jpeg_create_decompress(&info_);
    created_ = true;
    info_.progress = &progress_;
    info_.mem->max_memory_to_use = memory;
    jpeg_mem_src(&info_, data, static_cast<unsigned long>(size));
    jpeg_read_header(&info_, TRUE);
    return true;
  }
  bool start() {
    if (setjmp(errors_.jump)) return false;
    jpeg_start_decompress(&info_);
    return true;
  }
  bool read(unsigned char* out, std::size_t stride) {
    if (setjmp(errors_.jump)) return false;
    while (info_.output_scanline < info_.output_height) {
      JSAMPROW rows[4];
      for (unsigned i = 0; i < 4; ++i)
        rows[i] = out + stride * std::size_t{
                                     std::min(info_.output_scanline + i, info_.output_height - 1)};
      jpeg_read_scanlines(&info_, rows, std::min(4u, info_.output_height - info_.output_scanline));
    }
    jpeg_finish_decompress(&info_);
    return true;
  }

  jpeg_decompress_struct& info() { return info_; }
  std::string message() const { return printable(errors_.message, sizeof errors_.message); }

 private:
  struct Errors {
    jpeg_error_mgr base;
    std::jmp_buf jump;
    char message[JMSG_LENGTH_MAX];
  };

  [[noreturn]] static void on_error(j_common_ptr info) {
    auto& errors = *reinterpret_cast<Errors*>(info->err);
    info->err->format_message(info, errors.message);
    std::longjmp(errors.jump, 1);
  }
  // Of the warnings, those count that mean lost pixels.
  static void on_message(j_common_ptr info, int level) {
    if (level >= 0) return;
    switch (info->err->msg_code) {
      case JWRN_JPEG_EOF:
      case JWRN_HIT_MARKER:
      case JWRN_HUFF_BAD_CODE:
        on_error(info);
      default:
        return;
    }
  }
  static void on_progress(j_common_ptr info) {
    if (info->is_decompressor &&
        reinterpret_cast<j_decompress_ptr>(info)->input_scan_number > kMostScans) {
      auto& errors = *reinterpret_cast<Errors*>(info->err);
      std::snprintf(errors.message, sizeof errors.message, "more than %d scans", kMostScans);
      std::longjmp(errors.jump, 1);
    }
  }

  Errors errors_{};
  jpeg_progress_mgr progress_{};
  jpeg_decompress_struct info_{};
  bool created_ = false;
};

// Adobe's programs store the four colours inverted, as libjpeg gives them.
void cmyk_to_rgb(Image& image, bool inverted) {
  const std::int64_t pixels = image.height * image.width;
  std::uint8_t* const data = image.pixels.data();
  const unsigned flip = inverted ? 0 : 255;
  for (std::int64_t i = 0; i < pixels; ++i) {
    const unsigned key = data[4 * i + 3] ^ flip;
    for (std::int64_t c = 0; c < 3; ++c)
      data[3 * i + c] = static_cast<std::uint8_t>(((data[4 * i + c] ^ flip) * key + 127) / 255);
  }
  image.reset(image.height, image.width, 3);
}

}  // namespace

bool has_jpeg() { return true; }

void detail::decode_jpeg(std::span<const std::byte> bytes, const std::string& file, Image& image,
                         std::int64_t max_pixels) {
  Decoder decoder;
  const auto broken = [&] { fail("{}: damaged JPEG image: {}", file, decoder.message()); };
  // Besides the image: coefficients of all of it, 2 bytes each, when it is progressive.
  if (!decoder.open(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
                    static_cast<long>(8 * max_pixels + (1 << 20))))
    broken();
  jpeg_decompress_struct& info = decoder.info();
  LIPGRAD_CHECK(!info.arith_code, "{}: a JPEG image with arithmetic coding, which is not read",
                file);
  check_image_size(file, info.image_height, info.image_width, max_pixels,
                   static_cast<std::int64_t>(bytes.size()), kPixelsAByte);
  switch (info.jpeg_color_space) {
    case JCS_GRAYSCALE:
      info.out_color_space = JCS_GRAYSCALE;
      break;
    case JCS_YCbCr:
    case JCS_RGB:
      info.out_color_space = JCS_RGB;
      break;
    case JCS_CMYK:
    case JCS_YCCK:
      info.out_color_space = JCS_CMYK;
      break;
    default:
      fail("{}: a JPEG image of {} components, expected grey, RGB or CMYK", file,
           info.num_components);
  }
  if (!decoder.start()) broken();
  image.reset(info.output_height, info.output_width, info.output_components);
  if (!decoder.read(image.pixels.data(), image.pixels.size() / info.output_height)) broken();
  if (image.channels == 4) cmyk_to_rgb(image, info.saw_Adobe_marker);
}

}  // namespace lipgrad

#endif
