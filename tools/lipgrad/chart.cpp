#include "lipgrad/chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "lipgrad/svg.h"

namespace lipgrad::cli {
namespace {

// About `count` ticks at 1, 2 or 5 times a power of ten, from low to high.
std::vector<double> round_ticks(double low, double high, int count) {
  const double raw = (high - low) / count, power = std::pow(10, std::floor(std::log10(raw)));
  const double step = power * (raw < 1.5 * power   ? 1
                               : raw < 3.5 * power ? 2
                               : raw < 7.5 * power ? 5
                                                   : 10);
  std::vector<double> ticks;
  const double first = std::ceil(low / step - 1e-9);
  for (int i = 0; i < 1000 && (first + i) * step <= high + 1e-9 * step; ++i)
    ticks.push_back((first + i) * step);
  return ticks;
}

std::string tick_text(double value) {
  return fmt::format("{:.6g}", std::abs(value) < 1e-12 ? 0 : value);
}

// A range of values to pixels; from > to turns it round.
struct Axis2 {
  double low, high, from, to;
  double operator()(double value) const {
    return from + (value - low) / (high - low) * (to - from);
  }
};

std::pair<double, double> range_of(const std::vector<LineChart>& charts, bool of_x) {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const LineChart& chart : charts)
    for (const Series& s : chart.series)
      for (std::size_t i = 0; i < s.y.size(); ++i) {
        if (!std::isfinite(s.y[i])) continue;
        const double error =
            !of_x && i < s.error.size() && std::isfinite(s.error[i]) ? s.error[i] : 0;
        const double value = of_x ? s.x[i] : s.y[i];
        low = std::min(low, value - error);
        high = std::max(high, value + error);
      }
  if (!(low <= high)) return {0, 1};
  return low == high ? std::pair(low - 0.5, high + 0.5) : std::pair(low, high);
}

// Viridis at nine points; x from 0 to 1.
std::string sequential(double x) {
  constexpr std::array<std::array<int, 3>, 9> points{{{68, 1, 84},
                                                      {71, 44, 122},
                                                      {59, 81, 139},
                                                      {44, 113, 142},
                                                      {33, 144, 141},
                                                      {39, 173, 129},
                                                      {92, 200, 99},
                                                      {170, 220, 50},
                                                      {253, 231, 37}}};
  const double place = std::clamp(x, 0.0, 1.0) * 8;
  const auto i = std::min<std::size_t>(7, static_cast<std::size_t>(place));
  const double f = place - static_cast<double>(i);
  std::array<int, 3> c;
  for (std::size_t k = 0; k < 3; ++k)
    c[k] = static_cast<int>(std::lround((1 - f) * points[i][k] + f * points[i + 1][k]));
  return fmt::format("#{:02X}{:02X}{:02X}", c[0], c[1], c[2]);
}

// Blue, white, orange; x from -1 to 1.
std::string diverging(double x) {
  constexpr std::array<std::array<int, 3>, 2> ends{{{67, 147, 195}, {230, 130, 50}}};
  const auto& end = ends[x > 0];
  const double f = std::min(1.0, std::abs(x));
  return fmt::format("#{:02X}{:02X}{:02X}", std::lround(255 + f * (end[0] - 255)),
                     std::lround(255 + f * (end[1] - 255)), std::lround(255 + f * (end[2] - 255)));
}

constexpr double top = 64, bottom = 50, left = 62, gap = 24;

void title_of(Svg& svg, const std::string& title) {
  svg.text(14, 24, title, "start", 15, " font-weight=\"bold\"");
}

void draw_series(Svg& svg, const Series& s, const Axis2& x, const Axis2& y, bool markers) {
  const std::string colour = colours[static_cast<std::size_t>(s.style) % colours.size()];
  const std::string dash = s.reference ? "5 4"
                           : markers   ? ""
                                       : dashes[static_cast<std::size_t>(s.style) % dashes.size()];
  std::string d;
  bool open = false;
  for (std::size_t i = 0; i < s.y.size(); ++i) {
    if (!std::isfinite(s.y[i])) {
      open = false;
      continue;
    }
    d += fmt::format("{}{} {}", open ? " L" : d.empty() ? "M" : " M", at(x(s.x[i])), at(y(s.y[i])));
    open = true;
  }
  if (!d.empty()) svg.path(d, colour, s.reference ? 1.2 : 1.9, dash);
  for (std::size_t i = 0; i < s.y.size(); ++i) {
    if (!std::isfinite(s.y[i])) continue;
    const double px = x(s.x[i]);
    if (i < s.error.size() && std::isfinite(s.error[i]) && s.error[i] > 0) {
      const double a = y(s.y[i] - s.error[i]), b = y(s.y[i] + s.error[i]);
      svg.line(px, a, px, b, colour);
      svg.line(px - 3, a, px + 3, a, colour);
      svg.line(px - 3, b, px + 3, b, colour);
    }
    if (markers) svg.marker(px, y(s.y[i]), s.style, s.reference);
  }
}

}  // namespace

std::string line_charts(const std::string& title, const std::vector<LineChart>& charts) {
  constexpr double width = 430, height = 290;
  Svg svg;
  title_of(svg, title);
  double x0 = left;
  std::vector<std::pair<const Series*, bool>> legend;
  for (const LineChart& chart : charts) {
    const std::vector<LineChart> one{chart};
    auto [x_low, x_high] = range_of(one, true);
    auto [y_low, y_high] = chart.y_range.value_or(range_of(one, false));
    const double x_room = 0.03 * (x_high - x_low),
                 y_room = chart.y_range ? 0 : 0.05 * (y_high - y_low);
    const Axis2 x{x_low - x_room, x_high + x_room, x0, x0 + width};
    const Axis2 y{y_low - y_room, y_high + y_room, top + height, top};
    svg.text(x0 + width / 2, top - 12, chart.title, "middle", 13);
    for (const double tick : round_ticks(y.low, y.high, 6)) {
      svg.line(x0, y(tick), x0 + width, y(tick), faint);
      svg.text(x0 - 7, y(tick) + 4, tick_text(tick), "end", 12);
    }
    for (const double tick :
         chart.x_ticks.empty() ? round_ticks(x_low, x_high, 7) : chart.x_ticks) {
      svg.line(x(tick), top + height, x(tick), top + height + 5, ink);
      svg.text(x(tick), top + height + 19, tick_text(tick), "middle", 12);
    }
    svg.line(x0, top, x0, top + height, ink);
    svg.line(x0, top + height, x0 + width, top + height, ink);
    svg.text(x0 + width / 2, top + height + 40, chart.x_title, "middle", 13);
    svg.vertical_text(x0 - 44, top + height / 2, chart.y_title, 13);
    // Ours above what others published.
    for (const bool reference : {true, false})
      for (const Series& s : chart.series)
        if (s.reference == reference) draw_series(svg, s, x, y, chart.markers);
    for (const Series& s : chart.series)
      if (std::none_of(legend.begin(), legend.end(),
                       [&](const auto& entry) { return entry.first->label == s.label; }))
        legend.emplace_back(&s, chart.markers);
    x0 += width + left + gap;
  }
  x0 -= left + gap - 20;
  double y0 = top + 8, widest = 60;
  for (const auto& [s, markers] : legend) {
    widest = std::max(widest, text_width(s->label, 12));
    const Axis2 x{0, 1, x0, x0 + 32}, y{0, 1, y0, y0 - 1};
    draw_series(svg, {"", {0, 1}, {0, 0}, {}, s->style, s->reference}, x, y, false);
    if (markers) {
      svg.rect(x0 - 1, y0 - 2, 34, 4, "#FFFFFF");
      svg.path(fmt::format("M{} {} L{} {}", at(x0), at(y0), at(x0 + 32), at(y0)),
               colours[static_cast<std::size_t>(s->style) % colours.size()],
               s->reference ? 1.2 : 1.9, s->reference ? "5 4" : "");
      svg.marker(x0 + 16, y0, s->style, s->reference);
    }
    svg.text(x0 + 40, y0 + 4, s->label, "start", 12);
    y0 += 20;
  }
  return svg.str(std::max(x0 + 40 + widest + 14, 28 + text_width(title, 16.5)),
                 std::max(top + height + bottom, y0), title);
}

std::string heat_maps(const std::string& title, const std::string& value_title,
                      const std::vector<HeatMap>& maps) {
  constexpr double width = 380, height = 300;
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const HeatMap& map : maps)
    for (const auto& line : map.values)
      for (const double value : line)
        if (value > 0 && std::isfinite(value)) {
          low = std::min(low, std::log10(value));
          high = std::max(high, std::log10(value));
        }
  if (!(low <= high)) low = 0, high = 1;
  low = std::floor(low);
  high = std::max(low + 1, std::ceil(high));
  Svg svg;
  title_of(svg, title);
  double x0 = left;
  for (const HeatMap& map : maps) {
    const auto columns = static_cast<double>(map.x.size()),
               rows = static_cast<double>(map.y.size());
    svg.rect(x0, top, width, height, grey);
    for (std::size_t r = 0; r < map.values.size(); ++r) {
      const double y1 = top + height * (rows - static_cast<double>(r) - 1) / rows,
                   y2 = top + height * (rows - static_cast<double>(r)) / rows;
      // Neighbours of one colour are one rectangle.
      const auto colour = [&](std::size_t c) {
        const double value = c < map.values[r].size() ? map.values[r][c] : NAN;
        return value > 0 && std::isfinite(value)
                   ? sequential((std::log10(value) - low) / (high - low))
                   : std::string(grey);
      };
      for (std::size_t c = 0, end = 0; c < map.x.size(); c = end) {
        const std::string now = colour(c);
        for (end = c + 1; end < map.x.size() && colour(end) == now;) ++end;
        const double x1 = x0 + width * static_cast<double>(c) / columns,
                     x2 = x0 + width * static_cast<double>(end) / columns;
        if (now != grey) svg.rect(x1, y1, x2 - x1, y2 - y1, now, " shape-rendering=\"crispEdges\"");
      }
    }
    svg.text(x0 + width / 2, top - 12, map.title, "middle", 13);
    // Ticks at round values, in the middle of their row or column.
    const auto place = [](const std::vector<double>& values, double tick) {
      const auto found = std::find(values.begin(), values.end(), tick);
      return found == values.end() ? -1.0 : static_cast<double>(found - values.begin()) + 0.5;
    };
    if (!map.x.empty())
      for (const double tick : round_ticks(map.x.front(), map.x.back(), 6)) {
        const double c = place(map.x, tick);
        if (c < 0) continue;
        svg.line(x0 + width * c / columns, top + height, x0 + width * c / columns, top + height + 5,
                 ink);
        svg.text(x0 + width * c / columns, top + height + 19, tick_text(tick), "middle", 12);
      }
    if (!map.y.empty())
      for (const double tick : round_ticks(map.y.front(), map.y.back(), 10)) {
        const double r = place(map.y, tick);
        if (r < 0) continue;
        svg.line(x0 - 5, top + height * (1 - r / rows), x0, top + height * (1 - r / rows), ink);
        svg.text(x0 - 8, top + height * (1 - r / rows) + 4, tick_text(tick), "end", 12);
      }
    svg.text(x0 + width / 2, top + height + 40, map.x_title, "middle", 13);
    svg.vertical_text(x0 - 38, top + height / 2, map.y_title, 13);
    x0 += width + left;
  }
  x0 -= left - 24;
  constexpr int steps = 100;
  for (int i = 0; i < steps; ++i)
    svg.rect(x0, top + height * (steps - 1 - i) / steps, 18, height / steps + 0.3,
             sequential((i + 0.5) / steps), " shape-rendering=\"crispEdges\"");
  const int stride = std::max(1, static_cast<int>(std::ceil((high - low) / 10)));
  for (int k = static_cast<int>(low); k <= static_cast<int>(high); k += stride) {
    const double y = top + height * (1 - (k - low) / (high - low));
    svg.line(x0 + 18, y, x0 + 23, y, ink);
    svg.power_of_ten(x0 + 27, y + 4, k, 12);
  }
  svg.vertical_text(x0 + 72, top + height / 2, value_title, 13);
  return svg.str(std::max(x0 + 88, 28 + text_width(title, 16.5)), top + height + bottom, title);
}

std::string number_grids(const std::string& title, const std::vector<std::string>& rows,
                         const std::vector<NumberGrid>& grids) {
  constexpr double cell_width = 76, cell_height = 24, line_height = 14;
  double label = 0, low = std::numeric_limits<double>::infinity(), high = -low, largest = 0;
  for (const std::string& row : rows) label = std::max(label, text_width(row, 12));
  const auto parts = [](const std::string& text) {
    std::vector<std::string> list;
    for (std::size_t begin = 0; begin <= text.size();) {
      const std::size_t end = std::min(text.find(", ", begin), text.size());
      list.push_back(text.substr(begin, end - begin));
      begin = end + 2;
    }
    return list;
  };
  for (const NumberGrid& grid : grids)
    for (const auto& line : grid.values)
      for (const double value : line) {
        if (!std::isfinite(value)) continue;
        if (grid.difference) {
          largest = std::max(largest, std::abs(value));
        } else {
          low = std::min(low, value);
          high = std::max(high, value);
        }
      }
  const auto colour = [&](double value, bool difference) -> std::string {
    if (!std::isfinite(value)) return faint;
    if (difference) return diverging(largest > 0 ? value / largest : 0);
    // White to green, light enough for dark numbers.
    const double x = high > low ? (value - low) / (high - low) : 1;
    return fmt::format("#{:02X}{:02X}{:02X}", std::lround(255 - 155 * x), std::lround(255 - 65 * x),
                       std::lround(255 - 115 * x));
  };
  Svg svg;
  title_of(svg, title);
  const double x0 = 14 + label + 10;
  double y0 = 40, widest = 0;
  for (const NumberGrid& grid : grids) {
    const double width = cell_width * static_cast<double>(grid.columns.size());
    widest = std::max(widest, std::max(width, text_width(grid.title, 13)));
    svg.text(x0, y0 + 14, grid.title, "start", 13);
    y0 += 22;
    std::size_t heading = 1;
    for (std::size_t c = 0; c < grid.columns.size(); ++c) {
      const auto lines = parts(grid.columns[c]);
      heading = std::max(heading, lines.size());
      for (std::size_t i = 0; i < lines.size(); ++i)
        svg.text(x0 + cell_width * (static_cast<double>(c) + 0.5),
                 y0 + line_height * (static_cast<double>(i) + 0.8), lines[i], "middle", 11);
    }
    y0 += line_height * static_cast<double>(heading) + 4;
    for (std::size_t r = 0; r < rows.size() && r < grid.values.size(); ++r) {
      svg.text(x0 - 8, y0 + cell_height / 2 + 4, rows[r], "end", 12);
      for (std::size_t c = 0; c < grid.columns.size(); ++c) {
        const double value = grid.values[r][c], x = x0 + cell_width * static_cast<double>(c);
        svg.rect(x + 1, y0 + 1, cell_width - 2, cell_height - 2, colour(value, grid.difference));
        svg.text(x + cell_width / 2, y0 + cell_height / 2 + 4,
                 !std::isfinite(value) ? "–"
                 : grid.difference     ? fmt::format("{:+.1f}", value)
                                       : fmt::format("{:.1f}", value),
                 "middle", 12);
      }
      y0 += cell_height;
    }
    y0 += 22;
  }
  return svg.str(std::max(x0 + widest + 14, 28 + text_width(title, 16.5)), y0, title);
}

}  // namespace lipgrad::cli
