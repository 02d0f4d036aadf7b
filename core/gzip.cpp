#include <lipgrad/core/gzip.h>

#include <zlib.h>

#include <algorithm>

#include <lipgrad/core/check.h>
#include <lipgrad/core/printable.h>

namespace lipgrad {
namespace {

struct Inflater {
  z_stream stream{};
  Inflater() {
    if (inflateInit2(&stream, 16 + MAX_WBITS) != Z_OK) fail("gunzip: zlib cannot be initialised");
  }
  ~Inflater() { inflateEnd(&stream); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
};

}  // namespace

bool is_gzip(std::span<const std::byte> bytes) {
  return bytes.size() >= 2 && bytes[0] == std::byte{0x1f} && bytes[1] == std::byte{0x8b};
}

std::vector<std::byte> gunzip(std::span<const std::byte> bytes, const std::string& file,
                              std::int64_t max_bytes) {
  LIPGRAD_CHECK(is_gzip(bytes), "{}: not gzip data", file);
  Inflater inflater;
  z_stream& stream = inflater.stream;
  const auto most = static_cast<std::size_t>(max_bytes);
  std::vector<std::byte> out;
  std::size_t filled = 0;
  bool in_member = false;
  while (true) {
    // More may follow the end of a member: another one.
    if (!in_member) {
      if (bytes.empty() || filled > most) break;
      LIPGRAD_CHECK(is_gzip(bytes), "{}: damaged gzip data: something else follows them", file);
      inflateReset(&stream);
      in_member = true;
    }
    if (filled == out.size()) {
      LIPGRAD_CHECK(filled <= most, "{}: holds more than {} bytes", file, max_bytes);
      // One byte more than is accepted tells whether there is more.
      out.resize(std::min(std::max<std::size_t>(2 * filled, 4096), most + 1));
    }
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(bytes.data()));
    stream.avail_in = static_cast<uInt>(std::min<std::size_t>(bytes.size(), 1 << 30));
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + filled);
    stream.avail_out = static_cast<uInt>(std::min<std::size_t>(out.size() - filled, 1 << 30));
    const std::size_t given = stream.avail_in, room = stream.avail_out;
    const int status = inflate(&stream, Z_NO_FLUSH);
    bytes = bytes.subspan(given - stream.avail_in);
    filled += room - stream.avail_out;
    if (status == Z_STREAM_END) {
      in_member = false;
      continue;
    }
    LIPGRAD_CHECK(status == Z_OK || status == Z_BUF_ERROR, "{}: damaged gzip data: {}", file,
                  stream.msg ? printable(stream.msg) : "they cannot be inflated");
    LIPGRAD_CHECK(!bytes.empty() || stream.avail_out == 0,
                  "{}: truncated: the gzip data end before their end", file);
  }
  LIPGRAD_CHECK(filled <= most, "{}: holds more than {} bytes", file, max_bytes);
  out.resize(filled);
  return out;
}

}  // namespace lipgrad
