#pragma once

#include <string>
#include <vector>

namespace lipgrad {

// The folders in which data sets are looked for, most wanted first: `root`, or where it is empty
// $LIPGRAD_DATA and ~/.cache/lipgrad, as far as these are set.
std::vector<std::string> data_folders(const std::string& root = {});

}  // namespace lipgrad
