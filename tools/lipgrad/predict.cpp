#include <algorithm>
#include <cstdio>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <lipgrad/core/checkpoint.h>
#include <lipgrad/core/error.h>
#include <lipgrad/core/file.h>
#include <lipgrad/core/log.h>
#include <lipgrad/core/tape.h>
#include <lipgrad/ops/softmax.h>
#include <lipgrad/vision/image_file.h>

#include "lipgrad/commands.h"
#include "lipgrad/results.h"
#include "lipgrad/vision_training.h"

namespace lipgrad::cli {
namespace {

struct Options {
  std::string checkpoint, json, device = "cpu";
  std::vector<std::string> images;
  std::int64_t top = 3;
};

int run(const Options& o) {
  if (!o.json.empty()) check_writable(o.json);
  const Device device = parse_device(o.device);
  const auto config = nlohmann::json::parse(read_checkpoint_info(o.checkpoint).config, nullptr,
                                            /*exceptions=*/false);
  if (!is_vision(config))
    throw Error(o.checkpoint + ": not a checkpoint of `lipgrad train vision`");
  const TrainedVision trained = load_vision(o.checkpoint, config, device);
  const EvaluationOptions evaluation = evaluation_options(trained.settings);
  const ImageTransform transform(trained.images, {}, evaluation);
  const std::int64_t classes = static_cast<std::int64_t>(trained.images.class_names.size());
  const std::int64_t top = std::min(o.top, classes);

  Table table({"image", "class", "probability"});
  nlohmann::json json = {{"checkpoint", o.checkpoint}, {"images", nlohmann::json::array()}};
  const NoGrad off;
  TransformScratch scratch;
  std::size_t unread = 0;
  for (const std::string& path : o.images) {
    Image image;
    try {
      image = load_image(path, {.channels = trained.images.channels});
    } catch (const Error& error) {
      std::fprintf(stderr, "lipgrad: %s\n", error.what());
      json["images"].push_back({{"image", path}, {"error", error.what()}});
      ++unread;
      continue;
    }
    Tensor input = empty({1, trained.images.channels, evaluation.height, evaluation.width});
    transform.evaluate(image, scratch, input.mutable_data<float>());
    const Tensor logits = trained.model->forward(input.to(device), Mode::eval());
    const std::vector<double> p = softmax(logits.to(cpu_device).to(f64)).to_vector<double>();
    std::vector<std::int64_t> order(p.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return p[a] > p[b]; });
    nlohmann::json& entry = json["images"].emplace_back(
        nlohmann::json{{"image", path}, {"classes", nlohmann::json::array()}});
    for (std::int64_t i = 0; i < top; ++i) {
      const std::string& name = trained.images.class_names[order[i]];
      table.add_row({i == 0 ? path : "", name, fmt::format("{:.1f} %", 100 * p[order[i]])});
      entry["classes"].push_back({{"class", name}, {"probability", p[order[i]]}});
    }
  }
  if (unread < o.images.size()) std::fputs(table.str().c_str(), stdout);
  if (!o.json.empty()) write_json(o.json, json);
  return unread == 0 ? success : failure;
}

}  // namespace

void add_predict(CLI::App& app, int& exit) {
  auto o = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("predict", "Tell what a trained model sees in images, JPEG or PNG");
  command->option_defaults()->always_capture_default();
  command->add_option("images", o->images, "Image files")->required()->type_name("FILE");
  command->add_option("--checkpoint", o->checkpoint, "Of `lipgrad train vision`, such as best.lip")
      ->required()
      ->type_name("FILE");
  command->add_option("--top", o->top, "The likeliest classes")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1000000}));
  add_device(*command, o->device);
  command->add_option("--json", o->json, "Also write the results to this file");
  command->callback([o, &exit] { exit = run(*o); });
}

}  // namespace lipgrad::cli
