#pragma once

#include <string>
#include <vector>

#include "lipgrad/sweep_report.h"

namespace lipgrad::cli {

// Writes the figures of the sweep's layout into the directory, those that its runs suffice for:
// depth.svg; rates.svg; gradients.svg and training.svg, of what OUT/runs/ID/metrics.jsonl holds;
// ablation.svg. Returns their names.
std::vector<std::string> write_figures(const SweepResults& results, const std::string& out);

}  // namespace lipgrad::cli
