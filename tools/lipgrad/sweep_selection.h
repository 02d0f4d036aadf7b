#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

// How one of several configurations is chosen. This header knows no test score, so that nothing
// here can be led by one.
namespace lipgrad::cli {

// What a run came to on the validation nodes, at the epoch that `--select` chose.
struct Validation {
  double score = NAN, loss = NAN;
};

// The same of all runs of a configuration.
struct ValidationSummary {
  std::size_t runs = 0, failed = 0;               // failed: of those, they came to nothing
  double score = NAN, deviation = 0, loss = NAN;  // means, sample standard deviation
};

// A run that failed counts with `failed` alone.
ValidationSummary summarize(const std::vector<Validation>& runs, std::size_t failed);

// The best of them: fewest failed runs, then the highest mean score, then the lowest mean loss,
// then the first. Those without any finished run are never chosen; their number if there is no
// other.
std::size_t choose(const std::vector<ValidationSummary>& configurations);

}  // namespace lipgrad::cli
