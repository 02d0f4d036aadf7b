#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <lipgrad/core/crc32c.h>

// A reader of TensorBoard's event files that takes nothing for granted: checksums, sizes and the
// few fields that lipgrad writes; anything else is an exception.
namespace lipgrad::test {

struct Event {
  double wall_time = 0;
  std::int64_t step = 0;
  std::string file_version;
  bool start = false;                                 // SessionLog START
  std::vector<std::pair<std::string, float>> values;  // tag, simple_value
};

namespace detail {

class Bytes {
 public:
  explicit Bytes(std::string_view text) : rest_(text) {}
  bool empty() const { return rest_.empty(); }
  std::string_view take(std::uint64_t size) {
    if (size > rest_.size()) throw std::runtime_error("event file: truncated");
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }
  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = number<std::uint8_t>();
      value |= std::uint64_t{byte & 0x7fU} << shift;
      if (byte < 0x80) return value;
    }
    throw std::runtime_error("event file: a varint is too long");
  }
  std::string_view bytes() { return take(varint()); }

 private:
  std::string_view rest_;
};

inline void expect(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(std::string("event file: ") + what);
}

inline Event parse_event(std::string_view text) {
  Event event;
  for (Bytes in(text); !in.empty();) {
    const std::uint64_t key = in.varint();
    if (key == (1 << 3 | 1)) {
      event.wall_time = in.number<double>();
    } else if (key == 2 << 3) {
      event.step = static_cast<std::int64_t>(in.varint());
    } else if (key == (3 << 3 | 2)) {
      event.file_version = in.bytes();
    } else if (key == (5 << 3 | 2)) {
      for (Bytes summary(in.bytes()); !summary.empty();) {
        expect(summary.varint() == (1 << 3 | 2), "Summary.value expected");
        Bytes value(summary.bytes());
        expect(value.varint() == (1 << 3 | 2), "Value.tag expected");
        const std::string tag(value.bytes());
        expect(value.varint() == (2 << 3 | 5), "Value.simple_value expected");
        event.values.emplace_back(tag, value.number<float>());
        expect(value.empty(), "another field of Value");
      }
    } else if (key == (7 << 3 | 2)) {
      expect(in.bytes() == "\x08\x01", "SessionLog START expected");
      event.start = true;
    } else {
      throw std::runtime_error("event file: field " + std::to_string(key));
    }
  }
  return event;
}

}  // namespace detail

inline std::string file_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::vector<Event> read_events(const std::string& path) {
  const std::string text = file_text(path);
  std::vector<Event> events;
  for (detail::Bytes in(text); !in.empty();) {
    const std::string_view head = in.take(8);
    detail::expect(in.number<std::uint32_t>() == mask_crc(crc32c(head.data(), 8)),
                   "the checksum of a size");
    const std::string_view event = in.take(detail::Bytes(head).number<std::uint64_t>());
    detail::expect(in.number<std::uint32_t>() == mask_crc(crc32c(event.data(), event.size())),
                   "the checksum of an event");
    events.push_back(detail::parse_event(event));
  }
  return events;
}

// The event files of a directory in the order in which TensorBoard reads them.
inline std::vector<std::string> event_files(const std::string& directory) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    if (entry.path().filename().string().find("tfevents") != std::string::npos)
      paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  return paths;
}

// What TensorBoard shows of a directory: values by tag and step. A START after the first one
// removes what is not of an earlier step.
inline std::map<std::string, std::map<std::int64_t, float>> shown_scalars(
    const std::string& directory) {
  std::map<std::string, std::map<std::int64_t, float>> shown;
  bool started = false;
  for (const std::string& path : event_files(directory))
    for (const Event& event : read_events(path)) {
      if (event.start && started)
        for (auto& [tag, series] : shown)
          series.erase(series.lower_bound(event.step), series.end());
      started |= event.start;
      for (const auto& [tag, value] : event.values) shown[tag][event.step] = value;
    }
  return shown;
}

}  // namespace lipgrad::test
