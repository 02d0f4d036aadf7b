#pragma once

#include <string>
#include <vector>

#include "lipgrad/sweep_presets.h"
#include "lipgrad/sweep_runs.h"

// What the runs of a sweep come to, and the files that say so.
namespace lipgrad::cli {

// A configuration: its runs differ in seed and split alone. Scores are means over the finished
// ones.
struct Point {
  std::vector<std::size_t> at;    // of each axis; 0 of repeat_axes()
  std::vector<std::size_t> runs;  // planned ones, by number
  ValidationSummary valid;
  std::string score = "score";
  std::vector<double> tests;
  double test = NAN, test_deviation = 0, test_last = NAN, train_last = NAN;
  // The best on validation among those that differ from it only in axes to choose from.
  bool chosen = false;
};

struct SweepResults {
  std::string name;  // the preset's, or "sweep"
  const Grid* grid;
  const Layout* layout;
  const std::vector<PlannedRun>* runs;
  const RunLog* log;
  std::vector<Point> points;  // in the grid's order

  std::size_t finished() const;
};
SweepResults summarize(const std::string& name, const Grid& grid, const Layout& layout,
                       const std::vector<PlannedRun>& runs, const RunLog& log);

// The labels of a configuration by axis, and the settings that all runs share.
std::map<std::string, std::string> labels_of(const Grid& grid, const std::vector<std::size_t>& at);

// The points of one table: rows by columns, with the labels of both and of the whole.
struct Section {
  std::string title;
  std::vector<std::string> rows, columns;
  std::vector<std::vector<const Point*>> cells;  // null where nothing is finished
};
std::vector<Section> sections_of(const SweepResults& results);

// A choice of an axis, for reading: "5 layers", "dropout 0.2".
std::string axis_text(const std::string& axis, const std::string& value);
// A cell of a CSV file, quoted where it must be.
std::string csv_cell(const std::string& text);

// What the scores are, for reading: "accuracy", "roc auc".
std::string score_title(const SweepResults& results);

// Markdown: notes and tables of mean +- std in percent, the best of each column bold, published
// numbers below ours.
std::string table_markdown(const SweepResults& results);
// A line a finished run, without times.
std::string runs_csv(const SweepResults& results);
nlohmann::json to_json(const SweepResults& results);

// Writes results.csv, results.json, table.md, the figures and, where the layout asks for them,
// rates.csv into the directory; returns the names of what not every sweep has.
std::vector<std::string> write_report(const SweepResults& results, const std::string& out);

}  // namespace lipgrad::cli
