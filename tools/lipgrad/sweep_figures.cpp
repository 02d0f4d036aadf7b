#include "lipgrad/sweep_figures.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <span>

#include <fmt/format.h>

#include <lipgrad/core/file.h>

#include "lipgrad/chart.h"
#include "lipgrad/sweep_rates.h"

namespace lipgrad::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Texts = std::vector<std::string>;

double as_number(const std::string& text) {
  double value = NAN;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : NAN;
}

// The axes of a configuration that are not named, and not averaged over.
std::string describe_but(const Grid& grid, const Point& point, Texts without) {
  without.insert(without.end(), repeat_axes().begin(), repeat_axes().end());
  return describe(grid, point.at, without);
}

// Each distinct value once, in the order of the first ones.
std::size_t place(Texts& values, const std::string& value) {
  const auto found = std::find(values.begin(), values.end(), value);
  if (found != values.end()) return static_cast<std::size_t>(found - values.begin());
  values.push_back(value);
  return values.size() - 1;
}

// Score against depth: a chart for each data set and missing rate, a line for each other choice. Of
// points that differ in what is chosen on validation the best one there counts, at each depth.
std::string depth_figure(const SweepResults& results) {
  const Grid& grid = *results.grid;
  const Axis* depths = grid.find("layers");
  if (!depths || depths->choices.size() < 2) return {};
  Texts elsewhere{"layers", "data", "missing"}, chosen_axes;
  for (const std::string& name : grid.choose)
    if (name != "layers") {
      elsewhere.push_back(name);
      chosen_axes.push_back(name);
    }
  std::map<std::string, std::vector<const Point*>> candidates;
  for (const Point& point : results.points)
    candidates[describe_but(grid, point, chosen_axes)].push_back(&point);
  Texts panels, names;
  struct Value {
    std::size_t panel, name;
    double layers;
    const Point* point;
  };
  std::vector<Value> values;
  for (const Point& point : results.points) {
    const auto& same = candidates[describe_but(grid, point, chosen_axes)];
    std::vector<ValidationSummary> valid;
    for (const Point* other : same) valid.push_back(other->valid);
    const std::size_t best = choose(valid);
    const auto labels = labels_of(grid, point.at);
    const double layers = as_number(labels.at("layers"));
    std::string panel;
    for (const char* axis : {"data", "missing"})
      if (const auto found = labels.find(axis); found != labels.end())
        panel += (panel.empty() ? "" : ", ") + found->second +
                 (axis == std::string("missing") ? " % missing" : "");
    const std::size_t p = place(panels, panel),
                      n = place(names, describe_but(grid, point, elsewhere));
    if (best < same.size() && same[best] == &point && std::isfinite(layers))
      values.push_back({p, n, layers, &point});
  }
  if (values.empty()) return {};
  std::stable_sort(values.begin(), values.end(),
                   [](const Value& a, const Value& b) { return a.layers < b.layers; });
  std::vector<LineChart> charts;
  for (std::size_t p = 0; p < panels.size(); ++p) {
    LineChart chart{panels[p], "attention layers", "test " + score_title(results) + " (%)", {}};
    for (const bool reference : {false, true})
      for (std::size_t n = 0; n < names.size(); ++n) {
        Series series{
            names[n].empty() ? "ours" : names[n], {}, {}, {}, static_cast<int>(n), reference};
        if (reference) series.label += ", published";
        for (const Value& value : values) {
          if (value.panel != p || value.name != n) continue;
          const auto theirs = published(results.name, labels_of(grid, value.point->at));
          // Of a table's best depths there is no curve.
          if (reference && (!theirs || theirs->layers)) continue;
          series.x.push_back(value.layers);
          series.y.push_back(reference ? theirs->mean : 100 * value.point->test);
          if (!reference) series.error.push_back(100 * value.point->test_deviation);
        }
        if (!series.x.empty()) chart.series.push_back(std::move(series));
      }
    for (const Choice& choice : depths->choices)
      if (const double layers = as_number(choice.label); std::isfinite(layers))
        chart.x_ticks.push_back(layers);
    charts.push_back(std::move(chart));
  }
  return line_charts(results.layout->title, charts);
}

// What a run's metrics.jsonl says of its epochs.
struct Curves {
  std::vector<double> epochs, train;          // training score
  std::vector<double> gradient_epochs;        // those that logged gradients
  std::map<int, std::vector<double>> layers;  // from 1: norm of the layer's gradient then
};

// "gradient_norm/conv.7.lin.weight" is of layer 8; 0 for what belongs to no layer.
int layer_of(const std::string& name) {
  const std::size_t begin = name.find('.');
  if (begin == std::string::npos) return 0;
  int layer = 0;
  const char* end = name.data() + name.size();
  const auto [after, error] = std::from_chars(name.data() + begin + 1, end, layer);
  const bool is_conv = name.compare(0, begin, "gradient_norm/conv") == 0;
  return error == std::errc() && is_conv && layer >= 0 && layer < 100000 ? layer + 1 : 0;
}

// JSON has no infinities: the log writes words for them.
double value_of(const Json& json) {
  if (json.is_number()) return json.get<double>();
  if (json.is_string() && json.get<std::string>() == "Infinity") return INFINITY;
  return NAN;
}

Curves read_curves(const fs::path& path) {
  Curves curves;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const Json json = Json::parse(line, nullptr, false);
    if (!json.is_object() || !json.contains("step")) break;
    const double epoch = value_of(json["step"]);
    std::map<int, double> squares;
    for (const auto& [name, value] : json.items()) {
      if (name.starts_with("train_") && name != "train_loss") {
        curves.epochs.push_back(epoch);
        curves.train.push_back(value_of(value));
      } else if (name.starts_with("gradient_norm/")) {
        if (const int layer = layer_of(name); layer > 0) {
          const double norm = value_of(value);
          squares[layer] += norm * norm;
        }
      }
    }
    if (squares.empty()) continue;
    curves.gradient_epochs.push_back(epoch);
    for (const auto& [layer, square] : squares) {
      auto& norms = curves.layers[layer];
      norms.resize(curves.gradient_epochs.size() - 1, NAN);
      norms.push_back(std::sqrt(square));
    }
  }
  return curves;
}

// Of the first seed's run.
Curves curves_of(const SweepResults& results, const Point& point, const std::string& out) {
  const PlannedRun& run = (*results.runs)[point.runs.front()];
  return read_curves(fs::path(out) / "runs" / run.id / "metrics.jsonl");
}

// The depth that the paper's heat maps are of, or else the deepest.
std::string shown_depth(const Grid& grid) {
  const Axis* depths = grid.find("layers");
  if (!depths) return {};
  std::string deepest = depths->choices.front().label;
  for (const Choice& choice : depths->choices) {
    if (choice.label == "20") return choice.label;
    if (as_number(choice.label) > as_number(deepest)) deepest = choice.label;
  }
  return deepest;
}

std::string gradients_figure(const SweepResults& results, const std::string& out) {
  constexpr double last_epoch = 100;  // as in the paper
  const Grid& grid = *results.grid;
  const std::string depth = shown_depth(grid);
  std::vector<HeatMap> maps;
  for (const Point& point : results.points) {
    const auto labels = labels_of(grid, point.at);
    if (const auto layers = labels.find("layers");
        layers == labels.end() || layers->second != depth)
      continue;
    const Curves curves = curves_of(results, point, out);
    HeatMap map{describe_but(grid, point, {"layers"}), "epoch", "attention layer", {}, {}, {}};
    for (const double epoch : curves.gradient_epochs)
      if (epoch <= last_epoch) map.x.push_back(epoch);
    for (const auto& [layer, norms] : curves.layers) {
      map.y.push_back(layer);
      map.values.emplace_back(norms.begin(), norms.begin() + static_cast<std::ptrdiff_t>(std::min(
                                                                 norms.size(), map.x.size())));
    }
    if (!map.x.empty()) maps.push_back(std::move(map));
  }
  if (maps.empty()) return {};
  return heat_maps(fmt::format("Norm of each layer's gradient, {} layers", depth),
                   "norm of the gradient", maps);
}

std::string training_figure(const SweepResults& results, const std::string& out) {
  const Grid& grid = *results.grid;
  Texts panels;
  std::vector<LineChart> charts;
  for (const Point& point : results.points) {
    const Curves curves = curves_of(results, point, out);
    if (curves.epochs.empty()) continue;
    const std::size_t p = place(panels, describe_but(grid, point, {"layers"}));
    if (p == charts.size())
      charts.push_back({panels[p],
                        "epoch",
                        "training " + score_title(results) + " (%)",
                        {},
                        std::pair{0.0, 100.0},
                        {},
                        false});
    const auto labels = labels_of(grid, point.at);
    const std::string layers = labels.contains("layers") ? labels.at("layers") : "";
    const Axis* depths = grid.find("layers");
    int style = 0;
    if (depths)
      for (std::size_t i = 0; i < depths->choices.size(); ++i)
        if (depths->choices[i].label == layers) style = static_cast<int>(i);
    Series series{layers + " layers", curves.epochs, curves.train, {}, style};
    for (double& value : series.y) value *= 100;
    charts[p].series.push_back(std::move(series));
  }
  if (charts.empty()) return {};
  return line_charts("Training " + score_title(results) + " against epoch, by depth", charts);
}

std::string ablation_figure(const SweepResults& results) {
  const Grid& grid = *results.grid;
  const Texts out_of_columns{method_axis, "attention-norm"};
  Texts rows, columns, norms;
  std::vector<std::vector<std::vector<double>>> values;  // of norm, row, column
  for (const Point& point : results.points) {
    const auto labels = labels_of(grid, point.at);
    const auto label = [&](const char* axis) {
      return labels.contains(axis) ? labels.at(axis) : std::string();
    };
    const std::size_t n = place(norms, label("attention-norm")),
                      r = place(rows, label(method_axis)),
                      c = place(columns, describe_but(grid, point, out_of_columns));
    values.resize(norms.size());
    for (auto& of_norm : values) {
      of_norm.resize(rows.size());
      for (auto& line : of_norm) line.resize(columns.size(), NAN);
    }
    values[n][r][c] = 100 * point.test;
  }
  if (rows.empty() || results.finished() == 0) return {};
  std::vector<NumberGrid> grids;
  for (std::size_t n = 0; n < norms.size(); ++n)
    grids.push_back({"attention norm: " + norms[n], columns, values[n], false});
  const auto none = std::find(norms.begin(), norms.end(), "none");
  const auto with = std::find(norms.begin(), norms.end(), "lipschitz");
  if (none != norms.end() && with != norms.end()) {
    NumberGrid difference{"gain from LipschitzNorm (points)", columns, {}, true};
    difference.values = values[static_cast<std::size_t>(with - norms.begin())];
    for (std::size_t r = 0; r < rows.size(); ++r)
      for (std::size_t c = 0; c < columns.size(); ++c)
        difference.values[r][c] -= values[static_cast<std::size_t>(none - norms.begin())][r][c];
    grids.push_back(std::move(difference));
  }
  return number_grids(fmt::format("{}: test {} in %", results.layout->title, score_title(results)),
                      rows, grids);
}

}  // namespace

std::vector<std::string> write_figures(const SweepResults& results, const std::string& out) {
  Texts written;
  const auto write = [&](const char* name, const std::string& svg) {
    const std::string path = (fs::path(out) / name).string();
    std::error_code ignored;
    if (svg.empty()) {
      fs::remove(path, ignored);  // an older one would show other runs
      return;
    }
    write_file(path, std::as_bytes(std::span(svg.data(), svg.size())));
    written.push_back(name);
  };
  switch (results.layout->figure) {
    case SweepFigure::depth:
      write("depth.svg", depth_figure(results));
      break;
    case SweepFigure::gradients:
      write("gradients.svg", gradients_figure(results, out));
      write("training.svg", training_figure(results, out));
      break;
    case SweepFigure::ablation:
      write("ablation.svg", ablation_figure(results));
      break;
    case SweepFigure::rates:
      write("rates.svg", rates_figure(results));
      break;
  }
  return written;
}

}  // namespace lipgrad::cli
