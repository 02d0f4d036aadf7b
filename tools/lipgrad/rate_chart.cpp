#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "lipgrad/chart.h"
#include "lipgrad/svg.h"

namespace lipgrad::cli {

std::string rate_maps(const std::string& title, const std::vector<std::string>& columns,
                      const std::vector<RateMap>& maps, std::size_t across, double low, double high,
                      const std::vector<std::string>& notes) {
  constexpr double cell_width = 58, cell_height = 30, gap = 36, top = 46;
  constexpr auto dark = "#4A4A4A", warning = "#D55E00";
  double label = 0, end = text_width("highest", 12), most = 0;
  for (const RateMap& map : maps) {
    most = std::max(most, static_cast<double>(map.rows.size()));
    for (const RateRow& row : map.rows) {
      label = std::max(label, text_width(row.label, 12));
      end = std::max(end, text_width(row.end, 12));
    }
  }
  const auto n = static_cast<double>(columns.size());
  const double width = label + 10 + cell_width * n + 10 + end,
               height = 22 + 18 + cell_height * most + 26;
  Svg svg;
  svg.text(14, 24, title, "start", 15, " font-weight=\"bold\"");
  across = std::max<std::size_t>(1, across);
  for (std::size_t m = 0; m < maps.size(); ++m) {
    const double x0 = 14 + static_cast<double>(m % across) * (width + gap) + label + 10,
                 y0 = top + static_cast<double>(m / across) * (height + 18);
    svg.text(x0, y0 + 12, maps[m].title, "start", 13, " font-weight=\"bold\"");
    for (std::size_t c = 0; c < columns.size(); ++c)
      svg.text(x0 + cell_width * (static_cast<double>(c) + 0.5), y0 + 34, columns[c], "middle", 12);
    svg.text(x0 + cell_width * n + 10, y0 + 34, "highest", "start", 12);
    double y = y0 + 40;
    for (const RateRow& row : maps[m].rows) {
      svg.text(x0 - 8, y + cell_height / 2 + 4, row.label, "end", 12);
      for (std::size_t c = 0; c < row.cells.size(); ++c) {
        const RateCell& cell = row.cells[c];
        const double x = x0 + cell_width * static_cast<double>(c);
        // White to green, light enough for dark numbers.
        const double share =
            high > low ? std::clamp((cell.value - low) / (high - low), 0.0, 1.0) : 1;
        const std::string green =
            fmt::format("#{:02X}{:02X}{:02X}", std::lround(255 - 155 * share),
                        std::lround(255 - 65 * share), std::lround(255 - 115 * share));
        const bool number = cell.known && !cell.diverged && std::isfinite(cell.value);
        svg.rect(x + 1, y + 1, cell_width - 2, cell_height - 2,
                 cell.diverged ? dark
                 : number      ? green
                               : faint);
        if (cell.highest)
          svg.rect(x + 2, y + 2, cell_width - 4, cell_height - 4, "none",
                   fmt::format(" stroke=\"{}\" stroke-width=\"2.5\"", ink));
        if (number && !cell.trains) {
          svg.line(x + 4, y + 4, x + cell_width - 4, y + cell_height - 4, warning, 1.2);
          svg.line(x + 4, y + cell_height - 4, x + cell_width - 4, y + 4, warning, 1.2);
        }
        const std::string text = cell.diverged ? "diverged"
                                 : number      ? fmt::format("{:.1f}", 100 * cell.value)
                                               : "–";
        if (cell.diverged)
          svg.white_text(x + cell_width / 2, y + cell_height / 2 + 4, text, 11);
        else
          svg.text(x + cell_width / 2, y + cell_height / 2 + 4, text, "middle", 12);
      }
      svg.text(x0 + cell_width * n + 10, y + cell_height / 2 + 4, row.end, "start", 12,
               " font-weight=\"bold\"");
      y += cell_height;
    }
    svg.text(x0 + cell_width * n / 2, y + 18, "learning rate", "middle", 12);
  }
  const double lines = std::ceil(static_cast<double>(maps.size()) / static_cast<double>(across));
  double y = top + lines * (height + 18) + 10, widest = text_width(title, 16.5);
  for (const std::string& note : notes) {
    svg.text(14, y, note, "start", 12);
    widest = std::max(widest, text_width(note, 12));
    y += 17;
  }
  const double all = static_cast<double>(std::min(across, maps.size()));
  return svg.str(std::max(28 + all * width + (all - 1) * gap, 28 + widest), y, title);
}

}  // namespace lipgrad::cli
