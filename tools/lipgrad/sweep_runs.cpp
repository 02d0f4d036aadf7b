#include "lipgrad/sweep_runs.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>

#include <lipgrad/core/error.h>
#include <lipgrad/core/file.h>

namespace lipgrad::cli {
namespace {

using Json = nlohmann::json;

// A share from 0 to 1; NaN for null, which is how JSON has it.
double share(const Json& json, const std::string& name) {
  const Json& value = json.at(name);
  if (value.is_null()) return NAN;
  const double number = value.get<double>();
  if (!(number >= 0 && number <= 1)) throw Error(fmt::format("{} is {}", name, number));
  return number;
}

double number(const Json& json, const std::string& name) {
  const Json& value = json.at(name);
  return value.is_null() ? NAN : value.get<double>();
}

FinishedRun from_json(const Json& json) {
  FinishedRun run;
  run.score = json.at("score").get<std::string>();
  run.epochs = json.at("epochs").get<std::int64_t>();
  run.best_epoch = json.at("best_epoch").get<std::int64_t>();
  run.valid.score = share(json, "valid_" + run.score);
  run.valid.loss = number(json, "valid_loss");
  run.test = share(json, "test_" + run.score);
  run.test_last = share(json, "test_" + run.score + "_last");
  run.train_last = share(json, "train_" + run.score + "_last");
  run.seconds_per_epoch = number(json, "seconds_per_epoch");
  run.classes = json.value("classes", std::int64_t{0});
  return run;
}

Json to_json(const FinishedRun& run) {
  Json json = {{"score", run.score},
               {"epochs", run.epochs},
               {"best_epoch", run.best_epoch},
               {"valid_" + run.score, run.valid.score},
               {"valid_loss", run.valid.loss},
               {"test_" + run.score, run.test},
               {"test_" + run.score + "_last", run.test_last},
               {"train_" + run.score + "_last", run.train_last},
               {"seconds_per_epoch", run.seconds_per_epoch}};
  if (run.classes > 0) json["classes"] = run.classes;
  return json;
}

// The library's own messages go on for lines.
std::string first_part(const std::string& message) {
  return message.substr(0, std::min<std::size_t>(message.find('\n'), 120));
}

std::string text_of(const std::string& path) {
  const std::vector<std::byte> bytes = read_file(path, std::int64_t{1} << 30);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

RunLog::RunLog(const std::string& out)
    : path_((std::filesystem::path(out) / "runs.jsonl").string()) {
  if (!std::filesystem::exists(path_)) return;
  const std::string text = text_of(path_);
  std::size_t line_number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    ++line_number;
    const std::size_t end = text.find('\n', begin);
    if (end == std::string::npos) {
      notes_.push_back(
          fmt::format("{}:{}: an incomplete line; that run is done again", path_, line_number));
      break;
    }
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    good_bytes_ = static_cast<std::int64_t>(begin);
    try {
      const Json json = Json::parse(line);
      const std::string id = json.at("id").get<std::string>();
      if (id != run_id(json.at("config"))) throw Error("its id is not that of its settings");
      FinishedRun run;
      if (json.contains("failed"))
        run.failed = json.at("failed").get<std::string>();
      else
        run = from_json(json.at("result"));
      run.seconds = number(json, "seconds");
      runs_[id] = std::move(run);
    } catch (const std::exception& error) {
      notes_.push_back(fmt::format("{}:{}: not a run's line ({}); left out", path_, line_number,
                                   first_part(error.what())));
    }
  }
}

const FinishedRun* RunLog::find(const std::string& id) const {
  const auto found = runs_.find(id);
  return found == runs_.end() ? nullptr : &found->second;
}

void RunLog::add(const PlannedRun& run, const FinishedRun& result) {
  Json json = {{"id", run.id}, {"config", run.config}, {"seconds", result.seconds}};
  if (result.failed.empty())
    json["result"] = to_json(result);
  else
    json["failed"] = result.failed;
  const std::string line = json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  const int file = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  const auto fail = [&](int code) {
    if (file >= 0) {
      if (::ftruncate(file, good_bytes_) != 0) {
      }  // what is left is cut the next time
      ::close(file);
    }
    throw Error(fmt::format("{}: cannot be written: {}", path_, std::strerror(code)));
  };
  if (file < 0 || ::ftruncate(file, good_bytes_) != 0) fail(errno);
  for (std::size_t done = 0; done < line.size();) {
    const ssize_t now = ::pwrite(file, line.data() + done, line.size() - done,
                                 static_cast<off_t>(good_bytes_ + static_cast<std::int64_t>(done)));
    if (now < 0 && errno == EINTR) continue;
    if (now <= 0) fail(now < 0 ? errno : ENOSPC);
    done += static_cast<std::size_t>(now);
  }
  if (::fsync(file) != 0) fail(errno);
  ::close(file);
  good_bytes_ += static_cast<std::int64_t>(line.size());
  runs_[run.id] = result;
}

FinishedRun read_result(const std::string& path) {
  try {
    const Json json = Json::parse(text_of(path));
    FinishedRun run = from_json(json.at("runs").at(0));
    if (const Json& config = json.at("config"); config.contains("images"))
      run.classes = static_cast<std::int64_t>(config.at("images").at("class_names").size());
    return run;
  } catch (const Json::exception& error) {
    throw Error(fmt::format("{}: not the result of a run: {}", path, first_part(error.what())));
  }
}

}  // namespace lipgrad::cli
