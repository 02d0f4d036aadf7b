#include <lipgrad/core/input_file.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include <lipgrad/core/check.h>

namespace lipgrad {
namespace {

// Linux moves at most about 2 GiB a call.
constexpr std::size_t kCallBytes = std::size_t{1} << 30;

std::string reason() { return std::generic_category().message(errno); }

}  // namespace

InputFile::InputFile(const std::string& path) : path_(path) {
  // Without O_NONBLOCK, opening a FIFO would wait for a writer.
  fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  LIPGRAD_CHECK(fd_ >= 0, "{}: cannot open: {}", path, reason());
  struct stat status;
  const bool known = ::fstat(fd_, &status) == 0;
  if (known && S_ISREG(status.st_mode)) {
    size_ = status.st_size;
    return;
  }
  const std::string why = known ? "" : reason();
  ::close(fd_);
  LIPGRAD_CHECK(known, "{}: cannot read: {}", path, why);
  LIPGRAD_CHECK(!S_ISDIR(status.st_mode), "{}: is a directory, expected a file", path);
  fail("{}: is not a regular file", path);
}

InputFile::~InputFile() { ::close(fd_); }

void InputFile::read(std::int64_t offset, void* out, std::size_t size) const {
  auto* to = static_cast<std::byte*>(out);
  while (size > 0) {
    const ssize_t got = ::pread(fd_, to, std::min(size, kCallBytes), offset);
    if (got < 0 && errno == EINTR) continue;
    LIPGRAD_CHECK(got >= 0, "{}: cannot read: {}", path_, reason());
    LIPGRAD_CHECK(got > 0, "{}: became shorter while it was read", path_);
    to += got;
    offset += got;
    size -= static_cast<std::size_t>(got);
  }
}

}  // namespace lipgrad
