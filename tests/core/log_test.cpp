#include <lipgrad/core/log.h>

#include <doctest/doctest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

#include <lipgrad/core/error.h>
#include <support/temporary_directory.h>

namespace lipgrad {
namespace {

// A FILE* whose text can be asked for.
class Capture {
 public:
  Capture() : file_(::open_memstream(&data_, &size_)) {}
  ~Capture() {
    std::fclose(file_);
    std::free(data_);
  }
  std::FILE* file() { return file_; }
  std::string text() {
    std::fflush(file_);
    return {data_, size_};
  }

 private:
  char* data_ = nullptr;
  std::size_t size_ = 0;
  std::FILE* file_;
};

double fake_now = 0;
double fake_clock() { return fake_now; }

std::string content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

void put(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

}  // namespace

TEST_CASE("log: progress adds lines at intervals where the output is no terminal") {
  Capture capture;
  fake_now = 100;
  {
    Progress progress({.total = 200, .unit = "epoch", .out = capture.file(), .clock = fake_clock});
    for (int epoch = 1; epoch <= 200; ++epoch) {
      fake_now += 0.125;
      progress.update(epoch, {{"loss", 1.0 / epoch}, {"split", "valid"}});
      if (epoch == 60) progress.message("saved");
    }
  }
  CHECK(capture.text() ==
        "epoch   1/200  loss 1  split valid  8 epochs/s  0:25 left\n"
        "epoch  41/200  loss 0.02439  split valid  8 epochs/s  0:20 left\n"
        "saved\n"
        "epoch  81/200  loss 0.01235  split valid  8 epochs/s  0:15 left\n"
        "epoch 121/200  loss 0.008264  split valid  8 epochs/s  0:10 left\n"
        "epoch 161/200  loss 0.006211  split valid  8 epochs/s  0:05 left\n"
        "epoch 200/200  loss 0.005  split valid  8 epochs/s  in 0:25\n");
}

TEST_CASE("log: progress redraws its line on a terminal and leaves nothing of a longer one") {
  Capture capture;
  fake_now = 0;
  Progress progress({.out = capture.file(), .terminal = true, .clock = fake_clock});
  fake_now = 10;
  progress.update(1, {{"loss", 0.125}});
  progress.update(2, {{"loss", 0.25}});  // too soon after the first
  fake_now = 20;
  progress.update(4, {});
  progress.message("hello");
  progress.finish();
  progress.finish();
  CHECK(capture.text() ==
        "\rstep 1  loss 0.125  10 s/step  in 0:10"
        "\rstep 4  5 s/step  in 0:20             "
        "\r                         \rhello\n"
        "\rstep 4  5 s/step  in 0:20\n");
}

TEST_CASE("log: progress counts the rate from where training resumed") {
  Capture capture;
  fake_now = 0;
  Progress progress({.total = 100000, .start = 90000, .out = capture.file(), .clock = fake_clock});
  fake_now = 1000;
  progress.update(91000, {});
  CHECK(capture.text() == "step  91000/100000  1 steps/s  2:30:00 left\n");
}

TEST_CASE("log: JSON lines hold every double exactly and are whole lines") {
  test::TemporaryDirectory dir;
  const std::string path = dir / "metrics.jsonl";
  JsonlWriter log(path);
  const double inf = std::numeric_limits<double>::infinity();
  log.write(1, {{"loss", 0.1}, {"third", 1.0 / 3.0}, {"tiny", 5e-324}, {"epoch", 3}});
  log.write(2, {{"nan", std::nan("")}, {"inf", inf}, {"ninf", -inf}, {"big", 1e300}});
  CHECK(
      content(path) ==
      "{\"step\":1,\"loss\":0.1,\"third\":0.3333333333333333,\"tiny\":5e-324,\"epoch\":3}\n"
      "{\"step\":2,\"nan\":\"NaN\",\"inf\":\"Infinity\",\"ninf\":\"-Infinity\",\"big\":1e+300}\n");
  log.write(3, {{"name", "a \"b\"\n\xff"}, {"ok", true}, {"n", std::int64_t{1} << 62}});
  CHECK(content(path).ends_with(
      "{\"step\":3,\"name\":\"a "
      "\\\"b\\\"\\n\xef\xbf\xbd\",\"ok\":true,\"n\":4611686018427387904}\n"));
  CHECK_THROWS_WITH_AS(log.write(4, {{"loss", 1.0}, {"loss", 2.0}}),
                       (path + ": the value \"loss\" is given twice").c_str(), Error);
  CHECK_THROWS_AS(log.write(4, {{"step", 1}}), Error);
  CHECK_THROWS_AS(JsonlWriter(dir / "none/metrics.jsonl"), Error);
}

TEST_CASE("log: a resumed log drops what training writes again") {
  test::TemporaryDirectory dir;
  const std::string path = dir / "metrics.jsonl";
  const std::string kept =
      "{\"note\":\"run 1\"}\n{\"step\":1,\"loss\":2}\n{\"step\":2,\"loss\":1}\n";
  for (const char* rest : {"", "{\"step\":3,\"loss\":0.5}\n{\"step\":2}\n", "{\"step\":2,\"lo",
                           "{\"step\":2}", "garbage\n{\"step\":1}\n", "[1]\n", "\n"}) {
    put(path, kept + rest);
    JsonlWriter log = JsonlWriter::resume(path, 2);
    CHECK(content(path) == kept);
    log.write(3, {{"loss", 0.25}});
    CHECK(content(path) == kept + "{\"step\":3,\"loss\":0.25}\n");
  }
  JsonlWriter::resume(path, 0);
  CHECK(content(path) == "{\"note\":\"run 1\"}\n");
  JsonlWriter::resume(dir / "new.jsonl", 5).write(6, {});
  CHECK(content(dir / "new.jsonl") == "{\"step\":6}\n");
  JsonlWriter fresh(path);
  CHECK(content(path) == "");
}

TEST_CASE("log: a table lines up") {
  Table table({"method", "accuracy", "epoch time", "note"});
  table.add_row({"GAT", "83.1 %", "1.42 ms", ""});
  table.add_row({"naïve", "-", "112 ms", "quick"});
  CHECK(table.str() ==
        "method  accuracy  epoch time  note\n"
        "------  --------  ----------  -----\n"
        "GAT       83.1 %     1.42 ms\n"
        "naïve          -      112 ms  quick\n");
  CHECK_THROWS_AS(table.add_row({"x"}), Error);
}

}  // namespace lipgrad
