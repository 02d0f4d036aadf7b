#include <lipgrad/core/zip.h>

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include <lipgrad/core/check.h>
#include <lipgrad/core/printable.h>

namespace lipgrad {
namespace {

constexpr std::uint32_t kLocalHeader = 0x04034b50, kCentralHeader = 0x02014b50, kEnd = 0x06054b50,
                        kEnd64 = 0x06064b50, kEnd64Locator = 0x07064b50;
constexpr std::size_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22, kEnd64Bytes = 56,
                      kLocatorBytes = 20, kMaxComment = 0xffff;
constexpr std::uint16_t kEncrypted = 1, kStrongEncryption = 1 << 6, kMaskedHeaders = 1 << 13;

// A bounds-checked little-endian view.
class Bytes {
 public:
  Bytes(std::span<const std::byte> data, const std::string& file) : data_(data), file_(file) {}

  std::uint64_t size() const { return data_.size(); }
  Bytes part(std::uint64_t offset, std::uint64_t size, const char* what) const {
    LIPGRAD_CHECK(offset <= data_.size() && size <= data_.size() - offset,
                  "{}: damaged ZIP archive: {} at offset {} reaches beyond the end", file_, what,
                  offset);
    return {data_.subspan(offset, size), file_};
  }
  template <class T>
  T get(std::size_t offset) const {
    LIPGRAD_CHECK(offset <= data_.size() && sizeof(T) <= data_.size() - offset,
                  "{}: damaged ZIP archive: a record is too short", file_);
    T value = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i)
      value =
          static_cast<T>(value | static_cast<T>(std::to_integer<T>(data_[offset + i]) << 8 * i));
    return value;
  }
  std::uint16_t u16(std::size_t offset) const { return get<std::uint16_t>(offset); }
  std::uint32_t u32(std::size_t offset) const { return get<std::uint32_t>(offset); }
  std::uint64_t u64(std::size_t offset) const { return get<std::uint64_t>(offset); }
  std::string_view text() const {
    return {reinterpret_cast<const char*>(data_.data()), data_.size()};
  }

 private:
  std::span<const std::byte> data_;
  const std::string& file_;
};

struct Directory {
  std::uint64_t entries, size, offset;
};

Directory find_directory(const Bytes& zip, const std::string& file) {
  LIPGRAD_CHECK(zip.size() >= kEndBytes, "{}: not a ZIP archive: {} bytes are too few", file,
                zip.size());
  const std::uint64_t last = zip.size() - kEndBytes;
  std::uint64_t end = last;
  // The end record is the last thing in the file, followed by a comment of the length it records.
  while (zip.u32(end) != kEnd || zip.u16(end + 20) != last - end) {
    LIPGRAD_CHECK(end > 0 && last - end < kMaxComment,
                  "{}: not a ZIP archive, or a truncated one: no end record", file);
    --end;
  }
  std::uint32_t disk = zip.u16(end + 4), directory_disk = zip.u16(end + 6), disks = 1;
  Directory found{zip.u16(end + 10), zip.u32(end + 12), zip.u32(end + 16)};
  std::uint64_t on_this_disk = zip.u16(end + 8), after = end;
  if (end >= kLocatorBytes && zip.u32(end - kLocatorBytes) == kEnd64Locator) {
    const Bytes locator = zip.part(end - kLocatorBytes, kLocatorBytes, "the zip64 locator");
    disks = locator.u32(16);
    after = locator.u64(8);
    const Bytes end64 = zip.part(after, kEnd64Bytes, "the zip64 end record");
    LIPGRAD_CHECK(locator.u32(4) == 0 && end64.u32(0) == kEnd64,
                  "{}: damaged ZIP archive: no zip64 end record at offset {}", file, after);
    disk = end64.u32(16);
    directory_disk = end64.u32(20);
    on_this_disk = end64.u64(24);
    found = {end64.u64(32), end64.u64(40), end64.u64(48)};
  }
  LIPGRAD_CHECK(disk == 0 && directory_disk == 0 && disks <= 1 && on_this_disk == found.entries,
                "{}: ZIP archives of several disks are not supported", file);
  LIPGRAD_CHECK(found.offset <= after && found.size == after - found.offset,
                "{}: damaged ZIP archive: the directory ({} bytes at offset {}) does not end at {}",
                file, found.size, found.offset, after);
  LIPGRAD_CHECK(found.entries <= found.size / kCentralBytes,
                "{}: damaged ZIP archive: {} members in a directory of {} bytes", file,
                found.entries, found.size);
  return found;
}

// Fills in what the 32-bit fields leave to the zip64 extra field, which holds only those, in order.
void apply_zip64(const Bytes& extra, ZipEntry& entry, std::uint64_t& local) {
  std::uint64_t* wanted[3] = {&entry.size, &entry.compressed_size, &local};
  for (std::uint64_t at = 0; at < extra.size();) {
    const std::uint16_t id = extra.u16(at), size = extra.u16(at + 2);
    const Bytes field = extra.part(at + 4, size, "an extra field");
    at += 4 + std::uint64_t{size};
    if (id != 1) continue;
    std::size_t next = 0;
    for (std::uint64_t* value : wanted) {
      if (*value != 0xffffffff) continue;
      *value = field.u64(next);
      next += 8;
    }
    return;
  }
}

void read_local_header(const Bytes& zip, ZipEntry& entry, std::uint64_t local,
                       std::uint64_t directory, const std::string& file) {
  const Bytes header = zip.part(local, kLocalBytes, "a local header");
  LIPGRAD_CHECK(header.u32(0) == kLocalHeader,
                "{}: damaged ZIP archive: no local header of '{}' at offset {}", file,
                printable(entry.name), local);
  const std::uint64_t name_size = header.u16(26), extra_size = header.u16(28);
  const Bytes name = zip.part(local + kLocalBytes, name_size, "a local name");
  LIPGRAD_CHECK(name.text() == entry.name && header.u16(8) == entry.method,
                "{}: damaged ZIP archive: the local header of '{}' does not match the directory",
                file, printable(entry.name));
  // The extra field of the local header often differs in length from the directory's.
  entry.offset = local + kLocalBytes + name_size + extra_size;
  LIPGRAD_CHECK(entry.offset <= directory && entry.compressed_size <= directory - entry.offset,
                "{}: damaged ZIP archive: the data of '{}' reach beyond the directory", file,
                printable(entry.name));
}

}  // namespace

ZipArchive::ZipArchive(std::span<const std::byte> bytes, std::string file)
    : bytes_(bytes), file_(std::move(file)) {
  const Bytes zip(bytes_, file_);
  const Directory directory = find_directory(zip, file_);
  struct Range {
    std::uint64_t begin, end;
  };
  std::vector<Range> ranges;
  ranges.reserve(directory.entries);
  entries_.reserve(directory.entries);
  std::uint64_t at = directory.offset;
  for (std::uint64_t i = 0; i < directory.entries; ++i) {
    const Bytes header = zip.part(at, kCentralBytes, "a directory entry");
    LIPGRAD_CHECK(header.u32(0) == kCentralHeader,
                  "{}: damaged ZIP archive: no directory entry at offset {}", file_, at);
    const std::uint64_t name_size = header.u16(28), extra_size = header.u16(30);
    ZipEntry entry;
    entry.name = zip.part(at + kCentralBytes, name_size, "a name").text();
    entry.method = header.u16(10);
    entry.crc = header.u32(16);
    entry.compressed_size = header.u32(20);
    entry.size = header.u32(24);
    std::uint64_t local = header.u32(42);
    apply_zip64(zip.part(at + kCentralBytes + name_size, extra_size, "an extra field"), entry,
                local);
    LIPGRAD_CHECK((header.u16(8) & (kEncrypted | kStrongEncryption | kMaskedHeaders)) == 0,
                  "{}: '{}' is encrypted; encrypted ZIP archives are not supported", file_,
                  printable(entry.name));
    LIPGRAD_CHECK(entry.method != 0 || entry.size == entry.compressed_size,
                  "{}: damaged ZIP archive: '{}' is stored as {} bytes yet has {}", file_,
                  printable(entry.name), entry.compressed_size, entry.size);
    read_local_header(zip, entry, local, directory.offset, file_);
    ranges.push_back({local, entry.offset + entry.compressed_size});
    entries_.push_back(std::move(entry));
    at += kCentralBytes + name_size + extra_size + header.u16(32);
  }
  LIPGRAD_CHECK(at == directory.offset + directory.size,
                "{}: damaged ZIP archive: the directory ends at {}, expected {}", file_, at,
                directory.offset + directory.size);
  // Overlapping members would let a small file inflate to its square.
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  for (std::size_t i = 1; i < ranges.size(); ++i)
    LIPGRAD_CHECK(ranges[i - 1].end <= ranges[i].begin,
                  "{}: damaged ZIP archive: members overlap at offset {}", file_, ranges[i].begin);
  std::vector<std::string_view> names(entries_.size());
  std::transform(entries_.begin(), entries_.end(), names.begin(),
                 [](const ZipEntry& entry) { return std::string_view(entry.name); });
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  LIPGRAD_CHECK(twice == names.end(), "{}: damaged ZIP archive: two members are called '{}'", file_,
                printable(*twice));
}

struct ZipReader::Inflater {
  z_stream stream{};
  bool ended = false;

  Inflater() {
    // Negative window bits: a raw deflate stream, without zlib's own header.
    if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) throw std::bad_alloc();
  }
  ~Inflater() { inflateEnd(&stream); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  // Inflates until `out` is full or the stream ends; returns the bytes written, or -1 for damage.
  std::int64_t run(std::span<const std::byte>& input, std::span<std::byte> out) {
    constexpr std::size_t call = std::size_t{1} << 30;
    const std::size_t wanted = out.size();
    while (!ended) {
      const std::size_t give = std::min(input.size(), call), room = std::min(out.size(), call);
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(input.data()));
      stream.avail_in = static_cast<uInt>(give);
      stream.next_out = reinterpret_cast<Bytef*>(out.data());
      stream.avail_out = static_cast<uInt>(room);
      const int status = inflate(&stream, Z_NO_FLUSH);
      input = input.subspan(give - stream.avail_in);
      out = out.subspan(room - stream.avail_out);
      ended = status == Z_STREAM_END;
      // Z_BUF_ERROR: no progress, because there is no more input or no more room.
      if (status == Z_BUF_ERROR || (status == Z_OK && out.empty())) break;
      if (status != Z_OK && status != Z_STREAM_END) return -1;
    }
    return static_cast<std::int64_t>(wanted - out.size());
  }
};

ZipReader::ZipReader(const ZipArchive& archive, const ZipEntry& entry)
    : archive_(archive),
      entry_(entry),
      input_(archive.bytes().subspan(entry.offset, entry.compressed_size)),
      remaining_(entry.size) {
  LIPGRAD_CHECK(entry.method == 0 || entry.method == 8,
                "{}: '{}' is compressed with method {}; supported are 0 (stored) and 8 (deflated)",
                archive.file(), printable(entry.name), entry.method);
  if (entry.method == 8) inflater_ = std::make_unique<Inflater>();
}

ZipReader::~ZipReader() = default;

void ZipReader::read(std::span<std::byte> out) {
  LIPGRAD_CHECK(out.size() <= remaining_, "{}: '{}' ends after {} bytes, expected {} more",
                archive_.file(), printable(entry_.name), entry_.size, out.size() - remaining_);
  if (out.empty()) return;
  if (inflater_) {
    const std::int64_t got = inflater_->run(input_, out);
    LIPGRAD_CHECK(got == static_cast<std::int64_t>(out.size()),
                  "{}: the compressed data of '{}' are damaged", archive_.file(),
                  printable(entry_.name));
  } else {
    std::memcpy(out.data(), input_.data(), out.size());
    input_ = input_.subspan(out.size());
  }
  remaining_ -= out.size();
  crc_ = static_cast<std::uint32_t>(
      ::crc32_z(crc_, reinterpret_cast<const Bytef*>(out.data()), out.size()));
}

std::vector<std::byte> ZipReader::read(std::uint64_t size) {
  LIPGRAD_CHECK(size <= remaining_, "{}: '{}' ends after {} bytes, expected {} more",
                archive_.file(), printable(entry_.name), entry_.size, size - remaining_);
  std::vector<std::byte> bytes;
  const std::uint64_t first = std::max<std::uint64_t>(4 * input_.size(), 4096);
  while (bytes.size() < size) {
    const std::uint64_t before = bytes.size();
    const std::uint64_t after = std::min(size, before == 0 ? first : 2 * before);
    bytes.reserve(after);
    bytes.resize(after);
    read(std::span(bytes).subspan(before));
  }
  return bytes;
}

void ZipReader::finish() {
  std::byte extra;
  const bool more =
      inflater_ ? inflater_->run(input_, {&extra, 1}) != 0 || !inflater_->ended : false;
  LIPGRAD_CHECK(remaining_ == 0 && !more && input_.empty(),
                "{}: '{}' holds more data than expected, or less", archive_.file(),
                printable(entry_.name));
  LIPGRAD_CHECK(crc_ == entry_.crc, "{}: '{}' is damaged: its checksum is {:08x}, expected {:08x}",
                archive_.file(), printable(entry_.name), crc_, entry_.crc);
}

}  // namespace lipgrad
