#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace lipgrad {

// A regular file, open to be read in parts at any offset. Every Error starts with the path.
class InputFile {
 public:
  // Error when there is no such file, it cannot be opened, or it is a directory or another special
  // file.
  explicit InputFile(const std::string& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  // In bytes, as it was when the file was opened.
  std::int64_t size() const { return size_; }
  // Copies `size` bytes from `offset` on into `out`. Error when there are fewer.
  void read(std::int64_t offset, void* out, std::size_t size) const;

 private:
  std::string path_;
  int fd_ = -1;
  std::int64_t size_ = 0;
};

}  // namespace lipgrad
