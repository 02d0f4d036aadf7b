#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace lipgrad::test {

// Sets an environment variable for the time of the scope.
class EnvironmentVariable {
 public:
  EnvironmentVariable(const char* name, const std::string& value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    ::setenv(name, value.c_str(), 1);
  }
  ~EnvironmentVariable() {
    if (before_)
      ::setenv(name_, before_->c_str(), 1);
    else
      ::unsetenv(name_);
  }
  EnvironmentVariable(const EnvironmentVariable&) = delete;
  EnvironmentVariable& operator=(const EnvironmentVariable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

// Whether to leave out finite differences: under sanitizers and emulation they would take many
// minutes and see nothing new (LIPGRAD_QUICK is set).
inline bool quick() { return std::getenv("LIPGRAD_QUICK") != nullptr; }

}  // namespace lipgrad::test
