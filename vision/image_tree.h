#pragma once

// Private: files below a folder, or those in an archive.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lipgrad::detail {

// A member of a tar archive held in memory.
struct TarEntry {
  std::string path;
  std::size_t offset = 0, size = 0;
};
// The regular files of a tar archive (POSIX ustar and pax, GNU's long names) in its order. Error
// "<file>: ..." for what is no such archive, and for members that reach beyond the end.
std::vector<TarEntry> read_tar(std::span<const std::byte> bytes, const std::string& file);

// Their paths, relative and ascending. What a path holds is read when it is asked for.
class ImageTree {
 public:
  // A folder, or an archive (.tar, or gzip data of one), which is read into memory. Hidden files
  // are left out, and what lies more than eight folders deep.
  explicit ImageTree(const std::string& path);
  // An archive in memory; errors start with `name`.
  ImageTree(std::vector<std::byte> archive, std::string name);

  const std::string& name() const { return name_; }
  std::int64_t size() const { return static_cast<std::int64_t>(paths_.size()); }
  const std::string& path(std::int64_t i) const { return paths_[static_cast<std::size_t>(i)]; }
  // The path with the tree's name before it, for errors.
  std::string full_path(std::int64_t i) const { return name_ + "/" + path(i); }
  // The number of a path; -1 when there is none.
  std::int64_t find(std::string_view path) const;
  // The content of a file: in the archive, or else in `buffer`. By several threads at a time.
  std::span<const std::byte> read(std::int64_t i, std::vector<std::byte>& buffer,
                                  std::int64_t max_bytes) const;

 private:
  void list_archive();

  std::string name_;
  bool is_archive_ = false;
  std::vector<std::byte> archive_;
  std::vector<std::string> paths_;
  std::vector<std::pair<std::size_t, std::size_t>> parts_;  // of the archive
};

}  // namespace lipgrad::detail
