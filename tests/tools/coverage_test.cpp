// Every public operation and layer has the cases in the catalogue that tests/catalogue_kinds.txt
// asks for.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <support/data.h>

#include "catalogue/catalogue.h"

namespace lipgrad {
namespace {

using Words = std::vector<std::string>;

Words split(const std::string& text, char separator) {
  Words words;
  std::string word;
  for (const char c : text + separator) {
    if (c != separator) {
      word += c;
      continue;
    }
    const auto begin = word.find_first_not_of(' '), end = word.find_last_not_of(' ');
    words.push_back(begin == std::string::npos ? "" : word.substr(begin, end - begin + 1));
    word.clear();
  }
  return words;
}

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Requirements {
  std::set<std::string> every, no_op;
  std::map<std::string, std::set<std::string>> also, without;
  std::map<std::string, Words> covered;
};

Requirements read_requirements() {
  Requirements r;
  std::ifstream file(test::checkout("tests/catalogue_kinds.txt"));
  REQUIRE(file.is_open());
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    const Words part = split(line, '|');
    const std::string& what = part[0];
    INFO(line);
    if (what == "every" && part.size() == 2) {
      r.every.insert(part[1]);
    } else if (what == "also" && part.size() == 3) {
      r.also[part[1]].insert(part[2]);
    } else if (what == "without" && part.size() == 4) {
      CHECK_FALSE(part[3].empty());
      r.without[part[1]].insert(part[2]);
    } else if (what == "covered" && part.size() == 3) {
      r.covered[part[1]] = split(part[2], ',');
    } else if (what == "no op" && part.size() == 3) {
      CHECK_FALSE(part[2].empty());
      r.no_op.insert(part[1]);
    } else {
      FAIL_CHECK("not understood");
    }
  }
  return r;
}

// Names of functions that return tensors and of layers, in the public headers of some folders.
std::set<std::string> public_operations() {
  const std::regex function("(?:Tensor|std::vector<Tensor>) (\\w+)\\(.*");
  const std::regex layer(
      "(?:class|struct) (\\w+)(?: final)? : (?:public )?(?:Module|GraphConv)\\b.*");
  std::set<std::string> names;
  for (const char* folder : {"ops", "graph", "vision"})
    for (const auto& entry : std::filesystem::directory_iterator(test::checkout(folder))) {
      if (entry.path().extension() != ".h") continue;
      std::ifstream file(entry.path());
      std::smatch match;
      for (std::string line; std::getline(file, line);)
        if (std::regex_match(line, match, function) || std::regex_match(line, match, layer))
          names.insert(match[1]);
    }
  return names;
}

std::map<std::string, std::set<std::string>> catalogued() {
  std::map<std::string, std::set<std::string>> kinds;
  for (const catalogue::Case& c : catalogue::all().cases()) kinds[c.op].insert(c.kind);
  return kinds;
}

// The names of the kernels that headers declare for both devices.
std::set<std::string> declared_kernels() {
  const std::regex name("\\bvoid (\\w+)\\(");
  std::set<std::string> names;
  for (const char* folder : {"core/kernels", "ops/kernels", "graph/kernels", "vision/kernels"}) {
    if (!std::filesystem::is_directory(test::checkout(folder))) continue;
    for (const auto& entry : std::filesystem::directory_iterator(test::checkout(folder))) {
      if (entry.path().extension() != ".h") continue;
      const std::string text = text_of(entry.path());
      for (std::size_t at = 0; (at = text.find("LIPGRAD_KERNELS(", at)) != std::string::npos;) {
        // To the parenthesis that closes it; comments hold none that are not closed.
        int depth = 0;
        std::size_t end = text.find('(', at);
        do {
          depth += text[end] == '(' ? 1 : text[end] == ')' ? -1 : 0;
          ++end;
        } while (depth > 0 && end < text.size());
        const std::string declarations = text.substr(at, end - at);
        for (std::sregex_iterator match(declarations.begin(), declarations.end(), name), last;
             match != last; ++match)
          names.insert((*match)[1]);
        at = end;
      }
    }
  }
  return names;
}

}  // namespace

TEST_CASE("every kernel has a CUDA side") {
  std::string cuda;
  for (const auto& entry : std::filesystem::directory_iterator(test::checkout("cuda")))
    if (entry.path().extension() == ".cu" || entry.path().extension() == ".cpp")
      cuda += text_of(entry.path());
  const std::set<std::string> kernels = declared_kernels();
  CHECK(kernels.size() > 50);
  for (const std::string& name : kernels) {
    const std::regex definition("\\bvoid " + name + "\\([^;{]*\\) \\{");
    CHECK_MESSAGE(std::regex_search(cuda, definition), name, " has no definition in cuda/");
  }
}

TEST_CASE("every public operation and layer is in the catalogue") {
  const Requirements r = read_requirements();
  const auto kinds = catalogued();
  const std::set<std::string> operations = public_operations();
  CHECK(operations.size() > 50);
  for (const std::string& name : operations) {
    if (r.no_op.count(name) || r.covered.count(name)) continue;
    CHECK_MESSAGE(kinds.count(name), name,
                  " has no cases in tools/catalogue; see tests/catalogue_kinds.txt");
  }
  for (const auto& [name, ops] : r.covered) {
    CHECK_MESSAGE(operations.count(name), name,
                  " is in tests/catalogue_kinds.txt but in no header");
    for (const std::string& op : ops)
      CHECK_MESSAGE(kinds.count(op), name, " is said to be covered by ", op,
                    ", which has no cases");
  }
  for (const std::string& name : r.no_op)
    CHECK_MESSAGE(operations.count(name), name,
                  " is in tests/catalogue_kinds.txt but in no header");
}

TEST_CASE("every op of the catalogue has the kinds of case that are required") {
  const Requirements r = read_requirements();
  const auto kinds = catalogued();
  const auto has = [&](const auto& map, const std::string& op, const std::string& kind) {
    const auto found = map.find(op);
    return found != map.end() && found->second.count(kind) > 0;
  };
  for (const auto& [op, present] : kinds) {
    if (r.covered.count(op)) continue;
    std::set<std::string> required = r.every;
    if (const auto more = r.also.find(op); more != r.also.end())
      required.insert(more->second.begin(), more->second.end());
    for (const std::string& kind : required) {
      if (has(r.without, op, kind))
        CHECK_MESSAGE(!present.count(kind), op, " is said to be without '", kind, "' but has it");
      else
        CHECK_MESSAGE(present.count(kind), op, " has no case of the kind '", kind, "'");
    }
  }
  for (const auto& map : {&r.also, &r.without})
    for (const auto& [op, unused] : *map)
      CHECK_MESSAGE(kinds.count(op), op, " is in tests/catalogue_kinds.txt but has no cases");
}

}  // namespace lipgrad
