#include <lipgrad/core/npz.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <functional>
#include <string_view>

#include <lipgrad/core/check.h>
#include <lipgrad/core/file.h>
#include <lipgrad/core/printable.h>

namespace lipgrad {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kMaxHeaderBytes = 0xffff;

// Gives the next bytes of an array, exactly as many as asked for.
using ReadFn = std::function<std::vector<std::byte>(std::uint64_t size)>;

struct Header {
  std::string descr;
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
};

// Parses the one Python literal that numpy writes: a dict of a string, a bool and a tuple of ints.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& what) : text_(text), what_(what) {}

  Header parse() {
    Header header;
    bool has_descr = false, has_order = false, has_shape = false;
    expect('{');
    while (!accept('}')) {
      const std::string key = string();
      expect(':');
      if (key == "descr" && !has_descr) {
        has_descr = true;
        if (peek() == '[') fail("{}: structured types are not supported", what_);
        header.descr = string();
      } else if (key == "fortran_order" && !has_order) {
        has_order = true;
        header.fortran_order = boolean();
      } else if (key == "shape" && !has_shape) {
        has_shape = true;
        header.shape = tuple();
      } else {
        refuse();
      }
      if (!accept(',') && peek() != '}') refuse();
    }
    if (peek() != '\0' || at_ != text_.size() || !has_descr || !has_order || !has_shape) refuse();
    return header;
  }

 private:
  [[noreturn]] void refuse() const {
    fail("{}: damaged .npy header at character {}: {}", what_, at_, printable(text_, 120));
  }
  char peek() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool accept(char c) {
    if (peek() != c || at_ == text_.size()) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) refuse();
  }
  std::string string() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') refuse();
    const std::size_t begin = ++at_, end = text_.find(quote, begin);
    if (end == std::string_view::npos) refuse();
    at_ = end + 1;
    return std::string(text_.substr(begin, end - begin));
  }
  bool boolean() {
    peek();
    for (const auto& [word, value] :
         {std::pair{std::string_view("False"), false}, {"True", true}}) {
      if (!text_.substr(at_).starts_with(word)) continue;
      at_ += word.size();
      return value;
    }
    refuse();
  }
  std::vector<std::int64_t> tuple() {
    std::vector<std::int64_t> sizes;
    expect('(');
    bool comma = true;  // whether another number may follow
    while (!accept(')')) {
      if (!comma || sizes.size() > Shape::max_rank) refuse();
      peek();
      std::int64_t size = 0;
      const char* end = text_.data() + text_.size();
      const auto [next, error] = std::from_chars(text_.data() + at_, end, size);
      if (error != std::errc() || size < 0) refuse();
      at_ = static_cast<std::size_t>(next - text_.data());
      accept('L');  // Python 2 wrote long integers so
      sizes.push_back(size);
      comma = accept(',');
    }
    if (sizes.size() == 1 && !comma) refuse();  // (3) is a number, not a tuple
    return sizes;
  }

  std::string_view text_;
  const std::string& what_;
  std::size_t at_ = 0;
};

// How an element is stored, and what it becomes.
struct ElementType {
  const char* descr;
  DType dtype;
  std::int64_t stored_bytes;
};

constexpr ElementType kTypes[] = {{"<f4", f32, 4}, {"<f8", f64, 8}, {"<i4", i32, 4},
                                  {"<i8", i64, 8}, {"|u1", u8, 1},  {"|i1", i32, 1},
                                  {"|b1", u8, 1}};

const ElementType& element_type(const std::string& descr, const std::string& what) {
  for (const ElementType& type : kTypes)
    if (descr == type.descr) return type;
  const bool big = descr.starts_with('>');
  fail("{}: its type is '{}'{}; lipgrad reads <f4 <f8 <i4 <i8 |i1 |u1 |b1", what, printable(descr),
       big ? " (big-endian)" : "");
}

template <class T>
void transpose_plane(std::int64_t rows, std::int64_t cols, std::int64_t in_stride,
                     std::int64_t out_stride, const T* in, T* out) {
  constexpr std::int64_t tile = 32;
  for (std::int64_t i0 = 0; i0 < rows; i0 += tile)
    for (std::int64_t j0 = 0; j0 < cols; j0 += tile)
      for (std::int64_t i = i0; i < std::min(i0 + tile, rows); ++i)
        for (std::int64_t j = j0; j < std::min(j0 + tile, cols); ++j)
          out[i * out_stride + j] = in[j * in_stride + i];
}

// From Fortran to C order. The first and the last dimension go tile by tile, one plane for each
// index of the dimensions between them.
template <class T>
std::vector<std::byte> to_c_order(const Shape& shape, const std::vector<std::byte>& bytes) {
  std::vector<std::byte> result(bytes.size());
  const T* in = reinterpret_cast<const T*>(bytes.data());
  T* out = reinterpret_cast<T*>(result.data());
  const int last = shape.rank() - 1;
  const std::int64_t rows = shape[0], cols = shape[last], numel = shape.numel();
  const std::int64_t planes = numel / (rows * cols);
  for (std::int64_t plane = 0; plane < planes; ++plane) {
    std::int64_t rest = plane, in_offset = 0, out_offset = 0, in_stride = rows;
    for (int dim = 1; dim < last; ++dim) {  // the plane's number, first of its dimensions fastest
      const std::int64_t index = rest % shape[dim];
      rest /= shape[dim];
      in_offset += index * in_stride;
      in_stride *= shape[dim];
      out_offset += index * shape.trailing(dim + 1);
    }
    transpose_plane(rows, cols, numel / cols, numel / rows, in + in_offset, out + out_offset);
  }
  return result;
}

std::vector<std::byte> widen(const std::vector<std::byte>& bytes) {
  std::vector<std::byte> result(4 * bytes.size());
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const std::int32_t value = static_cast<std::int8_t>(bytes[i]);
    std::memcpy(result.data() + 4 * i, &value, 4);
  }
  return result;
}

// `what` names the array in errors; `size` is the length of the whole thing.
NpyArray decode(std::uint64_t size, const ReadFn& read, const std::string& what) {
  static_assert(std::endian::native == std::endian::little, "arrays are stored little-endian");
  LIPGRAD_CHECK(size >= 10, "{}: not a .npy file: {} bytes are too few", what, size);
  const std::vector<std::byte> start = read(8);
  LIPGRAD_CHECK(std::memcmp(start.data(), kMagic.data(), kMagic.size()) == 0,
                "{}: not a .npy file: it does not begin with \\x93NUMPY", what);
  const int version = std::to_integer<int>(start[6]);
  LIPGRAD_CHECK(version >= 1 && version <= 3 && start[7] == std::byte{0},
                "{}: .npy format version {}.{}; supported are 1.0, 2.0 and 3.0", what, version,
                std::to_integer<int>(start[7]));
  const std::uint64_t length_bytes = version == 1 ? 2 : 4;
  LIPGRAD_CHECK(size - 8 >= length_bytes, "{}: truncated .npy file", what);
  std::uint32_t header_bytes = 0;
  std::memcpy(&header_bytes, read(length_bytes).data(), length_bytes);
  const std::uint64_t begin = 8 + length_bytes;
  LIPGRAD_CHECK(header_bytes <= kMaxHeaderBytes && header_bytes <= size - begin,
                "{}: damaged or truncated .npy file: a header of {} bytes in a file of {}", what,
                header_bytes, size);
  const std::vector<std::byte> text = read(header_bytes);
  const Header header =
      HeaderParser({reinterpret_cast<const char*>(text.data()), text.size()}, what).parse();
  const ElementType& type = element_type(header.descr, what);
  NpyArray array;
  array.dtype = type.dtype;
  try {
    array.shape = Shape(header.shape);
  } catch (const Error& error) {
    fail("{}: {}", what, error.what());
  }
  // Division instead of a product that could overflow.
  const std::uint64_t data_bytes = size - begin - header_bytes;
  const std::uint64_t numel = static_cast<std::uint64_t>(array.shape.numel());
  const std::uint64_t stored = static_cast<std::uint64_t>(type.stored_bytes);
  LIPGRAD_CHECK(data_bytes % stored == 0 && data_bytes / stored == numel,
                "{}: shape {} of type {} does not match its {} bytes of data", what, array.shape,
                header.descr, data_bytes);
  array.bytes = read(data_bytes);
  if (header.fortran_order && array.shape.rank() > 1 && numel > 0) {
    array.bytes = stored == 1   ? to_c_order<std::uint8_t>(array.shape, array.bytes)
                  : stored == 4 ? to_c_order<std::uint32_t>(array.shape, array.bytes)
                                : to_c_order<std::uint64_t>(array.shape, array.bytes);
  }
  if (header.descr == "|i1") array.bytes = widen(array.bytes);
  if (header.descr == "|b1")
    for (std::byte& byte : array.bytes) byte = std::byte{byte != std::byte{0}};
  return array;
}

}  // namespace

void NpyArray::throw_wrong_dtype(DType given, DType wanted) {
  fail("npy: an array of {} was read as {}", given, wanted);
}

NpyArray parse_npy(std::span<const std::byte> bytes, const std::string& file) {
  std::size_t at = 0;
  return decode(
      bytes.size(),
      [&](std::uint64_t size) {
        const auto part = bytes.subspan(at, size);
        at += size;
        return std::vector<std::byte>(part.begin(), part.end());
      },
      file);
}

NpyArray read_npy(const std::string& path) { return parse_npy(read_file(path), path); }

NpzFile::NpzFile(const std::string& path) : NpzFile(read_file(path), path) {}

NpzFile::NpzFile(std::vector<std::byte> bytes, const std::string& file)
    : bytes_(std::move(bytes)), archive_(bytes_, file) {
  constexpr std::string_view suffix = ".npy";
  for (std::size_t i = 0; i < archive_.entries().size(); ++i) {
    const std::string& name = archive_.entries()[i].name;
    if (!name.ends_with(suffix)) continue;
    names_.push_back(name.substr(0, name.size() - suffix.size()));
    index_.emplace(names_.back(), i);
  }
}

NpyArray NpzFile::read(const std::string& name) const {
  const auto found = index_.find(name);
  if (found == index_.end()) {
    std::string known;
    for (std::size_t i = 0; i < names_.size() && i < 20; ++i)
      known += (i == 0 ? "" : ", ") + printable(names_[i]);
    if (names_.size() > 20) known += ", ...";
    fail("{}: no array '{}'; it holds: {}", archive_.file(), name, known);
  }
  const ZipEntry& entry = archive_.entries()[found->second];
  ZipReader reader(archive_, entry);
  NpyArray array = decode(
      entry.size, [&](std::uint64_t size) { return reader.read(size); },
      fmt::format("{}: array '{}'", archive_.file(), printable(name)));
  reader.finish();
  return array;
}

}  // namespace lipgrad
