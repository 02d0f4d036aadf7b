#include <algorithm>
#include <cstdio>
#include <memory>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <lipgrad/core/error.h>
#include <lipgrad/core/file.h>
#include <lipgrad/core/log.h>

#include "catalogue/check.h"
#include "lipgrad/commands.h"
#include "lipgrad/results.h"
#include "lipgrad/settings.h"

namespace lipgrad::cli {
namespace {

struct Options {
  std::string only, json, device = "cpu";
};

// The cases of one op taken together.
struct Row {
  std::string op;
  int cases = 0;
  std::vector<double> errors;
  std::int64_t kinks = 0;
  std::vector<std::string> failures;
};

double worst(const std::vector<double>& values) {
  return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
}

int run(const Options& options) {
  if (!options.json.empty()) check_writable(options.json);
  const Device device = parse_device(options.device);
  std::vector<catalogue::Case> cases;
  for (const catalogue::Case& c : catalogue::all().cases())
    if (c.op.find(options.only) != std::string::npos) cases.push_back(c);
  if (cases.empty())
    throw Error("gradcheck: no op has '" + options.only +
                "' in its name; run without --op to see all");

  std::vector<Row> rows;
  {
    Progress progress({.total = static_cast<std::int64_t>(cases.size()), .unit = "case"});
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const catalogue::Case& c = cases[i];
      auto row = std::find_if(rows.begin(), rows.end(), [&](const Row& r) { return r.op == c.op; });
      if (row == rows.end()) row = rows.insert(rows.end(), Row{c.op, 0, {}, 0, {}});
      const catalogue::Outcome outcome = catalogue::check(c, device);
      ++row->cases;
      row->kinks += outcome.kinks;
      row->errors.insert(row->errors.end(), outcome.errors.begin(), outcome.errors.end());
      for (const std::string& failure : outcome.failures)
        row->failures.push_back(c.kind + ": " + failure);
      progress.update(static_cast<std::int64_t>(i) + 1, {{"op", c.op}});
    }
  }

  Table table({"op", "cases", "worst error", "kinks", "result"});
  std::vector<double> errors;
  std::size_t failed = 0;
  nlohmann::json json = nlohmann::json::object();
  for (const Row& row : rows) {
    table.add_row({row.op, std::to_string(row.cases), fmt::format("{:.1e}", worst(row.errors)),
                   std::to_string(row.kinks), row.failures.empty() ? "ok" : "FAILED"});
    errors.insert(errors.end(), row.errors.begin(), row.errors.end());
    failed += !row.failures.empty();
    json["ops"].push_back({{"op", row.op},
                           {"cases", row.cases},
                           {"worst_error", worst(row.errors)},
                           {"median_error", median(row.errors)},
                           {"kinks", row.kinks},
                           {"failures", row.failures}});
  }
  std::fputs(table.str().c_str(), stdout);
  for (const Row& row : rows)
    for (const std::string& failure : row.failures)
      std::printf("%s, %s\n", row.op.c_str(), failure.c_str());
  std::printf(
      "\n%zu ops, %zu cases, %zu gradients in f64: worst relative error %.1e, median %.1e; %zu ops "
      "failed\n",
      rows.size(), cases.size(), errors.size(), worst(errors), median(errors), failed);
  if (!options.json.empty()) {
    json["cases"] = cases.size();
    json["gradients"] = errors.size();
    json["worst_error"] = worst(errors);
    json["median_error"] = median(errors);
    json["failed_ops"] = failed;
    write_json(options.json, json);
  }
  return failed ? failure : success;
}

}  // namespace

void add_gradcheck(CLI::App& app, int& exit) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("gradcheck",
                                         "Check the gradients of every op and layer against finite "
                                         "differences, f32 against f64, and 1 thread against 2");
  command->add_option("--op", options->only, "Only ops with this text in their name");
  add_device(*command, options->device);
  command->add_option("--json", options->json, "Also write the results to this file");
  command->callback([options, &exit] { exit = run(*options); });
}

}  // namespace lipgrad::cli
