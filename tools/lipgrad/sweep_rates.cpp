#include "lipgrad/sweep_rates.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lipgrad/chart.h"

namespace lipgrad::cli {
namespace {

using Json = nlohmann::json;
using Texts = std::vector<std::string>;

constexpr auto rate_axis = "lr", depth_axis = "depths", warmup_axis = "warmup-epochs";

bool repeats(const std::string& axis) {
  return std::find(repeat_axes().begin(), repeat_axes().end(), axis) != repeat_axes().end();
}

double number(const std::string& text) {
  double value = NAN;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

// A row's labels: what it is of the axes but the rate and, if asked, the method.
std::string title(const Grid& grid, const Texts& labels, bool method) {
  Texts parts;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const std::string& axis = grid.axes[i].name;
    if (labels[i].empty() || (axis == method_axis && !method)) continue;
    parts.push_back(axis == method_axis ? labels[i] : axis_text(axis, labels[i]));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

// "4", ">= 4" or "> 4" times as high; empty when nothing can be said.
std::string ratio(const HighestRate& over, const HighestRate& under) {
  const bool none = std::isnan(under.rate);
  if (std::isnan(over.rate) || (none && !(under.lowest > 0))) return "";
  const bool open = over.rate == over.highest, open_below = !none && under.rate == under.highest;
  if (open && open_below) return "";
  return fmt::format("{}{:.2g}",
                     none         ? "> "
                     : open       ? "≥ "
                     : open_below ? "≤ "
                                  : "",
                     over.rate / (none ? under.lowest : under.rate));
}

// The rows of the table: the rates of all methods, in the grid's order; null where there is none.
struct Row {
  std::string title;
  std::vector<const HighestRate*> methods;
};
std::vector<Row> rows_of(const Grid& grid, const std::vector<HighestRate>& rates, Texts& methods) {
  std::vector<Row> rows;
  for (const HighestRate& rate : rates) {
    std::string method = "rate";
    for (std::size_t i = 0; i < grid.axes.size(); ++i)
      if (grid.axes[i].name == method_axis) method = rate.labels[i];
    auto column = std::find(methods.begin(), methods.end(), method) - methods.begin();
    if (column == static_cast<std::ptrdiff_t>(methods.size())) methods.push_back(method);
    const std::string name = title(grid, rate.labels, false);
    auto row =
        std::find_if(rows.begin(), rows.end(), [&](const Row& r) { return r.title == name; });
    if (row == rows.end()) row = rows.insert(rows.end(), Row{name, {}});
    row->methods.resize(std::max(row->methods.size(), methods.size()), nullptr);
    row->methods[static_cast<std::size_t>(column)] = &rate;
  }
  for (Row& row : rows) row.methods.resize(methods.size(), nullptr);
  return rows;
}

std::string ratio_of(const Row& row) {
  if (row.methods.size() < 2 || !row.methods.back() || !row.methods.front()) return "";
  return ratio(*row.methods.back(), *row.methods.front());
}

// A map for each configuration but for rate and depth, methods side by side.
std::vector<RateMap> maps_of(const SweepResults& results, const Fates& fates,
                             const std::vector<HighestRate>& rates, const Texts& columns,
                             std::size_t across) {
  const Grid& grid = *results.grid;
  std::vector<RateMap> maps;
  for (const HighestRate& rate : rates) {
    std::string row = "all";
    Texts rest = rate.labels;
    for (std::size_t i = 0; i < rest.size(); ++i)
      if (grid.axes[i].name == depth_axis) row = "depths " + std::exchange(rest[i], "");
    const std::string name = title(grid, rest, true);
    auto map =
        std::find_if(maps.begin(), maps.end(), [&](const RateMap& m) { return m.title == name; });
    if (map == maps.end()) map = maps.insert(maps.end(), RateMap{name, {}});
    RateRow line{row, std::vector<RateCell>(columns.size()), rate.text()};
    for (std::size_t p = 0; p < results.points.size(); ++p) {
      const Point& point = results.points[p];
      bool here = true;
      std::size_t column = 0;
      for (std::size_t i = 0; i < grid.axes.size(); ++i) {
        if (grid.axes[i].name == rate_axis)
          column = point.at[i];
        else if (!rate.labels[i].empty())
          here = here && grid.axes[i].choices[point.at[i]].label == rate.labels[i];
      }
      if (!here || columns.empty()) continue;
      RateCell& cell = line.cells[column];
      cell.value = point.test_last;
      cell.known = fates.of[p] != Fate::unknown;
      cell.diverged = fates.of[p] == Fate::diverged;
      cell.trains = fates.of[p] == Fate::trains;
      cell.highest = number(columns[column]) == rate.rate;
    }
    map->rows.push_back(std::move(line));
  }
  if (maps.size() % across != 0) return maps;
  const std::size_t down = maps.size() / across;
  std::vector<RateMap> ordered;
  for (std::size_t i = 0; i < maps.size(); ++i)
    ordered.push_back(maps[i % across * down + i / across]);
  return ordered;
}

std::size_t count_of(const Grid& grid, const char* axis) {
  const Axis* found = grid.find(axis);
  return found ? found->choices.size() : 1;
}

Texts rate_labels(const Grid& grid) {
  Texts labels;
  if (const Axis* axis = grid.find(rate_axis))
    for (const Choice& choice : axis->choices) labels.push_back(choice.label);
  return labels;
}

}  // namespace

Fates fates_of(const SweepResults& results) {
  Fates fates;
  for (const Point& point : results.points) {
    for (const std::size_t i : point.runs)
      if (const FinishedRun* run = results.log->find((*results.runs)[i].id);
          run && run->classes > 0)
        fates.chance = 1.0 / static_cast<double>(run->classes);
    if (!(point.test_last <= fates.best)) fates.best = std::fmax(fates.best, point.test_last);
  }
  fates.threshold = (fates.chance + fates.best) / 2;
  for (const Point& point : results.points) {
    Fate fate = Fate::unknown;
    if (point.valid.failed > 0) {
      fate = Fate::diverged;
    } else if (point.valid.runs > 0) {
      fate = Fate::trains;
      for (const std::size_t i : point.runs)
        if (const FinishedRun* run = results.log->find((*results.runs)[i].id);
            run && !(run->test_last >= fates.threshold))
          fate = Fate::untrained;
    }
    fates.of.push_back(fate);
  }
  return fates;
}

std::string explain(const Fates& fates) {
  if (std::isnan(fates.threshold)) return "No run has come to an end with a finite loss.";
  return fmt::format(
      "A configuration trains when the loss of each of its runs stays finite and test accuracy at "
      "the end is at least {} in each: halfway from guessing ({}) to the best configuration of all "
      "({}). It diverged when a loss or a weight was not finite; that run ended there.",
      percent(fates.threshold), percent(fates.chance), percent(fates.best));
}

std::string HighestRate::text() const {
  if (std::isnan(rate)) return "none";
  return fmt::format("{}{:g}", rate == highest ? "≥ " : "", rate);
}

std::vector<HighestRate> highest_rates(const SweepResults& results, const Fates& fates) {
  const Grid& grid = *results.grid;
  std::vector<HighestRate> all;
  std::map<Texts, std::size_t> known;
  for (std::size_t p = 0; p < results.points.size(); ++p) {
    if (fates.of[p] == Fate::unknown) continue;
    const Point& point = results.points[p];
    Texts labels;
    for (std::size_t i = 0; i < grid.axes.size(); ++i) {
      const Axis& axis = grid.axes[i];
      labels.push_back(
          axis.name == rate_axis || repeats(axis.name) ? "" : axis.choices[point.at[i]].label);
    }
    const auto [at, added] = known.try_emplace(labels, all.size());
    if (added) all.push_back({labels});
    HighestRate& rate = all[at->second];
    const double now = number(labels_of(grid, point.at).at(rate_axis));
    rate.lowest = std::fmin(rate.lowest, now);
    rate.highest = std::fmax(rate.highest, now);
    if (fates.of[p] == Fate::trains) rate.rate = std::fmax(rate.rate, now);
  }
  return all;
}

std::string rates_markdown(const SweepResults& results) {
  const Grid& grid = *results.grid;
  const Fates fates = fates_of(results);
  const std::vector<HighestRate> rates = highest_rates(results, fates);
  std::string text = "\n" + explain(fates) + "\n";
  if (rates.empty()) return text;
  const auto line = [](const Texts& cells) {
    return fmt::format("| {} |\n", fmt::join(cells, " | "));
  };
  const auto heading = [&](const Texts& cells) {
    std::string rule;
    for (std::size_t i = 0; i < cells.size(); ++i) rule += "|---";
    return line(cells) + rule + "|\n";
  };
  const Texts columns = rate_labels(grid);
  for (const RateMap& map : maps_of(results, fates, rates, columns, count_of(grid, method_axis))) {
    text += fmt::format("\n## {}\n\n", map.title);
    Texts header{"learning rate"};
    header.insert(header.end(), columns.begin(), columns.end());
    header.push_back("highest that trains");
    text += heading(header);
    for (const RateRow& row : map.rows) {
      Texts cells{row.label};
      for (const RateCell& cell : row.cells) {
        const std::string number = fmt::format("{:.1f}", 100 * cell.value);
        cells.push_back(!cell.known     ? "–"
                        : cell.diverged ? "diverged"
                        : cell.highest  ? "**" + number + "**"
                        : cell.trains   ? number
                                        : number + " untrained");
      }
      cells.push_back(row.end);
      text += line(cells);
    }
  }
  Texts methods;
  const std::vector<Row> rows = rows_of(grid, rates, methods);
  text += "\n## Highest learning rate that trains\n\n";
  Texts header{""};
  header.insert(header.end(), methods.begin(), methods.end());
  const bool two = methods.size() > 1;
  if (two) header.push_back(methods.back() + " / " + methods.front());
  text += heading(header);
  for (const Row& row : rows) {
    Texts cells{row.title};
    for (const HighestRate* rate : row.methods) cells.push_back(rate ? rate->text() : "–");
    if (two) cells.push_back(ratio_of(row).empty() ? "–" : ratio_of(row));
    text += line(cells);
  }
  return text;
}

std::string rates_csv(const SweepResults& results) {
  const Grid& grid = *results.grid;
  const Fates fates = fates_of(results);
  Texts header;
  for (const Axis& axis : grid.axes)
    if (!repeats(axis.name)) header.push_back(csv_cell(axis.name));
  std::string text =
      fmt::format("{},runs,diverged,test_last,fate,threshold\n", fmt::join(header, ","));
  for (std::size_t p = 0; p < results.points.size(); ++p) {
    const Point& point = results.points[p];
    if (fates.of[p] == Fate::unknown) continue;
    for (std::size_t i = 0; i < grid.axes.size(); ++i)
      if (!repeats(grid.axes[i].name))
        text += csv_cell(grid.axes[i].choices[point.at[i]].label) + ",";
    text += fmt::format("{},{},{},{},{}\n", point.valid.runs, point.valid.failed,
                        std::isnan(point.test_last) ? "" : fmt::format("{}", point.test_last),
                        name_of(fates.of[p]), fates.threshold);
  }
  return text;
}

Json rates_json(const SweepResults& results) {
  const Grid& grid = *results.grid;
  const Fates fates = fates_of(results);
  const std::vector<HighestRate> rates = highest_rates(results, fates);
  Json json = {{"chance", fates.chance},
               {"best", fates.best},
               {"threshold", fates.threshold},
               {"highest", Json::array()},
               {"ratios", Json::array()}};
  for (const HighestRate& rate : rates) {
    Json entry = {{"settings", Json::object()},
                  {"rate", rate.rate},
                  {"lowest_tried", rate.lowest},
                  {"highest_tried", rate.highest}};
    for (std::size_t i = 0; i < grid.axes.size(); ++i)
      if (!rate.labels[i].empty()) entry["settings"][grid.axes[i].name] = rate.labels[i];
    json["highest"].push_back(std::move(entry));
  }
  Texts methods;
  for (const Row& row : rows_of(grid, rates, methods))
    if (!ratio_of(row).empty())
      json["ratios"].push_back({{"of", row.title}, {"ratio", ratio_of(row)}});
  return json;
}

std::string rates_figure(const SweepResults& results) {
  const Fates fates = fates_of(results);
  const std::vector<HighestRate> rates = highest_rates(results, fates);
  if (rates.empty()) return {};
  const Texts columns = rate_labels(*results.grid);
  const std::size_t across = count_of(*results.grid, method_axis);
  const std::vector<RateMap> maps = maps_of(results, fates, rates, columns, across);
  std::vector<std::string> notes{
      "Number: test accuracy at the end in %. Framed: the highest rate that trains, of each depth; "
      "it stands at the row's end.",
      fmt::format("Crossed out: untrained, below {}. Dark: diverged, the loss was not finite.",
                  percent(fates.threshold))};
  Texts methods, ratios;
  for (const Row& row : rows_of(*results.grid, rates, methods))
    if (!ratio_of(row).empty()) ratios.push_back(row.title + ": " + ratio_of(row));
  if (!ratios.empty())
    notes.push_back(fmt::format("Highest rate, {} over {}:", methods.back(), methods.front()));
  notes.insert(notes.end(), ratios.begin(), ratios.end());
  return rate_maps(results.layout->title, columns, maps, across, fates.chance, fates.best, notes);
}

const char* name_of(Fate fate) {
  switch (fate) {
    case Fate::trains:
      return "trains";
    case Fate::untrained:
      return "untrained";
    case Fate::diverged:
      return "diverged";
    default:
      return "unknown";
  }
}

}  // namespace lipgrad::cli
