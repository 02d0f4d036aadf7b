#include <algorithm>
#include <cctype>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <lipgrad/config.h>
#include <lipgrad/graph/datasets.h>
#include <lipgrad/vision/image_data.h>

#include "lipgrad/commands.h"

namespace lipgrad::cli {
namespace {

// The part of the script that is the same whatever the commands are. A value is a list of words, or
// one of @files, @folders, @graphs, @images, @data (of both kinds), @any.
constexpr std::string_view script = R"bash(
_lipgrad_complete() {
  local cur=${COMP_WORDS[COMP_CWORD]} path=lipgrad option= word words value ending i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; ++i)); do
    word=${COMP_WORDS[i]}
    if [[ $word == = ]]; then
      continue  # bash makes three words of --name=value
    elif [[ -n $option ]]; then
      option=
    elif [[ $word == -* ]]; then
      [[ -n $(_lipgrad_value "$path $word") ]] && option=$word
    elif [[ " $(_lipgrad_words "$path") " == *" $word "* ]]; then
      path+=" $word"
    fi
  done
  [[ $cur == = ]] && cur=
  if [[ -n $option ]]; then
    value=$(_lipgrad_value "$path $option")
  elif [[ $cur != -* ]]; then
    value=$(_lipgrad_value "$path")
  fi
  case $value in
    @any) ;;
    @files)
      compopt -o filenames 2>/dev/null
      mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
    @folders)
      compopt -o filenames 2>/dev/null
      mapfile -t COMPREPLY < <(compgen -d -- "$cur") ;;
    @graphs | @images | @data)
      compopt -o filenames 2>/dev/null
      mapfile -t COMPREPLY < <(
        compgen -W "$(_lipgrad_data "$value")" -- "$cur"
        [[ $value == @images ]] || compgen -f -X '!*.npz' -- "$cur"
        if [[ $value != @graphs ]]; then
          for ending in tar tar.gz tgz; do compgen -f -X "!*.$ending" -- "$cur"; done
        fi
        compgen -d -- "$cur"
      ) ;;
    ?*) mapfile -t COMPREPLY < <(compgen -W "$value" -- "$cur") ;;
    *)
      words=$(_lipgrad_words "$path")
      # Commands first; options where there are none, or one is begun.
      if [[ $cur != -* && $words == [a-z]* ]]; then words=${words%% -*}; fi
      mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur") ;;
  esac
}

complete -F _lipgrad_complete lipgrad
)bash";

bool is_plain(const std::string& word) {
  return !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
    return std::isalnum(c) ||
           std::string_view("-_.:+/%").find(static_cast<char>(c)) != std::string_view::npos;
  });
}

// The words of the first set in a type's name, "TEXT:{accuracy,loss,last}" or "{a->0,b->1}".
std::vector<std::string> members(const std::string& type) {
  std::vector<std::string> words;
  const std::size_t open = type.find('{'), close = type.find('}', open);
  if (open == std::string::npos || close == std::string::npos) return words;
  for (std::string word : CLI::detail::split(type.substr(open + 1, close - open - 1), ',')) {
    word = word.substr(0, word.find("->"));
    if (is_plain(word)) words.push_back(word);
  }
  return words;
}

// What may stand for the option's value; empty if it has none. The type's name tells, or else the
// option's own: some mean the same in every command.
std::string value_of(const CLI::App& command, const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return {};
  const std::string type = option.get_type_name();
  if (const auto words = members(type); !words.empty())
    return fmt::format("{}", fmt::join(words, " "));
  const auto is_called = [&](const char* name) { return option.check_lname(name); };
  if (is_called("data"))
    return command.get_name() == "vision"  ? "@images"
           : command.get_name() == "sweep" ? "@data"
                                           : "@graphs";
  if (type.starts_with("DIR") || is_called("out")) return "@folders";
  if (type.starts_with("FILE") || is_called("json") || is_called("config")) return "@files";
  return "@any";
}

struct Cases {
  std::string words, values;
};

void add_cases(const CLI::App& app, const std::string& path, Cases& cases) {
  std::vector<std::string> words;
  const auto add_value = [&](const std::string& key, const CLI::Option& option) {
    if (const std::string value = value_of(app, option); !value.empty())
      cases.values += fmt::format("    '{}') echo '{}' ;;\n", key, value);
  };
  const auto commands = app.get_subcommands([](const CLI::App*) { return true; });
  for (const CLI::App* command : commands) words.push_back(command->get_name());
  bool has_positional = false;
  for (const CLI::App* at = &app; at; at = at->get_fallthrough() ? at->get_parent() : nullptr) {
    for (const CLI::Option* option : at->get_options()) {
      // Of the enclosing commands' options, these two belong to those commands alone.
      if (at != &app && (option == at->get_help_ptr() || option == at->get_version_ptr())) continue;
      if (option->get_positional() && at == &app && !has_positional) {
        has_positional = true;
        add_value(path, *option);
      }
      for (const std::string& name : option->get_lnames()) {
        words.push_back("--" + name);
        add_value(path + " --" + name, *option);
      }
      for (const std::string& name : option->get_snames()) {
        if (option->get_lnames().empty()) words.push_back("-" + name);
        add_value(path + " -" + name, *option);
      }
    }
  }
  cases.words += fmt::format("    '{}') echo '{}' ;;\n", path, fmt::join(words, " "));
  for (const CLI::App* command : commands)
    add_cases(*command, path + " " + command->get_name(), cases);
}

void print_bash(const CLI::App& app) {
  Cases cases;
  add_cases(app, "lipgrad", cases);
  fmt::print(
      "# Completion for lipgrad {} in bash, made by `lipgrad completion bash`. Try it with\n"
      "#   source <(lipgrad completion bash)\n"
      "# and keep it as ~/.local/share/bash-completion/completions/lipgrad.\n\n"
      "_lipgrad_words() {{\n  case $1 in\n{}  esac\n}}\n\n"
      "_lipgrad_value() {{\n  case $1 in\n{}  esac\n}}\n\n"
      "_lipgrad_data() {{\n"
      "  [[ $1 == @images ]] || echo '{}'\n"
      "  [[ $1 == @graphs ]] || echo '{}'\n}}\n{}",
      kVersion, cases.words, cases.values, fmt::join(known_node_data(), " "),
      fmt::join(known_image_data(), " "), script);
}

}  // namespace

void add_completion(CLI::App& app, int& exit) {
  CLI::App* command = app.add_subcommand("completion", "Print a completion script for a shell");
  command->require_subcommand(1);
  command->add_subcommand("bash", "For bash: source <(lipgrad completion bash)")
      ->callback([&app, &exit] {
        print_bash(app);
        exit = success;
      });
}

}  // namespace lipgrad::cli
