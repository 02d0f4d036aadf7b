#include "lipgrad/sweep_session.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <deque>
#include <filesystem>
#include <memory>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <lipgrad/core/device.h>
#include <lipgrad/core/error.h>
#include <lipgrad/core/file.h>
#include <lipgrad/core/threads.h>
#include <lipgrad/graph/datasets.h>
#include <lipgrad/vision/image_data.h>

#include "lipgrad/commands.h"
#include "lipgrad/results.h"
#include "lipgrad/sweep_models.h"

namespace lipgrad::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Texts = std::vector<std::string>;

// images: all models are of images, whose heads are a list.
Texts split(const std::string& name, const std::string& text, bool images = false) {
  // Between values that are lists with commas themselves.
  const bool lists = name == "fanouts" || name == "depths" || (images && name == "heads");
  const char between = lists ? ';' : ',';
  Texts parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(between, begin), text.size());
    if (end == begin)
      throw Error(fmt::format("sweep: {}: expected values with {} between, got '{}'", name,
                              lists ? "semicolons" : "commas", text));
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// Whether all models of a grid are of images, when the command line has its say.
bool images_only(const Grid& grid, const Settings& given) {
  std::vector<std::string> models;
  const auto note = [&](const Settings& settings) {
    for (const auto& [name, value] : settings)
      if (name == "model") models.push_back(value);
  };
  note(grid.common);
  for (const Axis& axis : grid.axes)
    for (const Choice& choice : axis.choices) note(choice.settings);
  for (const auto& [name, text] : given)
    if (name == "model") models = split(name, text);
  return !models.empty() && std::all_of(models.begin(), models.end(), is_image_model);
}

std::string duration(double seconds) {
  const auto s = static_cast<long long>(seconds + 0.5);
  return s < 3600 ? fmt::format("{}:{:02}", s / 60, s % 60)
                  : fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
}

}  // namespace

void Sweep::plan() {
  bool default_data = false;
  if (!o_.preset.empty()) {
    preset_ = sweep_preset(o_.preset, o_.protocol, o_.quick);
    name_ = o_.preset;
    default_data = true;
  } else if (o_.quick) {
    throw Error("sweep: --quick thins the grid of a preset, and none is named");
  }
  Grid& grid = preset_.grid;
  if (!o_.config.empty()) {
    const Axis* before = grid.find("data");
    const auto labels = before ? before->choices.size() : 0;
    read_grid(grid, o_.config);
    if (const Axis* after = grid.find("data"); (after ? after->choices.size() : 0) != labels)
      default_data = false;
  }
  for (const auto& [name, text] : o_.values) {
    set_values(grid, name, split(name, text, images_only(grid, o_.values)), "sweep");
    if (name == "data") default_data = false;
  }
  if (!o_.preset.empty() && !o_.values.empty()) {
    Texts given;
    for (const auto& [name, text] : o_.values) given.push_back(name + " " + text);
    preset_.layout.notes.push_back(
        fmt::format("Other than said above: {}.", fmt::join(given, "; ")));
  }
  if (!o_.methods.empty()) keep_methods(grid, split("methods", o_.methods));
  if (!o_.seeds.empty()) {
    std::erase_if(grid.axes, [](const Axis& axis) { return axis.name == seed_axis; });
    grid.axes.push_back(make_seeds(split("seeds", o_.seeds)));
  }
  if (!grid.find(seed_axis)) grid.axes.push_back(make_seeds({"1"}));
  std::stable_partition(grid.axes.begin(), grid.axes.end(),
                        [](const Axis& axis) { return axis.name != seed_axis; });
  if (!o_.choose.empty()) grid.choose = split("choose", o_.choose);
  if (o_.preset.empty()) {
    for (const char* name : {"data", "missing"})
      if (const Axis* axis = grid.find(name); axis && axis->choices.size() > 1)
        preset_.layout.columns.push_back(name);
  }
  std::erase_if(preset_.layout.columns, [&](const std::string& name) {
    return std::find(grid.choose.begin(), grid.choose.end(), name) != grid.choose.end();
  });
  // Of a preset's data sets those that are not there are left out.
  if (default_data)
    for (Axis& axis : grid.axes)
      if (axis.name == "data" && axis.choices.size() > 1) {
        std::vector<Choice> there;
        for (const Choice& choice : axis.choices) {
          try {
            if (!find_node_data(choice.label)) load_node_data(choice.label);  // says what lacks
            there.push_back(choice);
          } catch (const Error& error) {
            preset_.layout.notes.push_back(fmt::format("Left out: {}.", error.what()));
          }
        }
        if (!there.empty()) axis.choices = std::move(there);
      }
  runs_ = expand(grid);
}

// Data sets are there, and models can be made for them, before anything runs.
void Sweep::check_data() {
  RunCheck check;
  for (const PlannedRun& run : runs_) {
    if (!grid().choose.empty() && run.config.value("validation", 1.0) == 0)
      throw Error(
          "sweep: to choose needs validation images: give --validation a share of the training "
          "images");
    try {
      estimates_.push_back(check(run));
    } catch (const Error& error) {
      throw Error(fmt::format("sweep: {}: {}", name_of(run), error.what()));
    }
  }
}

void Sweep::lock() {
  // The workers inherit it: a sweep that was killed is over when its runs are.
  const int file = ::open((fs::path(o_.out) / ".lock").c_str(), O_RDWR | O_CREAT, 0666);
  if (file < 0)
    throw Error(fmt::format("{}: cannot be written into: {}", o_.out, std::strerror(errno)));
  if (::flock(file, LOCK_EX | LOCK_NB) != 0)
    throw Error(fmt::format("{}: another sweep is running in this directory", o_.out));
}

void Sweep::compare_with_last_time() {
  const std::string path = (fs::path(o_.out) / "sweep.json").string();
  std::set<std::string> now, before;
  for (const PlannedRun& run : runs_) now.insert(run.id);
  if (fs::exists(path)) {
    try {
      const std::vector<std::byte> bytes = read_file(path, 1 << 26);
      const Json json = Json::parse(reinterpret_cast<const char*>(bytes.data()),
                                    reinterpret_cast<const char*>(bytes.data()) + bytes.size());
      for (const Json& id : json.at("runs")) before.insert(id.get<std::string>());
    } catch (const std::exception&) {
      before.clear();  // it only serves to tell what has changed
    }
  }
  if (!before.empty() && before != now) {
    std::size_t more = 0, less = 0;
    for (const std::string& id : now) more += !before.contains(id);
    for (const std::string& id : before) less += !now.contains(id);
    tell(
        fmt::format("the grid has changed since the last time: {} runs are new, {} have no part in "
                    "it any more (what they came to is kept)",
                    more, less));
  }
  write_json(path, {{"sweep", name_}, {"runs", now}});
}

void Sweep::tell(const std::string& text) {
  if (o_.quiet) return;
  if (status_width_ > 0) std::fprintf(stderr, "\r%*s\r", static_cast<int>(status_width_), "");
  status_width_ = 0;
  std::fprintf(stderr, "%s\n", text.c_str());
}

std::string Sweep::time_left() const {
  const double pace = estimated_ > 0 ? measured_ / estimated_ : 1;
  double left = 0;
  for (const std::size_t job : todo_) left += pace * estimates_[job];
  for (const auto& [job, seconds] : workers_.elapsed())
    left += std::max(0.0, pace * estimates_[job] - seconds);
  return duration(left / static_cast<double>(jobs_));
}

void Sweep::status_line() {
  if (o_.quiet || !::isatty(STDERR_FILENO)) return;
  const std::string text = fmt::format("{} of {} runs done, {} running, about {} left", finished_,
                                       all_, workers_.running(), time_left());
  std::fprintf(stderr, "\r%-*s", static_cast<int>(status_width_), text.c_str());
  std::fflush(stderr);
  status_width_ = text.size();
}

void Sweep::start(std::size_t job) {
  const PlannedRun& run = runs_[job];
  const fs::path out = folder(run);
  std::error_code error;
  fs::create_directories(out, error);
  if (error) throw Error(fmt::format("{}: {}", out.string(), error.message()));
  if (fs::exists(out / "last.lip")) resumed_.insert(job);
  Texts words = train_words(run.config);
  const auto threads = std::max<std::size_t>(1, static_cast<std::size_t>(num_threads()) / jobs_);
  for (const std::string& word :
       {"--out=" + out.string(), std::string("--resume"),
        "--json=" + (out / "result.json").string(), std::string("--quiet"),
        fmt::format("--checkpoint-every={}", o_.checkpoint_every), "--device=" + o_.device,
        fmt::format("--threads={}", threads)})
    words.push_back(word);
  workers_.start(job, words, (out / "log.txt").string());
}

// The last line that a worker printed.
std::string last_line(const fs::path& log) {
  try {
    const std::vector<std::byte> bytes = read_file(log.string(), 1 << 26);
    std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    while (!text.empty() && text.back() == '\n') text.pop_back();
    text.erase(0, text.rfind('\n') + 1);
    return text.starts_with("lipgrad: ") ? text.substr(9) : text;
  } catch (const Error&) {
    return {};
  }
}

void Sweep::again_or_not(std::size_t job, const std::string& what) {
  if (tried_.insert(job).second) {
    tell(fmt::format("{}: {}; it is started once more", name_of(runs_[job]), what));
    todo_.push_front(job);
  } else {
    tell(fmt::format("{}: {} again; left out", name_of(runs_[job]), what));
    lost_.push_back(name_of(runs_[job]));
  }
}

void Sweep::done(std::size_t job, FinishedRun result) {
  const PlannedRun& run = runs_[job];
  log_->add(run, result);
  ++finished_;
  if (!resumed_.contains(job)) {
    estimated_ += estimates_[job];
    measured_ += result.seconds;
  }
  tell(fmt::format("[{}/{}] {}: {}  {}, about {} left", finished_, all_, name_of(run),
                   result.failed.empty()
                       ? std::isnan(result.valid.score)
                             ? fmt::format("test {:.1f} %", 100 * result.test_last)
                             : fmt::format("validation {:.1f} %", 100 * result.valid.score)
                       : result.failed,
                   duration(result.seconds), time_left()));
  if (o_.keep) return;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder(run), ignored)) {
    const std::string file = entry.path().filename().string();
    if (file != "metrics.jsonl" && file != "log.txt") fs::remove(entry.path(), ignored);
  }
}

void Sweep::finish(const Workers::Ended& ended) {
  const PlannedRun& run = runs_[ended.job];
  if (ended.status == success && ended.signal == 0) {
    FinishedRun result = read_result((folder(run) / "result.json").string());
    result.seconds = ended.seconds;
    done(ended.job, std::move(result));
  } else if (stopping_ && (ended.status == interrupted || ended.signal != 0)) {
    // It goes on from its checkpoint the next time.
  } else if (ended.signal != 0) {
    again_or_not(ended.job,
                 fmt::format("killed by signal {} ({})", ended.signal, ::strsignal(ended.signal)));
  } else if (ended.status == interrupted) {
    again_or_not(ended.job, "stopped from outside");
  } else {
    const std::string message = last_line(folder(run) / "log.txt");
    if (message.find("try a smaller learning rate") != std::string::npos) {
      FinishedRun result;
      result.failed = message;
      result.seconds = ended.seconds;
      done(ended.job, std::move(result));
    } else if (error_.empty()) {
      error_ = fmt::format(
          "{}: {}", name_of(run),
          message.empty() ? fmt::format("ended with status {}", ended.status) : message);
    }
  }
}

void Sweep::work() {
  while (true) {
    if (!stopping_ && (stop_asked() || !error_.empty())) {
      stopping_ = true;
      workers_.signal(SIGTERM);
      if (workers_.running() > 0)
        tell(fmt::format("stopping; waiting for {} runs to write their checkpoints",
                         workers_.running()));
    }
    while (!stopping_ && !todo_.empty() && workers_.running() < jobs_) {
      const std::size_t job = todo_.front();
      todo_.pop_front();
      start(job);
    }
    if (workers_.running() == 0) break;
    if (const auto ended = workers_.wait(200)) finish(*ended);
    status_line();
  }
}

int Sweep::run() {
  plan();
  if (!o_.figures_only) check_data();
  if (o_.dry_run) {
    double seconds = 0;
    std::set<std::string> seen;
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      if (!seen.insert(runs_[i].id).second) continue;
      std::printf("%s  %8s  %s\n", runs_[i].id.c_str(), duration(estimates_[i]).c_str(),
                  name_of(runs_[i]).c_str());
      seconds += estimates_[i];
    }
    const double cores = num_threads();
    std::printf("%zu runs, about %s on %g cores\n", seen.size(), duration(seconds / cores).c_str(),
                cores);
    return success;
  }
  if (o_.out.empty())
    throw Error("sweep: --out DIR is required, the directory for runs and results");
  if (!o_.figures_only) {
    std::error_code error;
    fs::create_directories(o_.out, error);
    if (error) throw Error(fmt::format("{}: {}", o_.out, error.message()));
    lock();
  } else if (!fs::is_directory(o_.out)) {
    throw Error(fmt::format("{}: there is no such directory", o_.out));
  }
  check_writable((fs::path(o_.out) / "results.csv").string());
  log_.emplace(o_.out);
  for (const std::string& note : log_->notes()) tell(note);
  if (!o_.figures_only) {
    compare_with_last_time();
    const Device device = parse_device(o_.device);
    std::set<std::string> seen;
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      if (!seen.insert(runs_[i].id).second) continue;  // of a model that lacks what an axis sets
      if (log_->find(runs_[i].id))
        ++finished_;
      else
        todo_.push_back(i);
    }
    all_ = seen.size();
    jobs_ = o_.jobs > 0       ? static_cast<std::size_t>(o_.jobs)
            : device.is_cpu() ? static_cast<std::size_t>(num_threads())
                              : 1;
    jobs_ = std::max<std::size_t>(1, std::min(jobs_, todo_.size()));
    tell(fmt::format("{}: {} runs, {} done already, about {} left with {} at a time", name_, all_,
                     finished_, time_left(), jobs_));
    catch_stop_signals();
    work();
    if (status_width_ > 0) tell("");
  }
  const SweepResults results = summarize(name_, grid(), preset_.layout, runs_, *log_);
  const Texts figures = write_report(results, o_.out);
  if (!error_.empty()) throw Error(fmt::format("sweep: {}", error_));
  if (stopping_) {
    std::fprintf(stderr, "stopped: %zu of %zu runs are done; the same command goes on from there\n",
                 finished_, all_);
    return interrupted;
  }
  std::fputs(table_markdown(results).c_str(), stdout);
  tell(fmt::format("\nwritten to {}: {}", o_.out,
                   fmt::join(
                       [&] {
                         Texts names{"results.csv", "results.json", "table.md"};
                         names.insert(names.end(), figures.begin(), figures.end());
                         return names;
                       }(),
                       ", ")));
  if (!lost_.empty())
    throw Error(fmt::format("sweep: killed twice, and left out: {}", fmt::join(lost_, "; ")));
  return success;
}

}  // namespace lipgrad::cli
