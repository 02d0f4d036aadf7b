#include "lipgrad/chart.h"

#include <algorithm>
#include <array>
#include <limits>

#include <fmt/format.h>

namespace lipgrad::cli {
namespace {

constexpr std::array colours{"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                             "#E69F00", "#56B4E9", "#555555", "#8C6D1F"};
constexpr std::array dashes{"", "8 4", "2 3", "10 3 2 3", "5 2", "14 4", "1 2", "6 2 1 2 1 2"};
constexpr auto ink = "#222222", faint = "#DDDDDD", grey = "#C8C8C8";

// A coordinate: two decimals, none that are not needed.
std::string at(double value) {
  std::string text = fmt::format("{:.2f}", value);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

// For XML; what it cannot hold becomes '?'.
std::string escape(const std::string& text) {
  std::string result;
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '&')
      result += "&amp;";
    else if (c == '<')
      result += "&lt;";
    else if (c == '>')
      result += "&gt;";
    else if (c == '"')
      result += "&quot;";
    else if (code < 0x20 || code == 0x7f)
      result += '?';
    else
      result += c;
  }
  return result;
}

// Columns that a text takes, about: continuation bytes of UTF-8 take none.
double text_width(const std::string& text, double size) {
  double count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return 0.58 * size * count;
}

class Svg {
 public:
  void rect(double x, double y, double width, double height, const std::string& fill,
            const std::string& more = "") {
    body_ += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"{}/>\n",
                         at(x), at(y), at(width), at(height), fill, more);
  }
  void line(double x1, double y1, double x2, double y2, const std::string& colour,
            double width = 1) {
    body_ += fmt::format(
        "<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" stroke=\"{}\" "
        "stroke-width=\"{}\"/>\n",
        at(x1), at(y1), at(x2), at(y2), colour, at(width));
  }
  void path(const std::string& d, const std::string& colour, double width,
            const std::string& dash) {
    body_ += fmt::format(
        "<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\" "
        "stroke-linejoin=\"round\"{}/>\n",
        d, colour, at(width), dash.empty() ? "" : fmt::format(" stroke-dasharray=\"{}\"", dash));
  }
  // anchor: start, middle or end.
  void text(double x, double y, const std::string& text, const char* anchor, double size,
            const std::string& more = "") {
    raw_text(x, y, escape(text), anchor, size, more);
  }
  void vertical_text(double x, double y, const std::string& text, double size) {
    raw_text(x, y, escape(text), "middle", size,
             fmt::format(" transform=\"rotate(-90 {} {})\"", at(x), at(y)));
  }
  void power_of_ten(double x, double y, int exponent, double size) {
    raw_text(x, y,
             fmt::format("10<tspan dy=\"-{}\" font-size=\"{}\">{}</tspan>", at(0.4 * size),
                         at(0.8 * size),
                         exponent < 0 ? fmt::format("−{}", -exponent) : std::to_string(exponent)),
             "start", size, "");
  }
  void marker(double x, double y, int style, bool hollow) {
    const std::string colour = colours[static_cast<std::size_t>(style) % colours.size()];
    const std::string paint = fmt::format(" fill=\"{}\" stroke=\"{}\" stroke-width=\"1.3\"",
                                          hollow ? "#FFFFFF" : colour, colour);
    const double r = hollow ? 3 : 3.8;
    const auto polygon = [&](std::initializer_list<std::pair<double, double>> points) {
      std::string list;
      for (const auto& [dx, dy] : points)
        list += fmt::format("{}{},{}", list.empty() ? "" : " ", at(x + r * dx), at(y + r * dy));
      body_ += fmt::format("<polygon points=\"{}\"{}/>\n", list, paint);
    };
    switch (style % 6) {
      case 0:
        body_ +=
            fmt::format("<circle cx=\"{}\" cy=\"{}\" r=\"{}\"{}/>\n", at(x), at(y), at(r), paint);
        break;
      case 1:
        polygon({{-.9, -.9}, {.9, -.9}, {.9, .9}, {-.9, .9}});
        break;
      case 2:
        polygon({{0, -1.2}, {1.1, .8}, {-1.1, .8}});
        break;
      case 3:
        polygon({{0, -1.3}, {1.3, 0}, {0, 1.3}, {-1.3, 0}});
        break;
      case 4:
        polygon({{0, 1.2}, {1.1, -.8}, {-1.1, -.8}});
        break;
      default:
        polygon({{0, -1.25}, {1.2, -.3}, {.75, 1}, {-.75, 1}, {-1.2, -.3}});
    }
  }
  std::string str(double width, double height, const std::string& title) const {
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" version=\"1.1\" width=\"{0}\" height=\"{1}\" "
        "viewBox=\"0 0 {0} {1}\" font-family=\"Helvetica, Arial, 'DejaVu Sans', sans-serif\">\n"
        "<title>{2}</title>\n<rect width=\"{0}\" height=\"{1}\" fill=\"#FFFFFF\"/>\n{3}</svg>\n",
        at(width), at(height), escape(title), body_);
  }

 private:
  void raw_text(double x, double y, const std::string& text, const char* anchor, double size,
                const std::string& more) {
    body_ += fmt::format(
        "<text x=\"{}\" y=\"{}\" font-size=\"{}\" text-anchor=\"{}\" fill=\"{}\"{}>{}"
        "</text>\n",
        at(x), at(y), at(size), anchor, ink, more, text);
  }
  std::string body_;
};

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
