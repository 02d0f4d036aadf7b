#include <lipgrad/core/file.h>

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>

#include <lipgrad/core/error.h>
#include <support/errors.h>
#include <support/temporary_directory.h>

namespace lipgrad {
namespace {

namespace fs = std::filesystem;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string text_of(const std::string& path) {
  const auto bytes = read_file(path);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

int entries(const std::string& directory) {
  return static_cast<int>(std::distance(fs::directory_iterator(directory), {}));
}

using test::error_of;

}  // namespace

TEST_CASE("file: what was written is read back, whatever the sizes of the pieces") {
  test::TemporaryDirectory dir;
  const std::string path = dir / "a";
  for (std::size_t size : {0, 1, 1000, (1 << 18), (1 << 18) + 1, 3 << 20}) {
    std::string text(size, ' ');
    for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 31 + i / 251);
    AtomicFile file(path);
    for (std::size_t begin = 0, piece = 1; begin < size; begin += piece, piece = piece * 3 + 1)
      file.write(bytes_of(text.substr(begin, piece)));
    CHECK(file.position() == static_cast<std::int64_t>(size));
    file.commit();
    CHECK(text_of(path) == text);
    CHECK(entries(dir.path()) == 1);
    CHECK_THROWS_AS(file.write(bytes_of("x")), Error);
    CHECK_THROWS_AS(file.commit(), Error);
  }
}

TEST_CASE("file: without commit the old file stays and no temporary file is left") {
  test::TemporaryDirectory dir;
  const std::string path = dir / "a";
  write_file(path, bytes_of("old"));
  {
    AtomicFile file(path);
    file.write(bytes_of(std::string(1 << 20, 'x')));
    CHECK(entries(dir.path()) == 2);
    AtomicFile other(path);  // a second writer does not take the first one's file for a stale one
    CHECK(entries(dir.path()) == 3);
  }
  CHECK(text_of(path) == "old");
  CHECK(entries(dir.path()) == 1);
}

TEST_CASE("file: a temporary file that a killed process left is removed by the next writer") {
  test::TemporaryDirectory dir;
  const std::string path = dir / "a";
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    AtomicFile file(path);
    ::kill(::getpid(), SIGKILL);
  }
  ::waitpid(child, nullptr, 0);
  CHECK(entries(dir.path()) == 1);
  CHECK(!fs::exists(path));
  write_file(path, bytes_of("new"));
  CHECK(entries(dir.path()) == 1);
  CHECK(text_of(path) == "new");
}

TEST_CASE("file: when the disk is full the old file stays and the error says so") {
  test::TemporaryDirectory dir;
  const std::string path = dir / "a";
  write_file(path, bytes_of("old"));
  // A file size limit fails a write just as a full disk does; in a child, as it holds for a
  // process.
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1 << 19, 1 << 19};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(2);
    const std::string message =
        error_of([&] { write_file(path, bytes_of(std::string(1 << 20, 'x'))); });
    ::_exit(message.starts_with(path + ": cannot write its temporary file: ") &&
                    message.ends_with("; what was there before is unchanged")
                ? 0
                : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
  CHECK(text_of(path) == "old");
  CHECK(entries(dir.path()) == 1);
}

TEST_CASE("file: permissions are kept, links followed, new files obey the umask") {
  test::TemporaryDirectory dir;
  const std::string path = dir / "a", link = dir / "link";
  const mode_t before = ::umask(022);
  write_file(path, bytes_of("1"));
  ::umask(before);
  struct stat status;
  REQUIRE(::stat(path.c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0644);
  REQUIRE(::chmod(path.c_str(), 0666) == 0);
  fs::create_symlink("a", link);
  write_file(link, bytes_of("2"));
  CHECK(fs::is_symlink(link));
  CHECK(text_of(path) == "2");
  REQUIRE(::stat(path.c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0666);
}

TEST_CASE("file: check_writable says before what writing would say after") {
  test::TemporaryDirectory dir;
  const std::string path = dir / "a", missing = dir / "none/a";
  check_writable(path);
  CHECK(entries(dir.path()) == 0);
  write_file(path, bytes_of("old"));
  check_writable(path);
  CHECK(text_of(path) == "old");
  CHECK(entries(dir.path()) == 1);
  CHECK(error_of([&] { check_writable(missing); }) ==
        missing + ": cannot create a file in " + dir.path() + "/none: No such file or directory");
  CHECK(error_of([&] { check_writable(dir.path()); }) ==
        dir.path() + ": cannot write: exists and is not a regular file");
  CHECK_THROWS_AS(check_writable(""), Error);
  // A full disk.
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{0, 0};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(2);
    const std::string message = error_of([&] { check_writable(path); });
    ::_exit(message.starts_with(path + ": cannot write its temporary file: ") ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
  CHECK(text_of(path) == "old");
  CHECK(entries(dir.path()) == 1);
  if (::geteuid() == 0) return;  // root may write everywhere
  REQUIRE(::chmod(dir.path().c_str(), 0500) == 0);
  CHECK(error_of([&] { check_writable(dir / "b"); }).starts_with(dir / "b: cannot create a file"));
  REQUIRE(::chmod(dir.path().c_str(), 0700) == 0);
}

TEST_CASE("file: errors name the path") {
  test::TemporaryDirectory dir;
  const std::string path = dir / "a", fifo = dir / "fifo";
  CHECK(error_of([&] { read_file(path); }) == path + ": cannot open: No such file or directory");
  CHECK(error_of([&] { read_file(dir.path()); }) ==
        dir.path() + ": is a directory, expected a file");
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  CHECK(error_of([&] { read_file(fifo); }) == fifo + ": is not a regular file");
  CHECK(error_of([&] { write_file(fifo, {}); }) ==
        fifo + ": cannot write: exists and is not a regular file");
  write_file(path, bytes_of("12345"));
  CHECK(error_of([&] { read_file(path, 4); }) == path + ": holds 5 bytes, at most 4 are accepted");
  const std::string missing = dir / "none/a";
  CHECK(error_of([&] { write_file(missing, {}); }) ==
        missing + ": cannot create a file in " + dir.path() + "/none: No such file or directory");
  CHECK_THROWS_AS(write_file(dir.path() + "/", {}), Error);
  CHECK_THROWS_AS(write_file("", {}), Error);
}

}  // namespace lipgrad
