#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lipgrad/sweep_grid.h"

// Grids that have names, with how their results are shown.
namespace lipgrad::cli {

enum class SweepFigure { depth, gradients, ablation, rates };

// What is shown of a grid. Axes that are neither sections, columns, chosen on validation nor the
// seed make the rows.
struct Layout {
  std::string title = "Sweep";
  std::vector<std::string> sections;  // axes: a table for each of their values
  std::vector<std::string> columns;   // axes
  std::vector<std::string> notes;     // protocol, deviations
  SweepFigure figure = SweepFigure::depth;
};

struct SweepPreset {
  Grid grid;
  Layout layout;
};

// {"paper-table1", "the paper's Table 1: ..."}
std::vector<std::pair<std::string, std::string>> sweep_presets();

// protocol: "paper", as section 5 of the paper and the authors' code have it, or "contrast", which
// trains at depth. quick: thinned to less than half an hour on two cores. Methods whose model
// lipgrad lacks are left out and told in the notes. Error for an unknown name.
SweepPreset sweep_preset(const std::string& name, const std::string& protocol, bool quick);

// A published result: percent, and how many layers the best model had, where that was chosen.
struct Published {
  double mean = 0;
  std::optional<double> deviation = {};
  std::optional<int> layers = {};
};
// Of a method on a data set, {"method": "GAT", "data": "cora", "missing": "0"} (Table 1) or with
// "layers" (Figure 5, read off the figure, +- 0.5 points). `sweep` is the preset's name.
std::optional<Published> published(const std::string& sweep,
                                   const std::map<std::string, std::string>& labels);

}  // namespace lipgrad::cli
