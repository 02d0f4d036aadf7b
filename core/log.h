#pragma once

#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace lipgrad {

// A named value of a training run: {"loss", 0.693}, {"epoch", 12}, {"dataset", "cora"}.
struct LogValue {
  using Value = std::variant<double, std::int64_t, bool, std::string>;

  std::string name;
  Value value;

  LogValue(std::string name, double v) : name(std::move(name)), value(v) {}
  LogValue(std::string name, bool v) : name(std::move(name)), value(v) {}
  LogValue(std::string name, std::string v) : name(std::move(name)), value(std::move(v)) {}
  LogValue(std::string name, const char* v) : name(std::move(name)), value(std::string(v)) {}
  template <class Int>
  requires(std::is_integral_v<Int> && !std::is_same_v<Int, bool>) LogValue(std::string name, Int v)
      : name(std::move(name)), value(static_cast<std::int64_t>(v)) {}
};

// Progress of a loop for a person who watches:
//
//   epoch  57/200  loss 0.6931  valid 0.794  118.3 epochs/s  0:01 left
//
// On a terminal the line is redrawn in place, at most ten times a second; elsewhere (a pipe, a log
// file) a line is added every `interval` seconds. The first and the last update are always shown.
class Progress {
 public:
  using Clock = double (*)();  // seconds from any fixed moment

  struct Options {
    std::int64_t total = 0;     // steps in all; 0: unknown, then no time left is shown
    std::int64_t start = 0;     // steps done before this run, when training resumes
    std::string unit = "step";  // what one step is called; its plural adds an s
    double interval = 5;        // seconds between lines where the output is not a terminal
    std::FILE* out = stderr;    // not owned
    std::optional<bool> terminal = std::nullopt;  // default: whether `out` is a terminal
    Clock clock = nullptr;                        // default: the steady clock
  };

  explicit Progress(Options options);
  // Ends the line, as finish() does, but never throws.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `step` steps are done now. The values are shown in order, numbers with four significant digits.
  void update(std::int64_t step, std::span<const LogValue> values);
  void update(std::int64_t step, std::initializer_list<LogValue> values) {
    update(step, std::span(values.begin(), values.size()));
  }
  // Prints a line of its own; the progress line continues below it.
  void message(std::string_view text);
  // Shows the last update and ends the line. update() may follow and starts a new one.
  void finish();

 private:
  std::string line() const;
  void show();
  void erase();

  Options options_;
  double began_ = 0, shown_at_ = 0, updated_at_ = 0;
  std::int64_t step_ = 0;
  std::vector<LogValue> values_;
  std::size_t width_ = 0;  // columns of the line that stands on the terminal
  bool pending_ = false, shown_ = false;
};

// A log for programs: one JSON object a line (https://jsonlines.org), for example
//
//   {"step":12,"epoch":3,"loss":0.6931471805599453,"valid":0.794}
//
// Doubles are written with the fewest digits that read back to the same bits. JSON has no numbers
// beyond the finite ones: they become the strings "NaN", "Infinity" and "-Infinity", which is what
// Protocol Buffers' JSON mapping does and what float() in Python reads; null would make them one.
// Every line goes to the operating system in one piece before write() returns, so a killed process
// loses none and a reader sees whole lines only.
class JsonlWriter {
 public:
  // Creates the file, or empties one that exists.
  explicit JsonlWriter(const std::string& path);
  // Continues a log after training resumed at `step` (the value in the checkpoint): drops the lines
  // whose "step" is larger, which training writes again, and with them everything from the first
  // line on that is incomplete or not a JSON object. A file that does not exist is created.
  static JsonlWriter resume(const std::string& path, std::int64_t step);

  ~JsonlWriter();
  JsonlWriter(JsonlWriter&& other) noexcept;
  JsonlWriter& operator=(JsonlWriter&&) = delete;

  // Appends {"step": step, values...}. Error "<path>: ..." when a name occurs twice or the line
  // cannot be written.
  void write(std::int64_t step, std::span<const LogValue> values);
  void write(std::int64_t step, std::initializer_list<LogValue> values) {
    write(step, std::span(values.begin(), values.size()));
  }

 private:
  JsonlWriter(const std::string& path, std::int64_t keep_bytes);

  std::string path_;
  int fd_ = -1;
};

// A table for people: columns as wide as their widest cell, numbers to the right, text to the left.
//
//   method    accuracy  epoch time
//   --------  --------  ----------
//   GAT         83.1 %     1.42 ms
//
class Table {
 public:
  explicit Table(std::vector<std::string> header);
  // Error unless there are as many cells as columns.
  void add_row(std::vector<std::string> cells);
  // The lines, each ended by a newline. A column is set to the right when every cell below its
  // header starts with a digit, a sign followed by a digit, or is empty or "-" (and one is a
  // number).
  std::string str() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace lipgrad
