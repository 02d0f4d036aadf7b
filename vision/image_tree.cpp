#include <lipgrad/vision/image_tree.h>

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <numeric>
#include <set>
#include <system_error>

#include <lipgrad/core/check.h>
#include <lipgrad/core/file.h>
#include <lipgrad/core/gzip.h>
#include <lipgrad/core/printable.h>

namespace lipgrad::detail {
namespace {

namespace fs = std::filesystem;

constexpr int kDepth = 8;
constexpr std::int64_t kLargestArchive = std::int64_t{64} << 30;

// Folders that were seen, by device and number: links may lead back to one.
using Seen = std::set<std::pair<dev_t, ino_t>>;

void walk(const fs::path& folder, const std::string& prefix, int depth, Seen& seen,
          std::vector<std::string>& paths) {
  struct stat status;
  if (::stat(folder.c_str(), &status) != 0 || !seen.emplace(status.st_dev, status.st_ino).second)
    return;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with('.')) continue;
    std::error_code ignored;
    if (it->is_regular_file(ignored))
      paths.push_back(prefix + name);
    else if (depth < kDepth && it->is_directory(ignored))
      walk(it->path(), prefix + name + "/", depth + 1, seen, paths);
  }
  LIPGRAD_CHECK(!error, "{}: cannot be listed: {}", folder.string(), error.message());
}

// "./a//b" as "a/b"; empty for what is hidden or leads out of the tree.
std::string plain_path(std::string_view path) {
  std::string result;
  while (!path.empty()) {
    const std::size_t end = std::min(path.find('/'), path.size());
    const std::string_view part = path.substr(0, end);
    path.remove_prefix(std::min(end + 1, path.size()));
    if (part.empty() || part == ".") continue;
    if (part.front() == '.') return "";
    if (!result.empty()) result += '/';
    result += part;
  }
  return result;
}

}  // namespace

ImageTree::ImageTree(const std::string& path) : name_(path) {
  while (name_.size() > 1 && name_.back() == '/') name_.pop_back();
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    archive_ = read_file(path, kLargestArchive);
    list_archive();
    return;
  }
  Seen seen;
  walk(path, "", 0, seen, paths_);
  std::sort(paths_.begin(), paths_.end());
}

ImageTree::ImageTree(std::vector<std::byte> archive, std::string name)
    : name_(std::move(name)), archive_(std::move(archive)) {
  list_archive();
}

void ImageTree::list_archive() {
  is_archive_ = true;
  if (is_gzip(archive_)) archive_ = gunzip(archive_, name_, kLargestArchive);
  std::vector<TarEntry> entries = read_tar(archive_, name_);
  for (TarEntry& entry : entries) entry.path = plain_path(entry.path);
  std::erase_if(entries, [](const TarEntry& entry) { return entry.path.empty(); });
  std::sort(entries.begin(), entries.end(),
            [](const TarEntry& a, const TarEntry& b) { return a.path < b.path; });
  for (TarEntry& entry : entries) {
    LIPGRAD_CHECK(paths_.empty() || paths_.back() != entry.path, "{}: holds '{}' twice", name_,
                  printable(entry.path));
    paths_.push_back(std::move(entry.path));
    parts_.emplace_back(entry.offset, entry.size);
  }
}

std::int64_t ImageTree::find(std::string_view path) const {
  const auto found = std::lower_bound(paths_.begin(), paths_.end(), path);
  return found != paths_.end() && *found == path ? found - paths_.begin() : -1;
}

std::span<const std::byte> ImageTree::read(std::int64_t i, std::vector<std::byte>& buffer,
                                           std::int64_t max_bytes) const {
  if (!is_archive_) {
    buffer = read_file(full_path(i), max_bytes);
    return buffer;
  }
  const auto [offset, size] = parts_[static_cast<std::size_t>(i)];
  LIPGRAD_CHECK(size <= static_cast<std::size_t>(max_bytes),
                "{}: holds {} bytes, at most {} are accepted", full_path(i), size, max_bytes);
  return std::span(archive_).subspan(offset, size);
}

}  // namespace lipgrad::detail
