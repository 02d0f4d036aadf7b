#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <lipgrad/config.h>
#include <lipgrad/core/blas.h>
#include <lipgrad/core/build_info.h>
#include <lipgrad/core/cuda_status.h>
#include <lipgrad/core/file.h>
#include <lipgrad/core/threads.h>
#include <lipgrad/graph/datasets.h>
#include <lipgrad/vision/image_data.h>
#include <lipgrad/vision/image_file.h>

#include "lipgrad/commands.h"
#include "lipgrad/machine.h"
#include "lipgrad/measure.h"
#include "lipgrad/results.h"

namespace lipgrad::cli {
namespace {

using Json = nlohmann::json;

class Doctor {
 public:
  int run(const std::string& json_path) {
    if (!json_path.empty()) check_writable(json_path);
    build();
    machine();
    blas();
    data();
    images();
    rates();
    fmt::print("\n");
    for (const std::string& warning : warnings_) fmt::print("warning: {}\n", warning);
    for (const std::string& problem : problems_) fmt::print("problem: {}\n", problem);
    if (problems_.empty())
      fmt::print("{}\n", warnings_.empty() ? "all is well" : "lipgrad works, but see above");
    json_["warnings"] = warnings_;
    json_["problems"] = problems_;
    if (!json_path.empty()) write_json(json_path, json_);
    if (problems_.empty()) return success;
    std::fflush(stdout);
    fmt::print(stderr, "lipgrad: doctor: {} problem{}, named above\n", problems_.size(),
               problems_.size() == 1 ? "" : "s");
    return failure;
  }

 private:
  static void line(const std::string& name, const std::string& value) {
    fmt::print("{:<10}  {}\n", name, value);
  }
  void warn(std::string text) { warnings_.push_back(std::move(text)); }

  void build() {
    const std::string sanitized = sanitizer();
    line("lipgrad", fmt::format("{}, built by {}{}{}", kVersion, compiler(),
                                is_optimized() ? "" : ", not optimised",
                                sanitized.empty() ? "" : ", with the sanitizer " + sanitized));
    cuda();
    json_["version"] = kVersion;
    json_["compiler"] = compiler();
    if (!is_optimized())
      warn("this build is not optimised: configure it with -DCMAKE_BUILD_TYPE=Release");
    if (!sanitized.empty()) warn("a sanitizer makes this build several times slower");
  }

  void cuda() {
    const CudaStatus& status = cuda_status();
    const auto version = [](int number) {
      return number == 0 ? std::string("none")
                         : fmt::format("{}.{}", number / 1000, number % 1000 / 10);
    };
    Json devices = Json::array();
    if (!status.built) {
      line("CUDA", "not in this build: everything runs on the processor, GPUs are not used");
    } else {
      line("CUDA", fmt::format("in this build{}: runtime {}, driver {}{}",
                               status.emulated ? ", emulated on the processor for tests" : "",
                               version(status.runtime), version(status.driver),
                               status.problem.empty() ? "" : "; " + status.problem));
      for (const CudaDevice& device : status.devices) {
        line("", fmt::format("cuda:{}: {}, compute capability {}.{}, {} multiprocessors, {}",
                             devices.size(), device.name, device.major, device.minor,
                             device.multiprocessors, bytes_text(device.memory)));
        devices.push_back({{"name", device.name},
                           {"compute_capability", fmt::format("{}.{}", device.major, device.minor)},
                           {"multiprocessors", device.multiprocessors},
                           {"memory", device.memory}});
        if (!status.emulated && device.major < 8)
          warn(fmt::format("{} is too old: lipgrad's kernels need compute capability 8.0",
                           device.name));
      }
      if (!status.problem.empty())
        warn(fmt::format("--device cuda cannot be used: {}", status.problem));
    }
    json_["cuda"] = {{"in_build", status.built},  {"emulated", status.emulated},
                     {"runtime", status.runtime}, {"driver", status.driver},
                     {"problem", status.problem}, {"devices", devices}};
  }

  void machine() {
    cpu_ = processor();
    const auto targets = simd_targets();
    const Memory memory = machine_memory();
    const int threads = num_threads();
    const char* wanted = std::getenv("LIPGRAD_THREADS");
    line("processor",
         fmt::format("{}, {:.2f} GHz, {} of {} processors for this process, load {:.1f}",
                     cpu_.model.empty() ? "unknown" : cpu_.model, cpu_.mhz / 1000, cpu_.allowed,
                     cpu_.online, cpu_.load));
    line("kernels",
         fmt::format("{} is used; compiled in are {}", simd_target(), fmt::join(targets, ", ")));
    line("threads", fmt::format("{}; LIPGRAD_THREADS {}", threads,
                                wanted ? "is " + std::string(wanted) : "is not set"));
    line("memory",
         fmt::format("{}, {} available{}", bytes_text(memory.total), bytes_text(memory.available),
                     memory.limit > 0 ? ", limited to " + bytes_text(memory.limit) : ""));
    json_["processor"] = {{"model", cpu_.model},     {"mhz", cpu_.mhz},     {"online", cpu_.online},
                          {"allowed", cpu_.allowed}, {"quota", cpu_.quota}, {"avx2", cpu_.avx2},
                          {"avx512", cpu_.avx512},   {"load", cpu_.load}};
    json_["kernels"] = {{"used", simd_target()}, {"compiled", targets}};
    json_["threads"] = {{"used", threads}, {"LIPGRAD_THREADS", wanted ? Json(wanted) : Json()}};
    json_["memory"] = {
        {"total", memory.total}, {"available", memory.available}, {"limit", memory.limit}};
    if (threads > cpu_.allowed)
      warn(
          fmt::format("{} threads share {} processors: they wait for one another; use --threads or "
                      "LIPGRAD_THREADS",
                      threads, cpu_.allowed));
    if (cpu_.quota > 0 && cpu_.quota + 0.5 < threads)
      warn(
          fmt::format("this container may use {:.1f} processors, fewer than {} threads: set "
                      "LIPGRAD_THREADS={}",
                      cpu_.quota, threads, std::max(1, static_cast<int>(cpu_.quota))));
    if (simd_target() == targets.back() && targets.size() > 1)
      warn(
          fmt::format("lipgrad's kernels are compiled for {}, but this processor can only run the "
                      "slow ones for {}",
                      fmt::join(targets.begin(), targets.end() - 1, ", "), targets.back()));
    busy_ = cpu_.online > 0 && cpu_.load > 0.5 + cpu_.online;
    if (busy_)
      warn(
          fmt::format("other programs keep this machine busy (load {:.1f}): it is faster than the "
                      "rates above",
                      cpu_.load));
    available_ = memory.limit > 0 ? std::min(memory.available, memory.limit) : memory.available;
    if (available_ > 0 && available_ < std::int64_t{1} << 30)
      warn(fmt::format("only {} of memory are available", bytes_text(available_)));
  }

  void blas() {
    const std::string core = blas_core();
    line("BLAS", fmt::format("{}; kernels for {}", blas_description(), core));
    json_["blas"] = {{"description", blas_description()}, {"core", core}};
    const double error = gemm_error();
    json_["blas"]["error"] = error;
    if (!(error < 1e-5))
      problems_.push_back(fmt::format(
          "matrix products are wrong (error {:.1e}): reinstall OpenBLAS; OPENBLAS_CORETYPE=Haswell "
          "chooses other kernels until then",
          error));
    constexpr std::array wide = {"skylakex", "cooperlake", "sapphirerapids"};
    constexpr std::array middle = {"haswell", "zen"};
    std::string lower = core;
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    const auto among = [&](const auto& names) {
      return std::find(names.begin(), names.end(), lower) != names.end();
    };
    const char* needs = cpu_.avx512 && !among(wide)                   ? "AVX-512"
                        : cpu_.avx2 && !among(wide) && !among(middle) ? "AVX2"
                                                                      : nullptr;
    if (needs) {
      const char* chosen = std::getenv("OPENBLAS_CORETYPE");
      warn(fmt::format("the processor has {}, but OpenBLAS uses kernels for {}: {}", needs, core,
                       chosen ? fmt::format("OPENBLAS_CORETYPE={} says so; unset it", chosen)
                              : "a newer OpenBLAS, or one with DYNAMIC_ARCH, is faster"));
    }
  }

  void data() {
    const std::vector<std::string> folders = node_data_folders();
    std::vector<std::string> found, missing;
    json_["data"]["folders"] = folders;
    json_["data"]["sets"] = Json::object();
    for (const std::string& name : known_node_data()) {
      if (name.starts_with("generated")) continue;
      const auto path = find_node_data(name);
      json_["data"]["sets"][name] = path ? Json(*path) : Json();
      (path ? found : missing).push_back(name);
      if (path) check_readable(name, *path);
    }
    found.emplace_back("generated, generated-arxiv, generated-proteins (need no files)");
    line("data", fmt::format("looked for in {}",
                             folders.empty() ? "no folder: neither LIPGRAD_DATA nor HOME is set"
                                             : fmt::format("{}", fmt::join(folders, ", "))));
    line("  found", fmt::format("{}", fmt::join(found, ", ")));
    line("  missing", missing.empty() ? "none" : fmt::format("{}", fmt::join(missing, ", ")));
    const char* root = std::getenv("LIPGRAD_DATA");
    std::error_code ignored;
    if (root && *root && !std::filesystem::is_directory(root, ignored))
      warn(fmt::format("LIPGRAD_DATA is {}, which is no folder", root));
    std::vector<std::string> downloads;
    for (const char* name : {"cora", "citeseer", "pubmed"})
      if (std::find(missing.begin(), missing.end(), name) != missing.end())
        downloads.emplace_back(name);
    if (!downloads.empty())
      warn(fmt::format("data is missing; `tools/fetch_data {}` downloads it",
                       fmt::join(downloads, " ")));
  }

  void images() {
    std::vector<std::string> found, missing, formats{"IDX", "CIFAR"};
    json_["images"] = {{"jpeg", has_jpeg()}, {"png", has_png()}, {"sets", Json::object()}};
    if (has_jpeg()) formats.emplace_back("JPEG");
    if (has_png()) formats.emplace_back("PNG");
    for (const std::string& name : known_image_data()) {
      const std::string path = find_image_data(name);
      json_["images"]["sets"][name] = path.empty() ? Json() : Json(path);
      (path.empty() ? missing : found).push_back(name);
      if (!path.empty() && ::access(path.c_str(), R_OK) != 0)
        problems_.push_back(fmt::format("data set {}: {} may not be read", name, path));
    }
    line("images", fmt::format("this build reads {}", fmt::join(formats, ", ")));
    line("  found", found.empty() ? "none" : fmt::format("{}", fmt::join(found, ", ")));
    line("  missing", missing.empty() ? "none" : fmt::format("{}", fmt::join(missing, ", ")));
    const auto lacks = [&](const char* format, const char* package) {
      warn(
          fmt::format("this build does not read {} images: install {} and configure with "
                      "-DLIPGRAD_{}=ON",
                      format, package, format));
    };
    if (!has_jpeg()) lacks("JPEG", "libjpeg62-turbo-dev");
    if (!has_png()) lacks("PNG", "libpng-dev");
  }

  // Files that are there and cannot be used keep `train` from working.
  void check_readable(const std::string& name, const std::string& path) {
    std::vector<std::string> files = {path};
    if (std::error_code error;
        !path.ends_with(".npz") && std::filesystem::is_directory(path, error))
      files = {path + "/raw/edge.csv.gz", path + "/raw/node-label.csv.gz"};
    else if (path.ends_with("."))
      files = {path + "x", path + "allx", path + "graph", path + "test.index"};
    for (const std::string& file : files) {
      std::error_code error;
      if (!std::filesystem::is_regular_file(file, error))
        problems_.push_back(fmt::format("data set {}: {} is not a file", name, file));
      else if (::access(file.c_str(), R_OK) != 0)
        problems_.push_back(fmt::format("data set {}: {} may not be read", name, file));
    }
  }

  void rates() {
    constexpr double seconds = 0.3;
    const int threads = num_threads();
    // Arrays well beyond the caches, where memory allows.
    const std::int64_t count = available_ > std::int64_t{1} << 30 ? 8 << 20 : 1 << 20;
    std::vector<int> counts = {1};
    if (threads > 1) counts.push_back(threads);
    std::vector<std::array<Rate, 3>> all;
    for (const int n : counts) {
      set_num_threads(n);
      all.push_back({gemm_rate<float>(1024, seconds), gemm_rate<double>(768, seconds),
                     triad_rate(count, seconds)});
    }
    set_num_threads(threads);
    constexpr std::array names = {"products, f32", "products, f64", "memory, triad"};
    constexpr std::array keys = {"gemm_f32_gflops", "gemm_f64_gflops", "triad_gb_per_s"};
    constexpr std::array units = {"GFLOP/s", "GFLOP/s", "GB/s"};
    fmt::print("\n");
    for (std::size_t i = 0; i < names.size(); ++i) {
      std::string text;
      for (std::size_t t = 0; t < counts.size(); ++t) {
        text += fmt::format("{}{:6.1f} {} on {} thread{}", t ? ", " : "", all[t][i].median,
                            units[i], counts[t], counts[t] == 1 ? "" : "s");
        json_["rates"][keys[i]].push_back(
            {{"threads", counts[t]}, {"median", all[t][i].median}, {"best", all[t][i].best}});
      }
      fmt::print("{:<14} {}\n", names[i], text);
    }
    if (!busy_) judge(all.front()[0].best, all.back()[0].best, threads);
  }

  void judge(double one, double all, int threads) {
    // What any processor of the last ten years can do: two fused multiply-adds of 8 floats a cycle.
    const double expected = (cpu_.avx2 ? 32 : 8) * cpu_.mhz / 1000;
    if (one < 0.5 * expected)
      warn(fmt::format(
          "products reach {:.0f} GFLOP/s on one thread, where this processor should do "
          "about {:.0f}: other programs, a sanitizer, or OpenBLAS kernels for another one",
          one, expected));
    if (threads > 1 && threads <= cpu_.allowed && all < 1.3 * one)
      warn(
          fmt::format("{} threads are only {:.1f} times as fast as one: other programs use the "
                      "processors, or there are fewer than it seems",
                      threads, all / one));
  }

  Json json_;
  std::vector<std::string> warnings_, problems_;
  Processor cpu_;
  std::int64_t available_ = 0;
  bool busy_ = false;
};

}  // namespace

void add_doctor(CLI::App& app, int& exit) {
  auto json = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand(
      "doctor", "Show what lipgrad was built with, what it finds and how fast it is here (3 s)");
  command->add_option("--json", *json, "Also write the results to this file")->type_name("FILE");
  command->callback([json, &exit] { exit = Doctor().run(*json); });
}

}  // namespace lipgrad::cli
