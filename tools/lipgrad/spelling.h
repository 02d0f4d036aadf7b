#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace lipgrad::cli {

// The candidate that `word` was most likely meant to be: fewest letters inserted, left out,
// replaced or swapped with their neighbour, at most a third of it. Empty if none is near.
std::string nearest(const std::string& word, const std::vector<std::string>& candidates);

// The first thing in a command line that the program does not know, told in one line without the
// name of the program: "no command 'trian'; did you mean 'train'?". Empty if all words are known
// and no command is missing.
std::string what_is_unknown(const CLI::App& program, const std::vector<std::string>& words);

}  // namespace lipgrad::cli
