// Fuzzes the reader of OGB's compressed text: each input is read as gzip data, and as the text in
// such, in each of the ways that files are read.
#include <zlib.h>

#include <cstdint>
#include <cstdlib>
#include <vector>

#include <lipgrad/graph/csv_gz.h>

#include "allocation_limit.h"
#include "attempt.h"

namespace {

using Bytes = std::vector<std::byte>;

// What a byte of text can come to: two become four of a number, in an array that has doubled and is
// copied.
constexpr std::size_t kFactor = 8;
// What deflate can make of a byte.
constexpr std::size_t kInflated = 1032;

template <class F>
void attempt(const Bytes& bytes, F&& f) {
  lipgrad::fuzz::attempt([&] {
    lipgrad::GzText text(bytes, "fuzz.csv.gz");
    f(text);
  });
}

void read(const Bytes& bytes) {
  attempt(bytes, [](lipgrad::GzText& text) { lipgrad::read_csv_ids(text, 2, 1 << 20); });
  attempt(bytes, [](lipgrad::GzText& text) {
    lipgrad::read_csv_ids(text, 1, 100, {.count = 1'000'000'000'000, .source = "fuzz"});
  });
  attempt(bytes, [](lipgrad::GzText& text) { lipgrad::read_csv_floats(text, false); });
  attempt(bytes, [](lipgrad::GzText& text) {
    lipgrad::read_csv_floats(text, true, {.count = INT64_MAX, .source = "fuzz"});
  });
  attempt(bytes, [](lipgrad::GzText& text) {
    const lipgrad::CsvTriples triples = lipgrad::read_csv_triples(text, 1000);
    if (triples.offsets.data<std::int64_t>()[1000] != triples.columns.numel()) std::abort();
  });
}

// Stored, as gzip data: what the text is read as does not depend on how it was compressed.
Bytes stored(const std::uint8_t* data, std::size_t size) {
  z_stream stream{};
  if (deflateInit2(&stream, 0, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK)
    std::abort();
  Bytes bytes(deflateBound(&stream, static_cast<uLong>(size)));
  stream.next_in = const_cast<Bytef*>(data);
  stream.avail_in = static_cast<uInt>(size);
  stream.next_out = reinterpret_cast<Bytef*>(bytes.data());
  stream.avail_out = static_cast<uInt>(bytes.size());
  if (deflate(&stream, Z_FINISH) != Z_STREAM_END) std::abort();
  bytes.resize(stream.total_out);
  deflateEnd(&stream);
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto* begin = reinterpret_cast<const std::byte*>(data);
  const Bytes given(begin, begin + size), text = stored(data, size);
  // Buffers of 64 KiB and 256 KiB, and zlib's window.
  constexpr std::size_t fixed = 1 << 20;
  {
    const lipgrad::fuzz::AllocationLimit limit(fixed + kFactor * kInflated * size);
    read(given);
  }
  const lipgrad::fuzz::AllocationLimit limit(fixed + 2 * kFactor * size);
  read(text);
  return 0;
}
