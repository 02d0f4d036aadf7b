#include "lipgrad/sweep_selection.h"

#include "lipgrad/results.h"

namespace lipgrad::cli {

ValidationSummary summarize(const std::vector<Validation>& runs, std::size_t failed) {
  ValidationSummary summary{runs.size() + failed, failed};
  if (runs.empty()) return summary;
  std::vector<double> scores, losses;
  for (const Validation& run : runs) {
    scores.push_back(run.score);
    losses.push_back(run.loss);
  }
  std::tie(summary.score, summary.deviation) = mean_and_std(scores);
  summary.loss = mean_and_std(losses).first;
  return summary;
}

std::size_t choose(const std::vector<ValidationSummary>& configurations) {
  const auto better = [](const ValidationSummary& a, const ValidationSummary& b) {
    if (a.failed != b.failed) return a.failed < b.failed;
    if (a.score != b.score) return a.score > b.score;
    return a.loss < b.loss;
  };
  std::size_t best = configurations.size();
  for (std::size_t i = 0; i < configurations.size(); ++i) {
    const ValidationSummary& c = configurations[i];
    if (c.runs == c.failed || std::isnan(c.score)) continue;
    if (best == configurations.size() || better(c, configurations[best])) best = i;
  }
  return best;
}

}  // namespace lipgrad::cli
