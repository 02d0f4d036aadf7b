#include <lipgrad/core/events.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <limits>
#include <system_error>
#include <type_traits>

#include <lipgrad/core/check.h>
#include <lipgrad/core/crc32c.h>

namespace lipgrad {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "events.out.tfevents.";
constexpr std::size_t kBufferBytes = std::size_t{1} << 18;

std::string reason() { return std::generic_category().message(errno); }

double system_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// The wire format of Protocol Buffers, as far as tensorflow/core/util/event.proto needs it. A field
// starts with its number and type; numbers have 7 bits a byte, fixed ones are little-endian.
enum WireType : unsigned { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

void put_key(std::string& out, unsigned field, WireType type) {
  put_varint(out, field << 3 | type);
}

template <class T>
void put_raw(std::string& out, T value) {
  static_assert(std::is_trivially_copyable_v<T>);
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void put_bytes(std::string& out, unsigned field, std::string_view value) {
  put_key(out, field, bytes);
  put_varint(out, value.size());
  out += value;
}

// message Event { double wall_time = 1; int64 step = 2; string file_version = 3;
//                 Summary summary = 5; SessionLog session_log = 7; }
std::string event(double wall_time, std::int64_t step, unsigned field, std::string_view content) {
  std::string out;
  put_key(out, 1, fixed64);
  put_raw(out, wall_time);
  if (step != 0) {
    put_key(out, 2, varint);
    put_varint(out, static_cast<std::uint64_t>(step));
  }
  put_bytes(out, field, content);
  return out;
}

bool keeps(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.' || c == '-';
}

std::string clean_tag(std::string_view tag) {
  tag.remove_prefix(std::min(tag.find_first_not_of('/'), tag.size()));
  std::string clean(tag);
  for (char& c : clean)
    if (!keeps(c) && c != '/') c = '_';
  return clean.empty() ? "_" : clean;
}

float to_float(double value) {
  constexpr double largest = std::numeric_limits<float>::max();
  // The conversion of larger values is not defined by the language.
  if (value > largest) return std::numeric_limits<float>::infinity();
  if (value < -largest) return -std::numeric_limits<float>::infinity();
  return static_cast<float>(value);
}

std::string host_name() {
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) != 0 || name[0] == '\0') return "localhost";
  std::string host = std::string(name).substr(0, 64);
  // No dots: they separate the parts of the file's name.
  for (char& c : host)
    if (!keeps(c) || c == '.') c = '_';
  return host;
}

// The time in seconds, or what makes the new file the last one in the directory.
std::int64_t seconds_for_name(const std::string& directory, double now) {
  constexpr std::int64_t most = 9999999999;  // what ten digits hold
  std::int64_t seconds = now > 0 ? static_cast<std::int64_t>(std::min(now, 1.0 * most)) : 0;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (!name.starts_with(kPrefix) || name.size() < kPrefix.size() + 10) continue;
    std::int64_t there = 0;
    const char* digits = name.data() + kPrefix.size();
    if (std::from_chars(digits, digits + 10, there).ptr == digits + 10)
      seconds = std::max(seconds, there + 1);
  }
  LIPGRAD_CHECK(!error, "{}: cannot list the directory for event files: {}", directory,
                error.message());
  return std::min(seconds, most);
}

}  // namespace

EventWriter::EventWriter(const std::string& directory) : EventWriter(directory, Options()) {}

EventWriter::EventWriter(const std::string& directory, Options options)
    : clock_(options.clock ? options.clock : system_seconds),
      flush_seconds_(options.flush_seconds) {
  static std::atomic<unsigned> count{0};
  const double now = clock_();
  const std::string stem = fmt::format("{}{:010}.{}.{}.", kPrefix, seconds_for_name(directory, now),
                                       host_name(), static_cast<std::int64_t>(::getpid()));
  do {  // another process of the same number, in another container, may have taken the name
    path_ = (fs::path(directory) / (stem + std::to_string(count++))).string();
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (fd_ < 0 && errno == EEXIST);
  LIPGRAD_CHECK(fd_ >= 0, "{}: cannot create the event file: {}", path_, reason());
  try {
    append(event(now, 0, 3, "brain.Event:2"));
    flush();
  } catch (...) {
    ::close(fd_);
    ::unlink(path_.c_str());
    throw;
  }
}

EventWriter::~EventWriter() {
  try {
    flush();
  } catch (...) {  // whoever must know has called flush()
  }
  ::close(fd_);
}

void EventWriter::start(std::int64_t first_step) {
  std::string session;  // message SessionLog { SessionStatus status = 1; }, START = 1
  put_key(session, 1, varint);
  put_varint(session, 1);
  append(event(clock_(), first_step, 7, session));
}

void EventWriter::scalars(std::int64_t step, std::span<const Scalar> values) {
  // message Summary { repeated Value value = 1; }
  // message Value { string tag = 1; float simple_value = 2; }
  std::string summary, one;
  for (const Scalar& scalar : values) {
    one.clear();
    put_bytes(one, 1, clean_tag(scalar.tag));
    put_key(one, 2, fixed32);
    put_raw(one, to_float(scalar.value));
    put_bytes(summary, 1, one);
  }
  append(event(clock_(), step, 5, summary));
}

// A record of TensorFlow's: u64 size | u32 masked crc32c of the size | data | u32 masked crc32c of
// the data, all little-endian.
void EventWriter::append(std::string_view event) {
  const auto size = static_cast<std::uint64_t>(event.size());
  put_raw(buffer_, size);
  put_raw(buffer_, mask_crc(crc32c(&size, sizeof size)));
  buffer_ += event;
  put_raw(buffer_, mask_crc(crc32c(event.data(), event.size())));
  const double waited = clock_() - flushed_at_;  // below 0: the clock was set back
  if (buffer_.size() >= kBufferBytes || waited < 0 || waited >= flush_seconds_) flush();
}

void EventWriter::flush() {
  std::string_view rest = buffer_;
  for (std::int64_t at = written_; !rest.empty();) {
    const ssize_t done = ::pwrite(fd_, rest.data(), rest.size(), at);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) {
      const std::string why = reason();
      // Whole events only. Where this fails too, the next flush() writes over the piece.
      [[maybe_unused]] const int ignored = ::ftruncate(fd_, written_);
      fail("{}: cannot write to the event file: {}", path_, why);
    }
    at += done;
    rest.remove_prefix(static_cast<std::size_t>(done));
  }
  written_ += static_cast<std::int64_t>(buffer_.size());
  buffer_.clear();
  flushed_at_ = clock_();
}

}  // namespace lipgrad
