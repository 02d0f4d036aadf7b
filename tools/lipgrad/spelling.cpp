#include "lipgrad/spelling.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <lipgrad/core/printable.h>

namespace lipgrad::cli {
namespace {

std::size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i)
    for (std::size_t j = 1; j <= b.size(); ++j) {
      d[i][j] =
          std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  return d[a.size()][b.size()];
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return names;
}

const CLI::Option* find_option(const CLI::App& app, const std::string& name) {
  for (const CLI::App* at = &app; at; at = at->get_parent())
    if (const CLI::Option* option = at->get_option_no_throw(name)) return option;
  return nullptr;
}

std::string suggestion(const std::string& word, const std::vector<std::string>& candidates) {
  const std::string meant = nearest(word, candidates);
  if (!meant.empty()) return fmt::format("did you mean '{}'?", meant);
  return {};
}

}  // namespace

std::string nearest(const std::string& word, const std::vector<std::string>& candidates) {
  constexpr std::size_t longest = 40;  // no name is longer
  if (word.size() > longest) return {};
  std::string best;
  std::size_t least = std::max<std::size_t>(1, word.size() / 3) + 1;
  for (const std::string& candidate : candidates)
    if (const std::size_t d = distance(word, candidate); d < least) {
      least = d;
      best = candidate;
    }
  return best;
}

std::string what_is_unknown(const CLI::App& program, const std::vector<std::string>& words) {
  const CLI::App* app = &program;
  std::string path;  // "train gat: "
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--") break;
    if (word.size() > 1 && word[0] == '-' && (word[1] < '0' || word[1] > '9')) {
      const std::size_t equals = word.find('=');
      const std::string name = word.substr(0, equals);
      if (const CLI::Option* option = find_option(*app, name)) {
        if (equals == std::string::npos && option->get_items_expected_min() > 0) ++i;
        continue;
      }
      if (!word.starts_with("--")) continue;  // several short ones in one word, perhaps
      std::vector<std::string> names;
      for (const CLI::App* at = app; at; at = at->get_parent())
        for (const CLI::Option* option : at->get_options())
          for (const std::string& long_name : option->get_lnames())
            names.push_back("--" + long_name);
      const std::string hint = suggestion(name, names);
      return fmt::format("{}no option '{}'{}{}", path, printable(name), hint.empty() ? "" : "; ",
                         hint);
    }
    const std::vector<std::string> commands = command_names(*app);
    if (commands.empty()) continue;
    const auto found = std::find(commands.begin(), commands.end(), word);
    if (found == commands.end()) {
      const std::string hint = suggestion(word, commands);
      return fmt::format(
          "{}no command '{}'; {}", path, printable(word),
          hint.empty() ? fmt::format("there are {}", fmt::join(commands, ", ")) : hint);
    }
    app = app->get_subcommand(word);
    path = (path.empty() ? word : path.substr(0, path.size() - 2) + " " + word) + ": ";
  }
  const std::vector<std::string> commands = command_names(*app);
  if (!commands.empty())
    return fmt::format("{}a command is required: {}", path, fmt::join(commands, ", "));
  return {};
}

}  // namespace lipgrad::cli
