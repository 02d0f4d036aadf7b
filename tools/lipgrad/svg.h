#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <utility>

#include <fmt/format.h>

// The shapes that charts are drawn of, as the text of an SVG file. Coordinates are in pixels, y
// runs downwards; the same calls give the same bytes.
namespace lipgrad::cli {

// Told apart by colour-blind readers too, the more so with the dashes and markers of their number.
inline constexpr std::array colours{"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                    "#E69F00", "#56B4E9", "#555555", "#8C6D1F"};
inline constexpr std::array dashes{"",    "8 4",  "2 3", "10 3 2 3",
                                   "5 2", "14 4", "1 2", "6 2 1 2 1 2"};
inline constexpr auto ink = "#222222", faint = "#DDDDDD", grey = "#C8C8C8";

// A coordinate: two decimals, none that are not needed.
inline std::string at(double value) {
  std::string text = fmt::format("{:.2f}", value);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

// For XML; what it cannot hold becomes '?'.
inline std::string escape(const std::string& text) {
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
inline double text_width(const std::string& text, double size) {
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
  void white_text(double x, double y, const std::string& text, double size) {
    body_ += fmt::format(
        "<text x=\"{}\" y=\"{}\" font-size=\"{}\" text-anchor=\"middle\" "
        "fill=\"#FFFFFF\">{}</text>\n",
        at(x), at(y), at(size), escape(text));
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

}  // namespace lipgrad::cli
