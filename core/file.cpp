#include <lipgrad/core/file.h>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include <lipgrad/core/check.h>
#include <lipgrad/core/input_file.h>

namespace lipgrad {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBufferBytes = std::size_t{1} << 18;
// Linux moves at most about 2 GiB a call.
constexpr std::size_t kCallBytes = std::size_t{1} << 30;

std::string reason() { return std::generic_category().message(errno); }

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

// Unlinks temporary files of `target` that no process has open: every writer holds a lock on its
// own.
void remove_stale(const std::string& directory, const std::string& prefix) {
  std::error_code ignored;
  for (fs::directory_iterator it(directory, ignored), end; !ignored && it != end;
       it.increment(ignored)) {
    const std::string name = it->path().filename().string();
    if (!name.starts_with(prefix)) continue;
    const FileDescriptor fd(::open(it->path().c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (fd.get() >= 0 && ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) ::unlink(it->path().c_str());
  }
}

}  // namespace

std::vector<std::byte> read_file(const std::string& path, std::int64_t max_bytes) {
  const InputFile file(path);
  LIPGRAD_CHECK(file.size() <= max_bytes, "{}: holds {} bytes, at most {} are accepted", path,
                file.size(), max_bytes);
  std::vector<std::byte> bytes(static_cast<std::size_t>(file.size()));
  file.read(0, bytes.data(), bytes.size());
  return bytes;
}

AtomicFile::AtomicFile(const std::string& path) : path_(path) {
  std::error_code error;
  fs::path target = path;
  LIPGRAD_CHECK(target.has_filename(), "{}: cannot write: not a file name", path);
  if (fs::is_symlink(target, error)) {
    target = fs::weakly_canonical(target, error);
    LIPGRAD_CHECK(!error, "{}: cannot follow the link: {}", path, error.message());
  }
  target_ = target.string();
  directory_ = target.has_parent_path() ? target.parent_path().string() : ".";
  unsigned mode = 0666;
  struct stat status;
  const bool exists = ::stat(target_.c_str(), &status) == 0;
  if (exists) {
    LIPGRAD_CHECK(S_ISREG(status.st_mode), "{}: cannot write: exists and is not a regular file",
                  path);
    mode = status.st_mode & 0777;
    // A rename would replace a write-protected file without asking.
    LIPGRAD_CHECK(::access(target_.c_str(), W_OK) == 0, "{}: cannot write: {}", path, reason());
  }
  const std::string prefix = fmt::format(".{}.tmp-", target.filename().string());
  remove_stale(directory_, prefix);
  temporary_ = (fs::path(directory_) / prefix).string();
  buffer_.reserve(kBufferBytes);
  open_temporary(mode);
  // open() applied the umask, which does not concern a file that exists already.
  if (exists && ::fchmod(fd_, mode) != 0) fail_with_errno("cannot set permissions of");
}

void AtomicFile::open_temporary(unsigned mode) {
  static std::atomic<unsigned> count{0};
  const std::string stem = temporary_ + std::to_string(::getpid()) + "-";
  for (int attempt = 0; attempt < 100; ++attempt) {
    temporary_ = stem + std::to_string(count++);
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (fd_ < 0 && errno == EEXIST) continue;
    LIPGRAD_CHECK(fd_ >= 0, "{}: cannot create a file in {}: {}", path_, directory_, reason());
    // Between open and flock another process may have taken the file for a stale one.
    struct stat status;
    if (::flock(fd_, LOCK_EX | LOCK_NB) == 0 && ::fstat(fd_, &status) == 0 && status.st_nlink > 0)
      return;
    // A file system without locks: go on without; nobody can take the lock to remove it either.
    if (errno == ENOLCK || errno == EOPNOTSUPP || errno == ENOSYS) return;
    discard();
  }
  fail("{}: cannot create a temporary file in {}", path_, directory_);
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::discard() noexcept {
  if (fd_ < 0) return;
  ::unlink(temporary_.c_str());
  ::close(fd_);
  fd_ = -1;
}

void AtomicFile::fail_with_errno(const char* action) {
  const std::string why = reason();
  discard();
  fail("{}: {} its temporary file: {}; what was there before is unchanged", path_, action, why);
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  LIPGRAD_CHECK(fd_ >= 0, "{}: write after commit or after an error", path_);
  position_ += static_cast<std::int64_t>(bytes.size());
  if (buffer_.size() + bytes.size() > kBufferBytes) flush();
  if (bytes.size() > kBufferBytes)
    write_through(bytes);
  else
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

void AtomicFile::flush() {
  write_through(buffer_);
  buffer_.clear();
}

void AtomicFile::write_through(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t done = ::write(fd_, bytes.data(), std::min(bytes.size(), kCallBytes));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail_with_errno("cannot write");
    bytes = bytes.subspan(static_cast<std::size_t>(done));
  }
}

void AtomicFile::commit() {
  LIPGRAD_CHECK(fd_ >= 0, "{}: commit after commit or after an error", path_);
  flush();
  if (::fsync(fd_) != 0) fail_with_errno("cannot flush");
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail_with_errno("cannot rename");
  const int fd = fd_;
  fd_ = -1;
  // fsync has reported every write error already; close has nothing to add.
  ::close(fd);
  const FileDescriptor directory(::open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some file systems cannot flush a directory and say EINVAL; there is nothing better to do there.
  if (directory.get() >= 0 && ::fsync(directory.get()) != 0 && errno != EINVAL)
    fail("{}: written, but its directory cannot be flushed to disk: {}", path_, reason());
}

void check_writable(const std::string& path) {
  AtomicFile probe(path);
  constexpr std::byte one{};
  probe.write(&one, 1);
  probe.flush();
}

void write_file(const std::string& path, std::span<const std::byte> bytes) {
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

}  // namespace lipgrad
