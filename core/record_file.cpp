#include <lipgrad/core/record_file.h>

#include <algorithm>
#include <array>
#include <cstring>

#include <lipgrad/config.h>
#include <lipgrad/core/check.h>
#include <lipgrad/core/crc32c.h>

namespace lipgrad {
namespace {

constexpr char kMagic[] = {'L', 'I', 'P', 'G', 'C', 'K', 'P', 'T'};
constexpr std::int64_t kHeaderBytes = 48;
constexpr std::int64_t kRecordHeaderBytes = 16;
constexpr std::int64_t kFooterBytes = 64;
constexpr std::int64_t kAlignment = 64;
constexpr std::array<std::byte, kAlignment> kZeros{};

using FileHeader = std::array<std::byte, kHeaderBytes>;

template <class T>
void put(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

template <class T>
T get(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

std::uint32_t record_crc(std::uint32_t type, std::int64_t size, const std::byte* payload) {
  std::array<std::byte, 12> head;
  put(head.data(), type);
  put(head.data() + 4, size);
  return mask_crc(
      crc32c(payload, static_cast<std::size_t>(size), crc32c(head.data(), head.size())));
}

std::int64_t padding_after(std::int64_t end) {
  return (kHeaderBytes - end % kAlignment + kAlignment) % kAlignment;
}

bool all_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

constexpr const char* kAnotherCopy = "copy the file again or load an older checkpoint";

}  // namespace

RecordWriter::RecordWriter(const std::string& path) : file_(path) {
  FileHeader header{};
  std::memcpy(header.data(), kMagic, sizeof kMagic);
  put(header.data() + 8, checkpoint_format);
  put(header.data() + 12, checkpoint_format);
  put(header.data() + 44, mask_crc(crc32c(header.data(), 44)));
  file_.write(header);
}

std::int64_t RecordWriter::write(RecordType type, std::span<const std::byte> payload) {
  const std::int64_t offset = file_.position();
  const auto number = static_cast<std::uint32_t>(type);
  const auto size = static_cast<std::int64_t>(payload.size());
  std::array<std::byte, kRecordHeaderBytes> header;
  put(header.data(), number);
  put(header.data() + 4, record_crc(number, size, payload.data()));
  put(header.data() + 8, size);
  file_.write(header);
  file_.write(payload);
  file_.write(std::span(kZeros).first(static_cast<std::size_t>(padding_after(file_.position()))));
  return offset;
}

void RecordWriter::commit(std::int64_t index_offset) {
  std::array<std::byte, kFooterBytes - kRecordHeaderBytes> footer{};
  put(footer.data(), index_offset);
  put(footer.data() + 8, file_.position() + kFooterBytes);
  std::memcpy(footer.data() + 40, kMagic, sizeof kMagic);
  write(RecordType::footer, footer);
  file_.commit();
}

RecordReader::RecordReader(const std::string& path) : file_(path) {
  check_file_header();
  check_footer();
}

void RecordReader::check_file_header() {
  FileHeader header{};
  const std::int64_t have = std::min(file_size(), kHeaderBytes);
  file_.read(0, header.data(), static_cast<std::size_t>(have));
  const auto compared = static_cast<std::size_t>(std::min<std::int64_t>(have, sizeof kMagic));
  if (have == 0 || std::memcmp(header.data(), kMagic, compared) != 0) {
    std::string found;
    for (std::size_t i = 0; i < compared; ++i)
      found += fmt::format(" {:02x}", static_cast<unsigned>(header[i]));
    fail("{}: not a lipgrad checkpoint: {}; expected a file that save_checkpoint wrote", path(),
         have == 0 ? "the file is empty" : "it starts with" + found);
  }
  LIPGRAD_CHECK(have == kHeaderBytes, "{}: truncated: only {} bytes are left; {}", path(), have,
                kAnotherCopy);
  if (get<std::uint32_t>(header.data() + 44) != mask_crc(crc32c(header.data(), 44)))
    damaged("the checksum of its header does not match");
  format_ = get<std::uint32_t>(header.data() + 8);
  const auto oldest = get<std::uint32_t>(header.data() + 12);
  LIPGRAD_CHECK(oldest <= checkpoint_format,
                "{}: written in checkpoint format {} by a newer lipgrad; lipgrad {} reads formats "
                "up to {}: use a newer one",
                path(), format_, kVersion, checkpoint_format);
  if (format_ == 0 || oldest == 0 || oldest > format_)
    damaged(
        fmt::format("its header claims format {}, readable from format {} on", format_, oldest));
}

void RecordReader::check_footer() {
  std::array<std::byte, kFooterBytes - kRecordHeaderBytes> footer{};
  const std::int64_t offset = file_size() - kFooterBytes;
  const auto truncated = [&](const std::string& why) {
    fail("{}: truncated: {}; {}", path(), why, kAnotherCopy);
  };
  const auto no_footer = fmt::format("it ends after {} bytes without its footer", file_size());
  if (offset < kHeaderBytes) truncated(no_footer);
  file_.read(offset + kRecordHeaderBytes, footer.data(), footer.size());
  if (std::memcmp(footer.data() + 40, kMagic, sizeof kMagic) != 0 ||
      offset % kAlignment != kHeaderBytes)
    truncated(no_footer);
  read_into(offset, RecordType::footer, footer, "the footer");
  if (get<std::int64_t>(footer.data() + 8) != file_size())
    truncated(fmt::format("it holds {} bytes, its footer says {}", file_size(),
                          get<std::int64_t>(footer.data() + 8)));
  index_offset_ = get<std::int64_t>(footer.data());
}

std::int64_t RecordReader::first_offset() const { return kHeaderBytes; }

std::int64_t RecordReader::footer_offset() const { return file_size() - kFooterBytes; }

std::int64_t RecordReader::next_offset(std::int64_t offset, std::int64_t size) {
  const std::int64_t end = offset + kRecordHeaderBytes + size;
  return end + padding_after(end);
}

void RecordReader::damaged(const std::string& problem) const {
  fail("{}: damaged: {}; {}", path(), problem, kAnotherCopy);
}

RecordReader::Header RecordReader::header_at(std::int64_t offset, RecordType type,
                                             const std::string& what) const {
  if (offset < kHeaderBytes || offset % kAlignment != kHeaderBytes ||
      offset > file_size() - kRecordHeaderBytes)
    damaged(fmt::format("{} should be at byte {}, where no record can be", what, offset));
  std::array<std::byte, kRecordHeaderBytes> bytes;
  file_.read(offset, bytes.data(), bytes.size());
  const Header header{get<std::uint32_t>(bytes.data()), get<std::uint32_t>(bytes.data() + 4),
                      get<std::int64_t>(bytes.data() + 8)};
  if (header.type != static_cast<std::uint32_t>(type))
    damaged(fmt::format("the record at byte {} is of type {}, expected {} (type {})", offset,
                        header.type, what, static_cast<std::uint32_t>(type)));
  const std::int64_t room = file_size() - offset - kRecordHeaderBytes;
  if (header.size < 0 || header.size > room)
    damaged(fmt::format("the record at byte {} ({}) claims {} bytes, {} are left in the file",
                        offset, what, header.size, room));
  return header;
}

void RecordReader::check_payload(std::int64_t offset, const Header& header,
                                 const std::byte* payload, const std::string& what) const {
  const std::uint32_t crc = record_crc(header.type, header.size, payload);
  if (crc != header.crc)
    damaged(fmt::format("the record at byte {} ({}) has checksum {:08x}, expected {:08x}", offset,
                        what, crc, header.crc));
  const std::int64_t end = offset + kRecordHeaderBytes + header.size;
  std::array<std::byte, kAlignment> padding;
  const auto size = static_cast<std::size_t>(std::min(padding_after(end), file_size() - end));
  file_.read(end, padding.data(), size);
  if (!all_zero(std::span(padding).first(size)))
    damaged(fmt::format("the bytes after the record at byte {} ({}) are not zero", offset, what));
}

std::string RecordReader::read(std::int64_t offset, RecordType type, std::int64_t max_bytes) const {
  const std::string what = type == RecordType::manifest ? "the manifest" : "the index";
  const Header header = header_at(offset, type, what);
  if (header.size > max_bytes)
    damaged(
        fmt::format("{} claims {} bytes, at most {} are accepted", what, header.size, max_bytes));
  std::string payload(static_cast<std::size_t>(header.size), '\0');
  file_.read(offset + kRecordHeaderBytes, payload.data(), payload.size());
  check_payload(offset, header, reinterpret_cast<const std::byte*>(payload.data()), what);
  return payload;
}

void RecordReader::read_into(std::int64_t offset, RecordType type, std::span<std::byte> out,
                             const std::string& what) const {
  const Header header = header_at(offset, type, what);
  if (header.size != static_cast<std::int64_t>(out.size()))
    damaged(fmt::format("the record at byte {} ({}) holds {} bytes, expected {}", offset, what,
                        header.size, out.size()));
  file_.read(offset + kRecordHeaderBytes, out.data(), out.size());
  check_payload(offset, header, out.data(), what);
}

}  // namespace lipgrad
