#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lipgrad {

// One member of a ZIP archive, as the central directory describes it.
struct ZipEntry {
  std::string name;
  std::uint16_t method = 0;  // 0 stored, 8 deflated
  std::uint32_t crc = 0;
  std::uint64_t compressed_size = 0, size = 0;
  std::uint64_t offset = 0;  // of the compressed data
};

// Reads the directory of a ZIP archive held in memory (PKWARE's APPNOTE 6.3.9, zip64 included).
// Everything is checked against the sizes at hand before it is used: encrypted members, archives of
// several disks, members that overlap or share a name, and central and local headers that disagree
// are refused with Error "<file>: ...". `bytes` must outlive the archive and its readers.
class ZipArchive {
 public:
  ZipArchive(std::span<const std::byte> bytes, std::string file);

  const std::string& file() const { return file_; }
  std::span<const std::byte> bytes() const { return bytes_; }
  // In the order of the central directory.
  const std::vector<ZipEntry>& entries() const { return entries_; }

 private:
  std::span<const std::byte> bytes_;
  std::string file_;
  std::vector<ZipEntry> entries_;
};

// Reads one member from its beginning. Memory is allocated for what was inflated, not for what the
// headers promise.
class ZipReader {
 public:
  // Error for a method other than stored and deflated.
  ZipReader(const ZipArchive& archive, const ZipEntry& entry);
  ~ZipReader();
  ZipReader(const ZipReader&) = delete;
  ZipReader& operator=(const ZipReader&) = delete;

  // Bytes of the member not read yet, by its declared size.
  std::uint64_t remaining() const { return remaining_; }
  // The next bytes, exactly out.size() of them; Error when the member ends before.
  void read(std::span<std::byte> out);
  // The same as a new vector that grows as bytes arrive.
  std::vector<std::byte> read(std::uint64_t size);
  // After the last byte: Error when data are left over or the checksum is not the recorded one.
  void finish();

 private:
  struct Inflater;

  const ZipArchive& archive_;
  const ZipEntry& entry_;
  std::span<const std::byte> input_;
  std::uint64_t remaining_;
  std::uint32_t crc_ = 0;
  std::unique_ptr<Inflater> inflater_;
};

}  // namespace lipgrad
