#pragma once

#include <string>
#include <vector>

#include "lipgrad/sweep_report.h"

// Up to which learning rate the configurations of a sweep train: tables, and a figure.
namespace lipgrad::cli {

// What became of a configuration. Its loss was not finite in some run (diverged); it was in all,
// but some run did not learn (untrained); all learned (trains); none is finished (unknown).
enum class Fate { unknown, trains, untrained, diverged };
const char* name_of(Fate fate);

struct Fates {
  double chance = NAN;     // accuracy of guessing: one over the number of classes
  double best = NAN;       // mean test accuracy at the end, of the best configuration of all
  double threshold = NAN;  // a run that learned has at least this: (chance + best) / 2
  std::vector<Fate> of;    // each point of the results
};
Fates fates_of(const SweepResults& results);

// Says what the words mean, with the numbers.
std::string explain(const Fates& fates);

// The highest learning rate that trains, of one configuration but for it.
struct HighestRate {
  std::vector<std::string> labels;  // its choices of the grid's axes; "" for lr and repeated axes
  double rate = NAN;                // NaN: none trains
  double lowest = NAN, highest = NAN;  // those that are finished
  std::string text() const;            // "0.01", ">= 0.3" where no higher one was tried, "none"
};
std::vector<HighestRate> highest_rates(const SweepResults& results, const Fates& fates);

// explain() and tables: accuracies by depth and rate, one for each method and warm-up; the highest
// rates by method, and the last method's over the first one's.
std::string rates_markdown(const SweepResults& results);
std::string rates_csv(const SweepResults& results);
nlohmann::json rates_json(const SweepResults& results);

// A map of accuracies for each method and warm-up: rates across, depths down.
std::string rates_figure(const SweepResults& results);

}  // namespace lipgrad::cli
