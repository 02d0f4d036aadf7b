#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

// What the subcommands have in common when they report.
namespace lipgrad::cli {

// Writes results to the file, indented, whole or not at all. Bytes that are not UTF-8 become
// U+FFFD, numbers that JSON does not have (NaN, infinities) null.
void write_json(const std::string& path, const nlohmann::json& json);

// "512 B", "1.4 MiB".
std::string bytes_text(std::int64_t bytes);

// The middle value, or the mean of the two in the middle; 0 of none.
double median(std::vector<double> values);

// Mean and sample standard deviation, which is 0 of fewer than two values; the mean of none is 0.
std::pair<double, double> mean_and_std(const std::vector<double>& values);

}  // namespace lipgrad::cli
