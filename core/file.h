#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

namespace lipgrad {

// The whole content of a regular file. Error "<path>: ..." when it cannot be opened or read, is a
// directory or another special file, or holds more than `max_bytes` bytes (checked before anything
// is allocated).
std::vector<std::byte> read_file(const std::string& path,
                                 std::int64_t max_bytes = std::numeric_limits<std::int64_t>::max());

// Writes a file that appears whole or not at all. The bytes go to a temporary file in the same
// directory (".<name>.tmp-<process>-<count>"); commit() flushes it to disk, renames it over `path`
// and flushes the directory. Until commit() returns, whatever happens (an exception, a full disk, a
// killed process), the file that was at `path` before stays as it was. Without commit() the
// destructor removes the temporary file; one left behind by a killed process is removed by the next
// AtomicFile for the same path. An existing file keeps its permissions; a symbolic link is
// followed. Every Error starts with the path.
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Appends; small pieces are gathered before they are written.
  void write(std::span<const std::byte> bytes);
  void write(const void* data, std::size_t size) {
    write(std::span(static_cast<const std::byte*>(data), size));
  }
  // Bytes written so far.
  std::int64_t position() const { return position_; }
  // Makes the file visible under its name. Once only; no write() after it.
  void commit();

 private:
  friend void check_writable(const std::string& path);
  void open_temporary(unsigned mode);
  void flush();
  void write_through(std::span<const std::byte> bytes);
  void discard() noexcept;
  [[noreturn]] void fail_with_errno(const char* action);

  std::string path_, target_, directory_, temporary_;
  std::vector<std::byte> buffer_;
  std::int64_t position_ = 0;
  int fd_ = -1;
};

// Error now rather than after hours: throws what AtomicFile(path) would (no such directory, no
// permission, a directory or a write-protected file at `path`), and when not even one byte can be
// written beside it. Leaves everything as it was.
void check_writable(const std::string& path);

// AtomicFile, write, commit in one call.
void write_file(const std::string& path, std::span<const std::byte> bytes);

}  // namespace lipgrad
