#include <lipgrad/core/events.h>

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include <lipgrad/core/error.h>
#include <support/events.h>
#include <support/temporary_directory.h>

namespace lipgrad {
namespace {

using test::Event;
using test::event_files;
using test::file_text;
using test::read_events;

double fake_now = 0;
double fake_clock() { return fake_now; }
constexpr EventWriter::Options fake{.clock = fake_clock};

std::string hex(const std::string& bytes) {
  std::string text;
  for (unsigned char byte : bytes) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

TEST_CASE("events: the bytes that TensorBoard has read") {
  test::TemporaryDirectory dir;
  fake_now = 1;
  EventWriter writer(dir.path(), fake);
  const std::string version =
      "1800000000000000a37f4b2209000000000000f03f1a0d627261696e2e4576656e743a3286bf577a";
  CHECK(hex(file_text(writer.path())) == version);
  fake_now = 2;
  writer.scalars(3, {{"train/loss", 0.5}});
  writer.flush();
  CHECK(hex(file_text(writer.path())) ==
        version +
            "200000000000000029eda95009000000000000004010032a130a110a0a747261696e2f6c6f737315000000"
            "3f89c6b87d");
}

TEST_CASE("events: values, tags and marks are read back") {
  test::TemporaryDirectory dir;
  fake_now = 1700000000.25;
  const double inf = std::numeric_limits<double>::infinity();
  std::string path;
  {
    EventWriter writer(dir.path(), fake);
    path = writer.path();
    writer.start(21);
    fake_now += 0.5;
    writer.scalars(21, {{"gradient_norm/conv.3.lin.weight", 1.0 / 3},
                        {"//a b\xc3\xa9\n", 1e300},
                        {"", -1e300},
                        {"nan", std::nan("")},
                        {"inf", -inf},
                        {"tiny", 1e-300}});
    writer.scalars(std::int64_t{1} << 40, {});
    writer.scalars(-1, {{std::string(200, 'x'), 2}});
  }
  const std::vector<Event> events = read_events(path);
  REQUIRE(events.size() == 5);
  CHECK(events[0].file_version == "brain.Event:2");
  CHECK(events[0].wall_time == 1700000000.25);
  CHECK(events[1].start);
  CHECK(events[1].step == 21);
  CHECK(events[2].wall_time == 1700000000.75);
  const auto& values = events[2].values;
  REQUIRE(values.size() == 6);
  CHECK(values[0] == std::pair<std::string, float>("gradient_norm/conv.3.lin.weight", 1.0F / 3));
  CHECK(values[1] == std::pair<std::string, float>("a_b___", inf));
  CHECK(values[2] == std::pair<std::string, float>("_", -inf));
  CHECK(std::isnan(values[3].second));
  CHECK(values[4].second == -inf);
  CHECK(values[5].second == 0);
  CHECK(events[3].step == std::int64_t{1} << 40);
  CHECK(events[3].values.empty());
  CHECK(events[4].step == -1);
  CHECK(events[4].values[0].first == std::string(200, 'x'));
}

TEST_CASE("events: names are TensorBoard's, and a new file is always the last one") {
  test::TemporaryDirectory dir;
  std::vector<std::string> written;
  for (double now : {1700000000.0, 1700000000.0, 1600000000.0, -5.0, 1700000010.0}) {
    fake_now = now;
    const EventWriter writer(dir.path(), fake);
    written.push_back(writer.path());
    const std::string name = std::filesystem::path(writer.path()).filename().string();
    // events.out.tfevents.<seconds>.<host>.<process>.<count>
    std::vector<std::string> part;
    std::istringstream parts(name);
    for (std::string word; std::getline(parts, word, '.');) part.push_back(word);
    REQUIRE(part.size() == 7);
    CHECK(part[0] + "." + part[1] + "." + part[2] == "events.out.tfevents");
    CHECK(part[3].size() == 10);
    CHECK(part[3].find_first_not_of("0123456789") == std::string::npos);
    CHECK_FALSE(part[4].empty());
    CHECK(part[5] == std::to_string(::getpid()));
    CHECK(part[6].find_first_not_of("0123456789") == std::string::npos);
  }
  CHECK(event_files(dir.path()) == written);
  CHECK(written[0].find(".1700000000.") != std::string::npos);
  CHECK(written[4].find(".1700000010.") != std::string::npos);
}

TEST_CASE("events: gathered for some seconds, then handed over") {
  test::TemporaryDirectory dir;
  fake_now = 100;
  EventWriter writer(dir.path(), {.flush_seconds = 2, .clock = fake_clock});
  const auto on_disk = [&] { return read_events(writer.path()).size() - 1; };
  writer.scalars(1, {{"a", 1}});
  fake_now = 101.5;
  writer.scalars(2, {{"a", 1}});
  CHECK(on_disk() == 0);
  fake_now = 102;
  writer.scalars(3, {{"a", 1}});
  CHECK(on_disk() == 3);
  writer.scalars(4, {{"a", 1}});
  CHECK(on_disk() == 3);
  fake_now = 50;  // the clock was set back
  writer.scalars(5, {{"a", 1}});
  CHECK(on_disk() == 5);
  std::int64_t step = 6;
  for (; on_disk() == 5 && step < 100000; ++step) writer.scalars(step, {{"many", 1}});
  CHECK(step < 10000);  // some 256 KiB
}

// In a child, as the limit, which fails a write just as a full disk does, holds for a process.
template <class F>
int status_of_child_with_file_limit(rlim_t bytes, F f) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{bytes, bytes};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(2);
    ::_exit(f() ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return status;
}

TEST_CASE("events: a full disk is an Error, and the file holds whole events") {
  test::TemporaryDirectory dir;
  fake_now = 100;
  CHECK(status_of_child_with_file_limit(500, [&] {
          EventWriter writer(dir.path(), {.flush_seconds = 0, .clock = fake_clock});
          for (std::int64_t step = 1; step < 100; ++step) try {
              writer.scalars(step, {{"loss", 1}});
            } catch (const Error& error) {
              return step > 5 &&
                     std::string(error.what())
                         .starts_with(writer.path() + ": cannot write to the event file: ");
            }
          return false;
        }) == 0);
  REQUIRE(event_files(dir.path()).size() == 1);
  const std::string path = event_files(dir.path())[0];
  const std::vector<Event> events = read_events(path);
  CHECK(events.size() == 1 + (500 - 40) / 42);
  CHECK(std::filesystem::file_size(path) <= 500);
  // No room for the first record: no file is left.
  CHECK(status_of_child_with_file_limit(10, [&] {
          try {
            EventWriter writer(dir.path(), fake);
          } catch (const Error&) {
            return true;
          }
          return false;
        }) == 0);
  CHECK(event_files(dir.path()).size() == 1);
}

TEST_CASE("events: a directory that does not exist") {
  test::TemporaryDirectory dir;
  CHECK_THROWS_WITH_AS(EventWriter(dir / "none"), doctest::Contains((dir / "none").c_str()), Error);
}

}  // namespace
}  // namespace lipgrad
