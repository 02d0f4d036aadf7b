#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lipgrad/core/file.h>
#include <lipgrad/core/input_file.h>

// The container under checkpoints: checksummed records of bytes in one file. All numbers are
// little-endian.
//
//   header, 48 bytes: magic "LIPGCKPT" | u32 format | u32 oldest format whose readers understand
//                     this file | 28 zero bytes | u32 masked crc32c of the 44 bytes before
//   records:          u32 type | u32 masked crc32c of (u32 type, u64 size, payload) | u64 size |
//                     payload | zero bytes up to the next offset that is 48 modulo 64
//   footer:           the last record, 64 bytes: u64 offset of the index record | u64 size of the
//                     file | 24 zero bytes | magic
//
// So payloads start at multiples of 64, every byte is covered by a checksum or must be zero, and a
// file that lacks its end is told from a damaged one.
namespace lipgrad {

enum class RecordType : std::uint32_t { manifest = 1, chunk = 2, index = 3, footer = 4 };

inline constexpr std::uint32_t checkpoint_format = 1;

// Writes the records of one file, which appears under its name by commit() alone (see AtomicFile).
class RecordWriter {
 public:
  explicit RecordWriter(const std::string& path);
  // Appends a record; returns its offset.
  std::int64_t write(RecordType type, std::span<const std::byte> payload);
  std::int64_t write(RecordType type, std::string_view payload) {
    return write(type, std::as_bytes(std::span(payload.data(), payload.size())));
  }
  // Where the next record will start.
  std::int64_t position() const { return file_.position(); }
  // Appends the footer and makes the file visible.
  void commit(std::int64_t index_offset);

 private:
  AtomicFile file_;
};

// Reads such a file. Nothing in it is trusted: offsets and sizes are checked against the file's
// size before anything is allocated, every record's checksum before its bytes are used. Every Error
// is one line "<path>: ..." that says what was found and what to do.
class RecordReader {
 public:
  // Opens the file, checks header and footer.
  explicit RecordReader(const std::string& path);

  const std::string& path() const { return file_.path(); }
  std::int64_t file_size() const { return file_.size(); }
  std::uint32_t format() const { return format_; }
  std::int64_t index_offset() const { return index_offset_; }
  // Where the first record and where the footer start.
  std::int64_t first_offset() const;
  std::int64_t footer_offset() const;

  // The payload of the record at `offset`, which must be of this type and hold at most `max_bytes`.
  std::string read(std::int64_t offset, RecordType type, std::int64_t max_bytes) const;
  // The same when the size is known, into `out`. `what` names the content in errors.
  void read_into(std::int64_t offset, RecordType type, std::span<std::byte> out,
                 const std::string& what) const;
  // Where the record after one at `offset` with a payload of `size` bytes starts.
  static std::int64_t next_offset(std::int64_t offset, std::int64_t size);

  // Throws Error "<path>: damaged: <problem>; <what to do>".
  [[noreturn]] void damaged(const std::string& problem) const;

 private:
  struct Header {
    std::uint32_t type, crc;
    std::int64_t size;
  };
  Header header_at(std::int64_t offset, RecordType type, const std::string& what) const;
  void check_payload(std::int64_t offset, const Header& header, const std::byte* payload,
                     const std::string& what) const;
  void check_file_header();
  void check_footer();

  InputFile file_;
  std::int64_t index_offset_ = 0;
  std::uint32_t format_ = 0;
};

}  // namespace lipgrad
