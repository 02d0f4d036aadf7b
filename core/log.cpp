#include <lipgrad/core/log.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include <lipgrad/core/check.h>

namespace lipgrad {
namespace {

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Columns that UTF-8 text takes on a terminal, as far as one character is one column.
std::size_t columns(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string for_people(const LogValue::Value& value) {
  return std::visit(
      [](const auto& v) -> std::string {
        if constexpr (std::is_same_v<std::decay_t<decltype(v)>, double>)
          return fmt::format("{:.4g}", v);
        return fmt::format("{}", v);
      },
      value);
}

// Seconds as m:ss, h:mm:ss or 3d 04h.
std::string duration(double seconds) {
  const auto s = static_cast<std::int64_t>(std::ceil(seconds));
  if (s < 3600) return fmt::format("{}:{:02}", s / 60, s % 60);
  if (s < 86400) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{}d {:02}h", s / 86400, s / 3600 % 24);
}

std::string rate(double per_second, const std::string& unit) {
  if (per_second >= 1) return fmt::format("{:.4g} {}s/s", per_second, unit);
  return fmt::format("{:.3g} s/{}", 1 / per_second, unit);
}

nlohmann::ordered_json json_of(const LogValue::Value& value) {
  if (const double* number = std::get_if<double>(&value); number && !std::isfinite(*number))
    return std::isnan(*number) ? "NaN" : *number > 0 ? "Infinity" : "-Infinity";
  return std::visit([](const auto& v) { return nlohmann::ordered_json(v); }, value);
}

std::string reason() { return std::generic_category().message(errno); }

// The bytes of a log to keep when training resumes at `step`: its longest start of whole lines that
// are JSON objects with a "step" (if any) of at most `step`.
std::int64_t bytes_until(const std::string& path, std::int64_t step) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return 0;  // absent, or a pipe
  std::FILE* file = std::fopen(path.c_str(), "rbe");
  LIPGRAD_CHECK(file != nullptr, "{}: cannot open the log: {}", path, reason());
  std::int64_t keep = 0;
  char* line = nullptr;
  std::size_t capacity = 0;
  for (ssize_t size; (size = ::getline(&line, &capacity, file)) > 0; keep += size) {
    if (line[size - 1] != '\n') break;
    const auto json = nlohmann::json::parse(line, line + size, nullptr, false);
    if (!json.is_object()) break;
    if (const auto it = json.find("step");
        it != json.end() && it->is_number() && it->get<double>() > static_cast<double>(step))
      break;
  }
  std::free(line);
  const bool failed = std::ferror(file) != 0;
  std::fclose(file);
  LIPGRAD_CHECK(!failed, "{}: cannot read the log", path);
  return keep;
}

bool looks_like_number(std::string_view cell) {
  if (!cell.empty() && (cell[0] == '-' || cell[0] == '+')) cell.remove_prefix(1);
  return !cell.empty() && cell[0] >= '0' && cell[0] <= '9';
}

}  // namespace

Progress::Progress(Options options) : options_(std::move(options)) {
  if (options_.clock == nullptr) options_.clock = steady_seconds;
  if (!options_.terminal) options_.terminal = ::isatty(::fileno(options_.out)) == 1;
  began_ = options_.clock();
  step_ = options_.start;
}

Progress::~Progress() {
  try {
    finish();
  } catch (...) {  // a progress line is not worth ending the program for
  }
}

std::string Progress::line() const {
  const std::string total = options_.total > 0 ? std::to_string(options_.total) : "";
  std::string text = fmt::format("{} {:>{}}", options_.unit, step_, total.size());
  if (!total.empty()) text += "/" + total;
  for (const auto& [name, value] : values_) text += fmt::format("  {} {}", name, for_people(value));
  const double seconds = updated_at_ - began_;
  const std::int64_t done = step_ - options_.start;
  if (done > 0 && seconds > 0) {
    text += "  " + rate(static_cast<double>(done) / seconds, options_.unit);
    const std::int64_t left = options_.total - step_;
    if (left > 0)
      text += fmt::format(
          "  {} left", duration(static_cast<double>(left) * seconds / static_cast<double>(done)));
    else
      text += fmt::format("  in {}", duration(seconds));
  }
  return text;
}

void Progress::erase() {
  if (width_ == 0) return;
  std::fprintf(options_.out, "\r%*s\r", static_cast<int>(width_), "");
  width_ = 0;
}

void Progress::show() {
  const std::string text = line();
  if (*options_.terminal) {
    // Blanks cover what a longer line before left behind.
    const std::size_t now = columns(text);
    const std::size_t blanks = width_ > now ? width_ - now : 0;
    std::fprintf(options_.out, "\r%s%*s", text.c_str(), static_cast<int>(blanks), "");
    width_ = now;
  } else {
    std::fprintf(options_.out, "%s\n", text.c_str());
  }
  std::fflush(options_.out);
  shown_at_ = updated_at_;
  shown_ = true;
  pending_ = false;
}

void Progress::update(std::int64_t step, std::span<const LogValue> values) {
  step_ = step;
  values_.assign(values.begin(), values.end());
  updated_at_ = options_.clock();
  pending_ = true;
  const double interval = *options_.terminal ? 0.1 : options_.interval;
  if (!shown_ || updated_at_ - shown_at_ >= interval) show();
}

void Progress::message(std::string_view text) {
  erase();
  std::fprintf(options_.out, "%.*s\n", static_cast<int>(text.size()), text.data());
  std::fflush(options_.out);
  if (*options_.terminal && shown_) show();
}

void Progress::finish() {
  if (pending_) show();
  if (width_ > 0) {
    std::fputc('\n', options_.out);
    std::fflush(options_.out);
    width_ = 0;
  }
  shown_ = false;
}

JsonlWriter::JsonlWriter(const std::string& path) : JsonlWriter(path, std::int64_t{0}) {}

JsonlWriter JsonlWriter::resume(const std::string& path, std::int64_t step) {
  return JsonlWriter(path, bytes_until(path, step));
}

JsonlWriter::JsonlWriter(const std::string& path, std::int64_t keep_bytes) : path_(path) {
  fd_ = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_CREAT, 0666);
  LIPGRAD_CHECK(fd_ >= 0, "{}: cannot open the log: {}", path, reason());
  struct stat status;
  if (::fstat(fd_, &status) == 0 && S_ISREG(status.st_mode) && ::ftruncate(fd_, keep_bytes) != 0) {
    const std::string why = reason();
    ::close(fd_);
    fail("{}: cannot shorten the log: {}", path, why);
  }
}

JsonlWriter::JsonlWriter(JsonlWriter&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

JsonlWriter::~JsonlWriter() {
  if (fd_ >= 0) ::close(fd_);
}

void JsonlWriter::write(std::int64_t step, std::span<const LogValue> values) {
  nlohmann::ordered_json object;
  object["step"] = step;
  for (const auto& [name, value] : values) {
    LIPGRAD_CHECK(!object.contains(name), "{}: the value \"{}\" is given twice", path_, name);
    object[name] = json_of(value);
  }
  // Bytes that are not UTF-8 become U+FFFD: a log line is not worth ending the training for.
  const std::string line =
      object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  for (std::string_view rest = line; !rest.empty();) {
    const ssize_t done = ::write(fd_, rest.data(), rest.size());
    if (done < 0 && errno == EINTR) continue;
    LIPGRAD_CHECK(done >= 0, "{}: cannot write to the log: {}", path_, reason());
    rest.remove_prefix(static_cast<std::size_t>(done));
  }
}

Table::Table(std::vector<std::string> header) { rows_.push_back(std::move(header)); }

void Table::add_row(std::vector<std::string> cells) {
  LIPGRAD_CHECK(cells.size() == rows_[0].size(), "table: a row of {} cells, the header has {}",
                cells.size(), rows_[0].size());
  rows_.push_back(std::move(cells));
}

std::string Table::str() const {
  const std::size_t count = rows_[0].size();
  std::vector<std::size_t> width(count, 0);
  std::vector<bool> right(count, false);
  for (std::size_t j = 0; j < count; ++j) {
    bool text = false;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const std::string& cell = rows_[i][j];
      width[j] = std::max(width[j], columns(cell));
      if (i == 0) continue;
      if (looks_like_number(cell))
        right[j] = true;
      else if (!cell.empty() && cell != "-")
        text = true;
    }
    if (text) right[j] = false;
  }
  std::string out;
  const auto add_line = [&](auto&& cell_of) {
    std::string line;
    for (std::size_t j = 0; j < count; ++j) {
      const std::string cell = cell_of(j);
      const std::string blanks(width[j] - columns(cell), ' ');
      if (j > 0) line += "  ";
      line += right[j] ? blanks + cell : cell + blanks;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  };
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    add_line([&](std::size_t j) { return rows_[i][j]; });
    if (i == 0) add_line([&](std::size_t j) { return std::string(width[j], '-'); });
  }
  return out;
}

}  // namespace lipgrad
