#include <lipgrad/graph/csv_gz.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <optional>
#include <system_error>

#include <lipgrad/core/check.h>
#include <lipgrad/core/crc32c.h>
#include <lipgrad/core/printable.h>

namespace lipgrad {
namespace {

constexpr std::size_t kInputBytes = 1 << 16;
constexpr std::size_t kTextBytes = 1 << 18;  // of a piece, unless a line is longer
constexpr std::size_t kLongestLine = 16 << 20;
constexpr std::size_t kPadding = 8;  // readable behind a piece

}  // namespace

struct GzText::State {
  std::string file;
  int fd = -1;
  std::int64_t size = 0;
  std::span<const std::byte> rest;  // input not given to zlib yet
  std::vector<std::byte> input;     // of a file
  bool input_ended = false, ended = false;
  std::uint32_t crc = 0;
  z_stream stream{};
  bool in_member = false, any_member = false;

  std::vector<char> text;               // and padding
  std::size_t carried = 0, filled = 0;  // a line's beginning lies in [carried, filled)

  ~State() {
    inflateEnd(&stream);
    if (fd >= 0) ::close(fd);
  }

  void start() {
    // 16: gzip's header and checksum, and nothing else.
    if (inflateInit2(&stream, 16 + MAX_WBITS) != Z_OK) throw std::bad_alloc();
    text.resize(std::min<std::size_t>(kTextBytes, 4096) + kPadding);
  }

  // Makes `rest` hold what is next, unless the input ends.
  void fill() {
    if (!rest.empty() || input_ended) return;
    if (fd < 0) {
      input_ended = true;
      return;
    }
    input.resize(kInputBytes);
    ssize_t got;
    do {
      got = ::read(fd, input.data(), input.size());
    } while (got < 0 && errno == EINTR);
    LIPGRAD_CHECK(got >= 0, "{}: cannot read: {}", file, std::generic_category().message(errno));
    input_ended = got == 0;
    rest = std::span(input.data(), static_cast<std::size_t>(got));
    crc = crc32c(rest.data(), rest.size(), crc);
  }

  // Inflates into `out` until it is full or the text ends; returns the bytes.
  std::size_t inflate_into(std::span<char> out) {
    const std::size_t wanted = out.size();
    while (!out.empty() && !ended) {
      fill();
      if (rest.empty() && !in_member) {
        LIPGRAD_CHECK(any_member, "{}: an empty file, expected gzip data", file);
        ended = true;
        break;
      }
      LIPGRAD_CHECK(!rest.empty(), "{}: truncated: the gzip data end before their end", file);
      if (!in_member && any_member) inflateReset(&stream);
      in_member = any_member = true;
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(rest.data()));
      stream.avail_in = static_cast<uInt>(std::min<std::size_t>(rest.size(), 1 << 30));
      stream.next_out = reinterpret_cast<Bytef*>(out.data());
      stream.avail_out = static_cast<uInt>(out.size());
      const std::size_t given = stream.avail_in, room = stream.avail_out;
      const int status = inflate(&stream, Z_NO_FLUSH);
      rest = rest.subspan(given - stream.avail_in);
      out = out.subspan(room - stream.avail_out);
      if (status == Z_STREAM_END)
        in_member = false;
      else
        LIPGRAD_CHECK(status == Z_OK || status == Z_BUF_ERROR, "{}: damaged gzip data: {}", file,
                      stream.msg ? printable(stream.msg) : "they cannot be inflated");
    }
    return wanted - out.size();
  }

  std::string_view next() {
    std::memmove(text.data(), text.data() + carried, filled - carried);
    filled -= carried;
    carried = 0;
    while (true) {
      const std::size_t room = text.size() - kPadding - filled;
      const std::size_t got = inflate_into({text.data() + filled, room});
      const std::size_t before = filled;
      filled += got;
      if (ended && filled > 0 && text[filled - 1] != '\n') {
        if (filled + kPadding == text.size()) text.resize(text.size() + 1);
        text[filled++] = '\n';
      }
      const void* last = ::memrchr(text.data() + before, '\n', filled - before);
      const bool full = filled + kPadding == text.size();
      // Pieces grow to their size: small files take little memory.
      if (!ended && full && (text.size() < kTextBytes || !last)) {
        LIPGRAD_CHECK(text.size() < kLongestLine, "{}: a line of more than {} bytes", file,
                      kLongestLine);
        text.resize(2 * text.size());
        continue;
      }
      if (!last) last = ::memrchr(text.data(), '\n', filled);
      if (!last) return {};
      carried = static_cast<std::size_t>(static_cast<const char*>(last) - text.data()) + 1;
      return {text.data(), carried};
    }
  }
};

GzText::GzText(const std::string& path) : state_(std::make_unique<State>()) {
  state_->file = path;
  // Without O_NONBLOCK, opening a FIFO would wait for a writer.
  state_->fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  LIPGRAD_CHECK(state_->fd >= 0, "{}: cannot open: {}", path,
                std::generic_category().message(errno));
  struct stat status;
  LIPGRAD_CHECK(::fstat(state_->fd, &status) == 0 && S_ISREG(status.st_mode),
                "{}: is not a regular file", path);
  state_->size = static_cast<std::int64_t>(status.st_size);
  state_->start();
}

GzText::GzText(std::span<const std::byte> bytes, std::string file)
    : state_(std::make_unique<State>()) {
  state_->file = std::move(file);
  state_->size = static_cast<std::int64_t>(bytes.size());
  state_->rest = bytes;
  state_->crc = crc32c(bytes.data(), bytes.size());
  state_->start();
}

GzText::~GzText() = default;

const std::string& GzText::file() const { return state_->file; }
std::int64_t GzText::size() const { return state_->size; }
std::uint32_t GzText::crc() const { return state_->crc; }
std::string_view GzText::next() { return state_->next(); }

namespace {

// The number of digits at the start of eight characters.
inline int leading_digits(std::uint64_t word) {
  const std::uint64_t x = word ^ 0x3030303030303030;  // 0 to 9 for digits
  const std::uint64_t others = ((x + 0x7676767676767676) | x) & 0x8080808080808080;
  return others ? std::countr_zero(others) / 8 : 8;
}

// The value of the first `count` of eight characters, from 1 to 8, all digits.
inline std::uint64_t digits_value(std::uint64_t word, int count) {
  word <<= 64 - 8 * count;
  word = (word & 0x0f0f0f0f0f0f0f0f) * 2561 >> 8;
  word = (word & 0x00ff00ff00ff00ff) * 6553601 >> 16;
  return (word & 0x0000ffff0000ffff) * 42949672960001 >> 32;
}

constexpr std::array<std::uint64_t, 9> kPowers = {1,      10,      100,      1000,     10000,
                                                  100000, 1000000, 10000000, 100000000};

// Appends the digits at p to `value`; returns where they end. More than 19 make nonsense of it.
inline const char* take_digits(const char* p, std::uint64_t& value) {
  static_assert(std::endian::native == std::endian::little);
  while (true) {
    std::uint64_t word;
    std::memcpy(&word, p, sizeof word);
    const int count = leading_digits(word);
    if (count == 0) return p;
    value = value * kPowers[static_cast<std::size_t>(count)] + digits_value(word, count);
    p += count;
    if (count < 8) return p;
  }
}

// The lines of a file one after the other, with errors that name them.
class Lines {
 public:
  Lines(GzText& text, const CsvRows& rows) : text_(text), rows_(rows) {}

  // Calls line(p) with the start of each line; it returns where the line ends, at its '\n', or null
  // after having set problem().
  template <class F>
  void for_each(F&& line) {
    for (std::string_view piece = text_.next(); !piece.empty(); piece = text_.next()) {
      const char* p = piece.data();
      end_ = p + piece.size();
      while (p < end_) {
        if (count_ == rows_.count)
          fail("{}: line {}: there are more than the {} lines of {}", text_.file(), count_ + 1,
               rows_.count, rows_.source);
        start_ = p;
        p = line(p);
        if (!p) wrong();
        ++p;
        ++count_;
      }
      if (rows_.progress) rows_.progress(count_);
    }
    LIPGRAD_CHECK(rows_.count < 0 || count_ == rows_.count,
                  "{}: ends after line {}, but there must be {} by {}", text_.file(), count_,
                  rows_.count, rows_.source);
  }

  std::int64_t count() const { return count_; }
  const char* problem(std::string expected) {
    expected_ = std::move(expected);
    return nullptr;
  }
  // Where the field at p ends: at a comma or the line's '\n'.
  static const char* field_end(const char* p) {
    while (*p != ',' && *p != '\n') ++p;
    return p;
  }

 private:
  [[noreturn]] void wrong() const {
    const char* const end = static_cast<const char*>(
        std::memchr(start_, '\n', static_cast<std::size_t>(end_ - start_)));
    fail("{}: line {}: '{}', expected {}", text_.file(), count_ + 1,
         printable({start_, static_cast<std::size_t>(end - start_)}), expected_);
  }

  GzText& text_;
  const CsvRows& rows_;
  const char *start_ = nullptr, *end_ = nullptr;
  std::int64_t count_ = 0;
  std::string expected_;
};

// Elements that arrive one by one. Memory is taken at once for as many as are announced if so many
// can be expected in a file of this size, and otherwise as they come.
template <class T>
class Growing {
 public:
  // Each takes `text_bytes` or more in the text.
  Growing(const GzText& text, std::int64_t announced, std::int64_t text_bytes) {
    const std::int64_t likely = 16 * text.size() / text_bytes;
    reserve(std::clamp<std::int64_t>(announced, 16, std::max<std::int64_t>(16, likely)));
  }
  void push_back(T value) {
    if (size_ == capacity_) reserve(2 * capacity_);
    data_[size_++] = value;
  }
  std::int64_t size() const { return size_; }
  T back() const { return data_[size_ - 1]; }
  Tensor finish(const Shape& shape) const {
    if (shape.numel() == capacity_) return tensor_.alias(shape);
    Tensor result = empty(shape, dtype_of<T>());
    std::copy(data_, data_ + shape.numel(), result.template mutable_data<T>());
    return result;
  }

 private:
  void reserve(std::int64_t capacity) {
    Tensor larger = empty({capacity}, dtype_of<T>());
    T* data = larger.template mutable_data<T>();
    if (size_ > 0) std::copy(data_, data_ + size_, data);
    tensor_ = std::move(larger);
    data_ = data;
    capacity_ = capacity;
  }

  Tensor tensor_;
  T* data_ = nullptr;
  std::int64_t size_ = 0, capacity_ = 0;
};

// A whole number in [0, bound) at p, bound at most 2^31; null when there is none.
inline const char* take_id(const char* p, std::uint64_t bound, std::int32_t& id) {
  std::uint64_t value = 0;
  const char* const end = take_digits(p, value);
  if (end == p || end - p > 16 || value >= bound) return nullptr;
  id = static_cast<std::int32_t>(value);
  return end;
}

// What the short way below does not take.
const char* take_hard_number(const char* p, bool missing, float& number) {
  const char* const end = Lines::field_end(p);
  double value = std::numeric_limits<double>::quiet_NaN();
  if (p == end) return missing ? (number = static_cast<float>(value), end) : nullptr;
  const auto [stop, error] = std::from_chars(p, end, value);
  if (stop != end) return nullptr;
  if (error == std::errc::result_out_of_range) {
    // Too small for a double, or too large.
    if (std::string_view(p, end).find("e-") == std::string_view::npos) return nullptr;
    value = 0;
  } else if (error != std::errc()) {
    return nullptr;
  }
  if (std::abs(value) > std::numeric_limits<float>::max() || (std::isnan(value) && !missing))
    return nullptr;
  number = static_cast<float>(value);
  return end;
}

constexpr std::array<double, 19> kExactPowers = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,
                                                 1e7,  1e8,  1e9,  1e10, 1e11, 1e12, 1e13,
                                                 1e14, 1e15, 1e16, 1e17, 1e18};

// A number at p, up to a comma or the line's end; null when there is none.
inline const char* take_number(const char* p, bool missing, float& number) {
  const char* q = p + (*p == '-');
  std::uint64_t digits = 0;
  const char* const whole = q;
  q = take_digits(q, digits);
  std::ptrdiff_t count = q - whole, places = 0;
  if (*q == '.') {
    const char* const fraction = ++q;
    q = take_digits(q, digits);
    places = q - fraction;
    count += places;
  }
  // Of two numbers that a double holds exactly the quotient is the nearest double.
  constexpr std::uint64_t exact = std::uint64_t{1} << 53;
  if (count < 1 || count > 18 || digits > exact || (*q != ',' && *q != '\n')) [[unlikely]]
    return take_hard_number(p, missing, number);
  const double value = static_cast<double>(digits) / kExactPowers[static_cast<std::size_t>(places)];
  number = static_cast<float>(*p == '-' ? -value : value);
  return q;
}

}  // namespace

std::vector<Tensor> read_csv_ids(GzText& text, int columns, std::int64_t bound,
                                 const CsvRows& rows) {
  Lines lines(text, rows);
  std::vector<Growing<std::int32_t>> ids;
  for (int c = 0; c < columns; ++c) ids.emplace_back(text, rows.count, 2 * columns);
  const auto end = static_cast<std::uint64_t>(
      std::min<std::int64_t>(bound, std::int64_t{std::numeric_limits<std::int32_t>::max()} + 1));
  lines.for_each([&](const char* p) {
    for (int c = 0; c < columns; ++c) {
      std::int32_t id = 0;
      const char* q = take_id(p, end, id);
      if (!q || *q != (c + 1 < columns ? ',' : '\n'))
        return lines.problem(fmt::format("{} whole number{} in [0, {}){}", columns,
                                         columns == 1 ? "" : "s", bound,
                                         columns == 1 ? "" : ", with commas between"));
      ids[static_cast<std::size_t>(c)].push_back(id);
      p = q + 1;
    }
    return p - 1;
  });
  std::vector<Tensor> result;
  for (const auto& column : ids) result.push_back(column.finish({lines.count()}));
  return result;
}

Tensor read_csv_floats(GzText& text, bool missing, const CsvRows& rows) {
  Lines lines(text, rows);
  std::int64_t columns = 0;
  std::optional<Growing<float>> values;
  lines.for_each([&](const char* p) {
    if (columns == 0) {
      columns = 1;
      for (const char* q = p; *q != '\n'; ++q) columns += *q == ',';
      const std::int64_t most = std::numeric_limits<std::int64_t>::max() / columns;
      values.emplace(text, rows.count < 0 || rows.count > most ? 0 : rows.count * columns,
                     std::int64_t{2});
    }
    for (std::int64_t c = 0; c < columns; ++c) {
      float value = 0;
      const char* q = take_number(p, missing, value);
      if (!q || *q != (c + 1 < columns ? ',' : '\n'))
        return lines.problem(fmt::format(
            "{} {}, with commas between: field {}", columns,
            missing ? "numbers, or nothing for those not known" : "finite numbers", c + 1));
      values->push_back(value);
      p = q + 1;
    }
    return p - 1;
  });
  if (!values) return empty({0, 0}, f32);
  return values->finish({lines.count(), columns});
}

CsvTriples read_csv_triples(GzText& text, std::int64_t rows) {
  constexpr std::int64_t most_columns = 1 << 24;
  const CsvRows any;
  Lines lines(text, any);
  Growing<std::int32_t> row_of(text, 0, 6), columns(text, 0, 6);
  Growing<float> values(text, 0, 6);
  std::int64_t largest = -1;
  lines.for_each([&](const char* p) {
    std::int32_t row = 0, column = 0;
    float value = 0;
    const char* q = take_id(p, static_cast<std::uint64_t>(rows), row);
    if (q && *q == ',') q = take_id(q + 1, most_columns, column);
    if (q && *q == ',') q = take_number(q + 1, false, value);
    if (!q || *q != '\n')
      return lines.problem(
          fmt::format("a row in [0, {}), a column in [0, {}) and a number", rows, most_columns));
    if (columns.size() > 0 &&
        (row < row_of.back() || (row == row_of.back() && column <= columns.back())))
      return lines.problem("rows that ascend, and columns that do within a row");
    row_of.push_back(row);
    columns.push_back(column);
    values.push_back(value);
    largest = std::max<std::int64_t>(largest, column);
    return q;
  });
  CsvTriples result;
  const std::int64_t count = lines.count();
  const Tensor place = row_of.finish({count});
  result.offsets = empty({rows + 1}, i64);
  std::int64_t* offset = result.offsets.mutable_data<std::int64_t>();
  const std::int32_t* row = place.data<std::int32_t>();
  for (std::int64_t r = 0, k = 0; r <= rows; ++r) {
    while (k < count && row[k] < r) ++k;
    offset[r] = k;
  }
  result.columns = columns.finish({count});
  result.values = values.finish({count});
  result.num_columns = largest + 1;
  return result;
}

}  // namespace lipgrad
