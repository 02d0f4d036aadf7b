#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lipgrad/sweep_report.h"
#include "lipgrad/workers.h"

// The work of `lipgrad sweep`: plans the runs of a grid, has them trained by workers, writes down
// what they come to.
namespace lipgrad::cli {

struct SweepOptions {
  std::string preset, protocol = "contrast", config, out, device = "cpu";
  std::string methods, seeds, choose;
  std::vector<std::pair<std::string, std::string>> values;  // axes from the command line
  std::int64_t jobs = 0, checkpoint_every = 20;
  bool quick = false, quiet = false, keep = false, dry_run = false, figures_only = false;
};

// One call of the program. run() returns its exit status.
class Sweep {
 public:
  explicit Sweep(const SweepOptions& o) : o_(o) {}
  int run();

 private:
  void plan();
  void check_data();
  void lock();
  void compare_with_last_time();
  void work();
  void start(std::size_t job);
  void finish(const Workers::Ended& ended);
  void done(std::size_t job, FinishedRun result);
  void again_or_not(std::size_t job, const std::string& what);
  std::string time_left() const;
  void tell(const std::string& text);
  void status_line();

  std::filesystem::path folder(const PlannedRun& run) const {
    return std::filesystem::path(o_.out) / "runs" / run.id;
  }
  std::string name_of(const PlannedRun& run) const {
    const std::string name = describe(grid(), run.at);
    return name.empty() ? "the run" : name;
  }
  const Grid& grid() const { return preset_.grid; }

  const SweepOptions& o_;
  SweepPreset preset_;
  std::string name_ = "sweep";
  std::vector<PlannedRun> runs_;
  std::vector<double> estimates_;  // of each run, seconds
  std::optional<RunLog> log_;
  std::deque<std::size_t> todo_;
  std::set<std::size_t> tried_, resumed_;
  Workers workers_;
  std::size_t jobs_ = 1, all_ = 0, finished_ = 0, status_width_ = 0;
  double estimated_ = 0, measured_ = 0;  // of the runs finished now
  std::string error_;
  std::vector<std::string> lost_;
  bool stopping_ = false;
};

}  // namespace lipgrad::cli
