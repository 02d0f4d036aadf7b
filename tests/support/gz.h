#pragma once

#include <zlib.h>

#include <stdexcept>
#include <string>

#include <lipgrad/core/file.h>

namespace lipgrad::test {

// The text as gzip data.
inline std::string gz(const std::string& text, int level = 6) {
  z_stream stream{};
  if (deflateInit2(&stream, level, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK)
    throw std::runtime_error("deflateInit2");
  std::string bytes(deflateBound(&stream, static_cast<uLong>(text.size())), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(bytes.data());
  stream.avail_out = static_cast<uInt>(bytes.size());
  const bool ended = deflate(&stream, Z_FINISH) == Z_STREAM_END;
  bytes.resize(stream.total_out);
  deflateEnd(&stream);
  if (!ended) throw std::runtime_error("deflate");
  return bytes;
}

inline void write_gz(const std::string& path, const std::string& text) {
  const std::string bytes = gz(text);
  write_file(path, std::as_bytes(std::span(bytes)));
}

}  // namespace lipgrad::test
