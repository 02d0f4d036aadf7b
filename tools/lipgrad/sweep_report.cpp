#include "lipgrad/sweep_report.h"

#include <algorithm>
#include <filesystem>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lipgrad/core/file.h>

#include "lipgrad/results.h"
#include "lipgrad/sweep_figures.h"
#include "lipgrad/sweep_rates.h"

namespace lipgrad::cli {
namespace {

using Json = nlohmann::json;
using Texts = std::vector<std::string>;

bool among(const Texts& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The choices of some axes, for reading: "cora, 100 % missing, 5 layers".
std::string label(const Grid& grid, const std::vector<std::size_t>& at, const Texts& axes) {
  Texts parts;
  for (std::size_t i = 0; i < at.size(); ++i) {
    const Axis& axis = grid.axes[i];
    if (!among(axes, axis.name)) continue;
    parts.push_back(axis_text(axis.name, axis.choices[at[i]].label));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

// The same entries where the axes are among those named, 0 elsewhere: a key to group by.
std::vector<std::size_t> only(const Grid& grid, std::vector<std::size_t> at, const Texts& axes) {
  for (std::size_t i = 0; i < at.size(); ++i)
    if (!among(axes, grid.axes[i].name)) at[i] = 0;
  return at;
}

Texts row_axes(const SweepResults& results) {
  Texts axes;
  for (const Axis& axis : results.grid->axes)
    if (!among(repeat_axes(), axis.name) && !among(results.layout->sections, axis.name) &&
        !among(results.layout->columns, axis.name) && !among(results.grid->choose, axis.name))
      axes.push_back(axis.name);
  return axes;
}

void mark_chosen(const Grid& grid, std::vector<Point>& points) {
  Texts kept;
  for (const Axis& axis : grid.axes)
    if (!among(grid.choose, axis.name)) kept.push_back(axis.name);
  std::map<std::vector<std::size_t>, std::vector<std::size_t>> groups;
  for (std::size_t i = 0; i < points.size(); ++i)
    groups[only(grid, points[i].at, kept)].push_back(i);
  for (const auto& [key, members] : groups) {
    std::vector<ValidationSummary> candidates;
    for (const std::size_t i : members) candidates.push_back(points[i].valid);
    // Where there is nothing to choose, nothing need be known of validation.
    if (members.size() == 1)
      points[members[0]].chosen = candidates[0].runs > candidates[0].failed;
    else if (const std::size_t best = choose(candidates); best < members.size())
      points[members[best]].chosen = true;
  }
}

std::string mean_text(double mean, std::optional<double> deviation) {
  std::string text = fmt::format("{:.1f}", mean);
  if (deviation) text += fmt::format(" ± {:.1f}", *deviation);
  return text;
}

// "83.1 ± 0.5 (5 layers)"
std::string cell_text(const SweepResults& results, const Point& point, bool bold) {
  const std::size_t all = point.runs.size(), done = point.tests.size();
  std::string text = mean_text(100 * point.test,
                               done > 1 ? std::optional(100 * point.test_deviation) : std::nullopt);
  if (bold) text = fmt::format("**{}**", text);
  if (!results.grid->choose.empty())
    text += " (" + label(*results.grid, point.at, results.grid->choose) + ")";
  if (point.valid.failed > 0) text += fmt::format(" [{} of {} diverged]", point.valid.failed, all);
  if (done + point.valid.failed < all)
    text += fmt::format(" [{} of {} runs]", done + point.valid.failed, all);
  return text;
}

std::string published_text(const Published& p) {
  std::string text = mean_text(p.mean, p.deviation);
  if (p.layers) text += fmt::format(" ({} layers)", *p.layers);
  return text;
}

// A cell of a Markdown table.
std::string cell(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '|') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::string row(const Texts& cells) {
  std::string line = "|";
  for (const std::string& text : cells) line += fmt::format(" {} |", cell(text));
  return line + "\n";
}

void write_text(const std::string& path, const std::string& text) {
  write_file(path, std::as_bytes(std::span(text.data(), text.size())));
}

}  // namespace

std::string axis_text(const std::string& axis, const std::string& value) {
  if (axis == method_axis || axis == "data") return value;
  if (axis == "layers") return value + " layers";
  if (axis == "missing") return value + " % missing";
  if (axis == "warmup-epochs")
    return value == "0" ? "no warm-up" : "warm-up of " + value + " epochs";
  return axis + " " + value;
}

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + "\"";
}

std::size_t SweepResults::finished() const {
  std::size_t count = 0;
  for (const PlannedRun& run : *runs) count += log->find(run.id) != nullptr;
  return count;
}

SweepResults summarize(const std::string& name, const Grid& grid, const Layout& layout,
                       const std::vector<PlannedRun>& runs, const RunLog& log) {
  SweepResults results{name, &grid, &layout, &runs, &log, {}};
  std::map<std::vector<std::size_t>, std::size_t> found;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    std::vector<std::size_t> at = runs[i].at;
    for (std::size_t k = 0; k < at.size(); ++k)
      if (among(repeat_axes(), grid.axes[k].name)) at[k] = 0;
    const auto [place, added] = found.try_emplace(at, results.points.size());
    if (added) results.points.emplace_back().at = at;
    results.points[place->second].runs.push_back(i);
  }
  for (Point& point : results.points) {
    std::vector<Validation> valid;
    std::vector<double> last, train;
    std::size_t failed = 0;
    for (const std::size_t i : point.runs) {
      const FinishedRun* run = log.find(runs[i].id);
      if (!run) continue;
      if (!run->failed.empty()) {
        ++failed;
        continue;
      }
      point.score = run->score;
      valid.push_back(run->valid);
      point.tests.push_back(run->test);
      last.push_back(run->test_last);
      train.push_back(run->train_last);
    }
    point.valid = summarize(valid, failed);
    if (valid.empty()) continue;
    std::tie(point.test, point.test_deviation) = mean_and_std(point.tests);
    point.test_last = mean_and_std(last).first;
    point.train_last = mean_and_std(train).first;
  }
  mark_chosen(grid, results.points);
  return results;
}

std::map<std::string, std::string> labels_of(const Grid& grid, const std::vector<std::size_t>& at) {
  std::map<std::string, std::string> labels;
  for (const auto& [name, value] : grid.common) labels[name] = value;
  for (std::size_t i = 0; i < at.size(); ++i)
    labels[grid.axes[i].name] = grid.axes[i].choices[at[i]].label;
  return labels;
}

std::vector<Section> sections_of(const SweepResults& results) {
  const Grid& grid = *results.grid;
  const Texts rows = row_axes(results);
  std::vector<Section> sections;
  std::map<std::vector<std::size_t>, std::size_t> section_at;
  std::vector<std::map<std::vector<std::size_t>, std::size_t>> row_at, column_at;
  const auto place = [](auto& known, const std::vector<std::size_t>& key) {
    return known.try_emplace(key, known.size()).first->second;
  };
  for (const Point& point : results.points) {
    const std::size_t s = place(section_at, only(grid, point.at, results.layout->sections));
    if (s == sections.size()) {
      sections.push_back({label(grid, point.at, results.layout->sections), {}, {}, {}});
      row_at.emplace_back();
      column_at.emplace_back();
    }
    Section& section = sections[s];
    const std::size_t r = place(row_at[s], only(grid, point.at, rows));
    const std::size_t c = place(column_at[s], only(grid, point.at, results.layout->columns));
    if (r == section.rows.size()) section.rows.push_back(label(grid, point.at, rows));
    if (c == section.columns.size())
      section.columns.push_back(label(grid, point.at, results.layout->columns));
    section.cells.resize(section.rows.size());
    for (auto& line : section.cells) line.resize(section.columns.size(), nullptr);
    if (point.chosen) section.cells[r][c] = &point;
  }
  return sections;
}

std::string score_title(const SweepResults& results) {
  Texts names;
  for (const Point& point : results.points)
    if (!point.tests.empty() && !among(names, point.score)) names.push_back(point.score);
  std::string title = names.empty() ? "score" : fmt::format("{}", fmt::join(names, " or "));
  std::replace(title.begin(), title.end(), '_', ' ');
  return title;
}

std::string table_markdown(const SweepResults& results) {
  std::string text = "# " + results.layout->title + "\n\n";
  const std::string score = score_title(results);
  Texts repeats;
  for (const Axis& axis : results.grid->axes)
    if (among(repeat_axes(), axis.name) && axis.choices.size() > 1)
      repeats.push_back(fmt::format("{} {}s", axis.choices.size(), axis.name));
  text += fmt::format("Test {} in %, {}.", score,
                      repeats.empty() ? "one seed"
                                      : fmt::format("mean ± sample standard deviation over {}",
                                                    fmt::join(repeats, " times ")));
  if (!results.grid->choose.empty())
    text += fmt::format(" Chosen on validation, in parentheses: {}.",
                        fmt::join(results.grid->choose, ", "));
  if (const std::size_t done = results.finished(); done < results.runs->size())
    text += fmt::format(" Not finished: {} of {} runs.", done, results.runs->size());
  text += "\n";
  for (const std::string& note : results.layout->notes) text += "\n- " + note;
  if (!results.layout->notes.empty()) text += "\n";
  if (results.layout->figure == SweepFigure::rates) return text + rates_markdown(results);
  for (const Section& section : sections_of(results)) {
    text += "\n";
    if (!section.title.empty()) text += fmt::format("## {}\n\n", section.title);
    Texts header{""};
    for (const std::string& column : section.columns)
      header.push_back(column.empty() ? "test " + score : column);
    text += row(header) + "|---" + std::string();
    for (std::size_t c = 0; c < section.columns.size(); ++c) text += "|---";
    text += "|\n";
    std::vector<double> best(section.columns.size(), -1);
    for (const auto& line : section.cells)
      for (std::size_t c = 0; c < line.size(); ++c)
        if (line[c]) best[c] = std::max(best[c], line[c]->test);
    for (std::size_t r = 0; r < section.rows.size(); ++r) {
      Texts ours{section.rows[r].empty() ? "ours" : section.rows[r]}, theirs{"*published*"};
      bool any = false;
      for (std::size_t c = 0; c < section.columns.size(); ++c) {
        const Point* point = section.cells[r][c];
        ours.push_back(
            point ? cell_text(results, *point, section.rows.size() > 1 && point->test == best[c])
                  : "–");
        const auto value =
            point ? published(results.name, labels_of(*results.grid, point->at)) : std::nullopt;
        any = any || value;
        theirs.push_back(value ? fmt::format("*{}*", published_text(*value)) : "");
      }
      text += row(ours);
      if (any) text += row(theirs);
    }
  }
  return text;
}

std::string runs_csv(const SweepResults& results) {
  const Grid& grid = *results.grid;
  Texts header;
  for (const Axis& axis : grid.axes) header.push_back(csv_cell(axis.name));
  std::string text = fmt::format(
      "{},id,chosen,score,epochs,best_epoch,valid,valid_loss,test,test_last,train_last,failed\n",
      fmt::join(header, ","));
  for (const Point& point : results.points) {
    for (const std::size_t i : point.runs) {
      const PlannedRun& planned = (*results.runs)[i];
      const FinishedRun* run = results.log->find(planned.id);
      if (!run) continue;
      Texts cells;
      for (std::size_t k = 0; k < grid.axes.size(); ++k)
        cells.push_back(csv_cell(grid.axes[k].choices[planned.at[k]].label));
      cells.push_back(planned.id);
      cells.push_back(point.chosen ? "1" : "0");
      if (run->failed.empty())
        cells.push_back(fmt::format("{},{},{},{},{},{},{},{},", run->score, run->epochs,
                                    run->best_epoch, run->valid.score, run->valid.loss, run->test,
                                    run->test_last, run->train_last));
      else
        cells.push_back(",,,,,,,," + csv_cell(run->failed));
      text += fmt::format("{}\n", fmt::join(cells, ","));
    }
  }
  return text;
}

Json to_json(const SweepResults& results) {
  const Grid& grid = *results.grid;
  Json points = Json::array();
  for (const Point& point : results.points) {
    if (point.valid.runs == 0) continue;
    const auto labels = labels_of(grid, point.at);
    Json entry = {{"settings", Json::object()},
                  {"chosen", point.chosen},
                  {"runs", point.valid.runs},
                  {"failed", point.valid.failed},
                  {"score", point.score},
                  {"valid_mean", point.valid.score},
                  {"valid_std", point.valid.deviation},
                  {"valid_loss_mean", point.valid.loss},
                  {"test_mean", point.test},
                  {"test_std", point.test_deviation},
                  {"test_last_mean", point.test_last},
                  {"train_last_mean", point.train_last}};
    for (std::size_t k = 0; k < grid.axes.size(); ++k)
      if (!among(repeat_axes(), grid.axes[k].name))
        entry["settings"][grid.axes[k].name] = grid.axes[k].choices[point.at[k]].label;
    if (const auto value = published(results.name, labels)) {
      entry["published_mean"] = value->mean / 100;
      if (value->deviation) entry["published_std"] = *value->deviation / 100;
      if (value->layers) entry["published_layers"] = *value->layers;
    }
    points.push_back(std::move(entry));
  }
  Json json = {{"sweep", results.name},          {"title", results.layout->title},
               {"notes", results.layout->notes}, {"choose", grid.choose},
               {"runs", results.runs->size()},   {"finished", results.finished()},
               {"configurations", points}};
  if (results.layout->figure == SweepFigure::rates) json["rates"] = rates_json(results);
  return json;
}

std::vector<std::string> write_report(const SweepResults& results, const std::string& out) {
  const auto in = [&](const char* name) { return (std::filesystem::path(out) / name).string(); };
  write_text(in("results.csv"), runs_csv(results));
  write_json(in("results.json"), to_json(results));
  write_text(in("table.md"), table_markdown(results));
  Texts written = write_figures(results, out);
  if (results.layout->figure == SweepFigure::rates) {
    write_text(in("rates.csv"), rates_csv(results));
    written.insert(written.begin(), "rates.csv");
  }
  return written;
}

}  // namespace lipgrad::cli
