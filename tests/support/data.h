#pragma once

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace lipgrad::test {

// A file that is kept with the tests.
std::string golden(const std::string& name);
// A file or folder of the checkout.
std::string checkout(const std::string& name);

// A file or folder of the data sets, looked for in $LIPGRAD_DATA and ~/.cache/lipgrad; empty when
// it is not there, which is reported so that nothing is skipped in silence.
inline std::string find_data(const std::string& name) {
  const char* data = std::getenv("LIPGRAD_DATA");
  const char* home = std::getenv("HOME");
  for (const std::string& root : {std::string(data ? data : ""),
                                  home ? std::string(home) + "/.cache/lipgrad" : std::string()})
    if (!root.empty() && std::filesystem::exists(root + "/" + name)) return root + "/" + name;
  MESSAGE("skipped: no ", name, " in $LIPGRAD_DATA or ~/.cache/lipgrad");
  return "";
}

}  // namespace lipgrad::test
