#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string_view>

#include <lipgrad/core/check.h>
#include <lipgrad/core/file.h>
#include <lipgrad/core/npz.h>

namespace lipgrad {
namespace {

constexpr std::uint16_t kPlainVersion = 20, kZip64Version = 45;
constexpr std::uint16_t kUtf8Names = 1 << 11;
// 1 January 1980, the first date that the format knows, so that equal arrays give equal files.
constexpr std::uint16_t kTime = 0, kDate = (1 << 5) | 1;

const char* descr_of(DType dtype) {
  switch (dtype) {
    case f32:
      return "<f4";
    case f64:
      return "<f8";
    case i32:
      return "<i4";
    case i64:
      return "<i8";
    case u8:
      break;
  }
  return "|u1";
}

// Everything of a .npy file before the elements, padded so that these begin at a multiple of 64.
std::string npy_header(const NpyView& array) {
  std::string sizes;
  for (std::int64_t size : array.shape) sizes += fmt::format("{}, ", size);
  // Python's notation: (), (3,), (3, 4).
  if (array.shape.rank() > 0) sizes.erase(sizes.size() - (array.shape.rank() == 1 ? 1 : 2));
  std::string dict = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}",
                                 descr_of(array.dtype), sizes);
  constexpr std::size_t before = 10;
  dict.append(63 - (before + dict.size()) % 64, ' ');
  dict += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(dict.size() & 0xff);
  header += static_cast<char>(dict.size() >> 8);
  return header + dict;
}

void check_size(const std::string& path, const NpyView& array) {
  LIPGRAD_CHECK(
      array.bytes.size() == static_cast<std::size_t>(array.shape.numel() * size_of(array.dtype)),
      "{}: cannot save {} bytes as an array of {} and shape {}", path, array.bytes.size(),
      array.dtype, array.shape);
}

std::uint32_t crc_of(std::uint32_t crc, const void* data, std::size_t size) {
  // zlib takes a null pointer, which an empty array may have, for "start again".
  if (size == 0) return crc;
  return static_cast<std::uint32_t>(::crc32_z(crc, static_cast<const Bytef*>(data), size));
}

// Appends little-endian numbers.
class Record {
 public:
  Record& u16(std::uint64_t value) { return put(value, 2); }
  Record& u32(std::uint64_t value) { return put(value, 4); }
  Record& u64(std::uint64_t value) { return put(value, 8); }
  Record& text(std::string_view text) {
    bytes_ += text;
    return *this;
  }
  const std::string& str() const { return bytes_; }

 private:
  Record& put(std::uint64_t value, int size) {
    for (int i = 0; i < size; ++i) bytes_ += static_cast<char>(value >> 8 * i);
    return *this;
  }
  std::string bytes_;
};

struct Member {
  std::string name;  // with ".npy"
  std::uint32_t crc;
  std::uint64_t size, offset;

  std::uint16_t flags() const {
    const bool ascii =
        std::all_of(name.begin(), name.end(), [](char c) { return (c & 0x80) == 0; });
    return ascii ? 0 : kUtf8Names;
  }
};

// The fields that local and central headers share, from the version needed to the extra's length.
void put_common(Record& record, const Member& member, bool zip64, bool large, std::size_t extra) {
  const std::uint64_t size = large ? 0xffffffff : member.size;
  record.u16(zip64 ? kZip64Version : kPlainVersion)
      .u16(member.flags())
      .u16(0)
      .u16(kTime)
      .u16(kDate);
  record.u32(member.crc).u32(size).u32(size).u16(member.name.size()).u16(extra);
}

}  // namespace

namespace detail {

// `limit`: sizes, offsets and counts from here on go to zip64 fields; a parameter for tests' sake.
void write_npz(const std::string& path, std::span<const std::pair<std::string, NpyView>> arrays,
               std::uint64_t limit) {
  std::set<std::string_view> names;
  for (const auto& [name, array] : arrays) {
    LIPGRAD_CHECK(!name.empty() && name.size() < 0xff00 && name.find('\0') == std::string::npos,
                  "{}: '{}' cannot be the name of an array", path, name);
    LIPGRAD_CHECK(names.insert(name).second, "{}: two arrays are called '{}'", path, name);
    check_size(path, array);
  }
  AtomicFile file(path);
  const auto write = [&](std::string_view text) { file.write(text.data(), text.size()); };
  const auto position = [&] { return static_cast<std::uint64_t>(file.position()); };
  std::vector<Member> members;
  for (const auto& [name, array] : arrays) {
    const std::string header = npy_header(array);
    std::uint32_t crc = crc_of(0, header.data(), header.size());
    crc = crc_of(crc, array.bytes.data(), array.bytes.size());
    const Member member{name + ".npy", crc, header.size() + array.bytes.size(), position()};
    const bool large = member.size >= limit;
    Record local;
    local.u32(0x04034b50);
    put_common(local, member, large, large, large ? 20 : 0);
    local.text(member.name);
    if (large) local.u16(1).u16(16).u64(member.size).u64(member.size);
    write(local.str());
    write(header);
    file.write(array.bytes);
    members.push_back(member);
  }
  const std::uint64_t directory = position();
  for (const Member& member : members) {
    const bool large = member.size >= limit, far = member.offset >= limit;
    Record extra;
    if (large) extra.u64(member.size).u64(member.size);
    if (far) extra.u64(member.offset);
    const std::size_t extra_bytes = extra.str().size();
    Record central;
    central.u32(0x02014b50).u16(kZip64Version);
    put_common(central, member, large || far, large, extra_bytes > 0 ? extra_bytes + 4 : 0);
    central.u16(0).u16(0).u16(0).u32(0).u32(far ? 0xffffffff : member.offset).text(member.name);
    if (extra_bytes > 0) central.u16(1).u16(extra_bytes).text(extra.str());
    write(central.str());
  }
  const std::uint64_t end = position(), size = end - directory, count = members.size();
  const bool many = count >= std::min<std::uint64_t>(limit, 0xffff);
  Record tail;
  if (many || size >= limit || directory >= limit) {
    tail.u32(0x06064b50).u64(44).u16(kZip64Version).u16(kZip64Version).u32(0).u32(0);
    tail.u64(count).u64(count).u64(size).u64(directory);
    tail.u32(0x07064b50).u32(0).u64(end).u32(1);
  }
  tail.u32(0x06054b50).u16(0).u16(0).u16(many ? 0xffff : count).u16(many ? 0xffff : count);
  tail.u32(size >= limit ? 0xffffffff : size).u32(directory >= limit ? 0xffffffff : directory);
  tail.u16(0);
  write(tail.str());
  file.commit();
}

}  // namespace detail

void write_npz(const std::string& path, std::span<const std::pair<std::string, NpyView>> arrays) {
  detail::write_npz(path, arrays, 0xffffffff);
}

void write_npy(const std::string& path, const NpyView& array) {
  check_size(path, array);
  const std::string header = npy_header(array);
  AtomicFile file(path);
  file.write(header.data(), header.size());
  file.write(array.bytes);
  file.commit();
}

}  // namespace lipgrad
