#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lipgrad/sweep_grid.h"
#include "lipgrad/sweep_selection.h"

// What a sweep keeps of its runs: OUT/runs.jsonl, a line a finished run, and OUT/runs/ID/, the
// directory of each.
namespace lipgrad::cli {

struct FinishedRun {
  std::string score = "score";  // its name: "accuracy"
  std::int64_t epochs = 0, best_epoch = 0;
  Validation valid;                      // at the chosen epoch
  double test = 0;                       // the same, which choosing never sees
  double test_last = 0, train_last = 0;  // at the last epoch
  double seconds = 0, seconds_per_epoch = 0;
  std::int64_t classes = 0;  // of images; 0: not told
  std::string failed;        // why there is none of this; empty: there is
};

class RunLog {
 public:
  // Reads what is there. What is no line of a run is left out and told in notes(): the end of a
  // line that was being written when the program was killed, and whatever else is in the way.
  explicit RunLog(const std::string& out);

  const FinishedRun* find(const std::string& id) const;
  std::size_t size() const { return runs_.size(); }
  const std::vector<std::string>& notes() const { return notes_; }

  // Adds a line and flushes it to disk. Error "<path>: ..." when it cannot be written whole; then
  // nothing of it stays.
  void add(const PlannedRun& run, const FinishedRun& result);

 private:
  std::string path_;
  std::map<std::string, FinishedRun> runs_;
  std::vector<std::string> notes_;
  std::int64_t good_bytes_ = 0;  // up to the end of the last whole line
};

// The result that `lipgrad train --json` wrote for one run. Error "<path>: ..." for anything else.
FinishedRun read_result(const std::string& path);

}  // namespace lipgrad::cli
