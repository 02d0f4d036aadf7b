#pragma once

#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

// Charts as SVG 1.1 that any viewer shows: light background, the Okabe-Ito colours, which
// colour-blind people tell apart, and a marker or a dash pattern to each, plain text. Equal input
// gives equal bytes.
namespace lipgrad::cli {

struct Series {
  std::string label;
  std::vector<double> x, y;        // NaN: a gap
  std::vector<double> error = {};  // half of each error bar; empty: none
  int style = 0;                   // which colour and marker
  bool reference = false;          // dashed, thin, with hollow markers: what others published
};

struct LineChart {
  std::string title, x_title, y_title;
  std::vector<Series> series;
  std::optional<std::pair<double, double>> y_range = {};
  std::vector<double> x_ticks = {};  // empty: round numbers
  bool markers = true;               // else each style has its own dashes
};
// Side by side, with one legend at the right that has each label once.
std::string line_charts(const std::string& title, const std::vector<LineChart>& charts);

struct HeatMap {
  std::string title, x_title, y_title;
  std::vector<double> x, y;                 // of the columns and rows, ascending
  std::vector<std::vector<double>> values;  // of a row and column; NaN: none
};
// Side by side on one logarithmic scale, which a bar at the right shows; the first row is lowest.
// Values that are not above 0 are grey.
std::string heat_maps(const std::string& title, const std::string& value_title,
                      const std::vector<HeatMap>& maps);

struct NumberGrid {
  std::string title;
  std::vector<std::string> columns;         // a line of the heading for each part between ", "
  std::vector<std::vector<double>> values;  // of a row and column; NaN: none
  bool difference = false;                  // with signs, blue below 0, orange above
};
// Grids of numbers on colours, one below the other, that have the same rows and, but for
// differences, the same scale of colours; the first row is topmost.
std::string number_grids(const std::string& title, const std::vector<std::string>& rows,
                         const std::vector<NumberGrid>& grids);

struct RateCell {
  double value = NAN;  // a share
  bool known = false, trains = false, diverged = false, highest = false;
};
struct RateRow {
  std::string label;
  std::vector<RateCell> cells;
  std::string end;  // what stands behind it
};
struct RateMap {
  std::string title;
  std::vector<RateRow> rows;
};
// What became of training by learning rate (across) and something else (down): several maps,
// `across` of them side by side, on one scale of colours from low to high, with notes below.
std::string rate_maps(const std::string& title, const std::vector<std::string>& columns,
                      const std::vector<RateMap>& maps, std::size_t across, double low, double high,
                      const std::vector<std::string>& notes);

}  // namespace lipgrad::cli
