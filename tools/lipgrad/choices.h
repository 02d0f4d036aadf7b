#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

namespace lipgrad::cli {

// Options whose values have names.
template <class T>
using Choices = std::vector<std::pair<std::string, T>>;

// An option that takes one of the names; the first is the default. `names` must live as long as the
// command.
template <class T>
CLI::Option* add_choice(CLI::App& command, const char* option, T& value, const Choices<T>& names,
                        const std::string& help) {
  std::vector<std::string> all;
  for (const auto& [name, meaning] : names) all.push_back(name);
  return command
      .add_option_function<std::string>(
          option,
          [&value, &names](const std::string& given) {
            for (const auto& [name, meaning] : names)
              if (name == given) value = meaning;
          },
          help)
      ->default_str(names.front().first)
      ->check(CLI::IsMember(all));
}

// The name of a value; empty if it has none.
template <class T>
std::string name_in(const Choices<T>& names, const T& value) {
  for (const auto& [name, meaning] : names)
    if (meaning == value) return name;
  return {};
}

// A finite number of at least 0, or above 0.
inline CLI::Validator number(const char* name, bool zero) {
  return CLI::Validator(
      [=](std::string& text) {
        double value = 0;
        if (CLI::detail::lexical_cast(text, value) && std::isfinite(value) &&
            (zero ? value >= 0 : value > 0))
          return std::string();
        return fmt::format("expected a number {} 0, got {}", zero ? "of at least" : "above", text);
      },
      name);
}
inline const CLI::Validator non_negative = number("NONNEGATIVE", true);
inline const CLI::Validator positive = number("POSITIVE", false);
inline const CLI::Range any_count(std::int64_t{0}, std::int64_t{1} << 40);

}  // namespace lipgrad::cli
