#pragma once

#include <string>

#include <lipgrad/core/error.h>

namespace lipgrad::test {

// What the Error says that f() throws; empty when it throws none.
inline std::string error_of(auto&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace lipgrad::test
