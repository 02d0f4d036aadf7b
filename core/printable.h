#pragma once

// Private: used by .cpp files that put text of unknown origin into errors.

#include <string>
#include <string_view>

namespace lipgrad {

// The text as an error may show it, on one line and without harm to a terminal: control characters
// become "?", and what goes beyond `most` bytes is left out.
inline std::string printable(std::string_view text, std::size_t most = 80) {
  std::string result(text.substr(0, most));
  for (char& c : result)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  if (text.size() > most) result += "...";
  return result;
}

}  // namespace lipgrad
