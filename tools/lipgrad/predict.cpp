#include <algorithm>
#include <cstdio>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
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
  std::int64_t top = 3, test = 0;
};

int run(const Options& o) {
  if (o.images.empty() && o.test == 0)
    throw Error("predict: no images: name files, or give --test a number");
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

  const ImageData data = o.test > 0 ? load(trained.settings) : ImageData();
  if (o.test > 0 && (!data.test || o.test > data.test->size()))
    throw Error(fmt::format("predict: --test {}: {} has {} test images", o.test,
                            trained.settings.data, data.test ? data.test->size() : 0));
  if (o.test > 0 && data.test->classes() != classes)
    throw Error(fmt::format("predict: {} has {} classes, the model {}", trained.settings.data,
                            data.test->classes(), classes));

  std::vector<std::string> columns{"image", "class", "probability"};
  if (o.test > 0) columns.insert(columns.begin() + 1, "label");
  Table table(columns);
  nlohmann::json json = {{"checkpoint", o.checkpoint}, {"images", nlohmann::json::array()}};
  const NoGrad off;
  TransformScratch scratch;
  std::size_t unread = 0;
  const std::int64_t files = static_cast<std::int64_t>(o.images.size());
  for (std::int64_t n = 0; n < files + o.test; ++n) {
    const bool is_file = n < files;
    const std::string path = is_file ? o.images[n] : data.test->name(n - files);
    const std::string label =
        is_file ? "" : trained.images.class_names[data.test->label(n - files)];
    Image image;
    try {
      if (is_file)
        image = load_image(path, {.channels = trained.images.channels});
      else
        data.test->read(n - files, image);
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
    if (!is_file) entry["label"] = label;
    for (std::int64_t i = 0; i < top; ++i) {
      const std::string& name = trained.images.class_names[order[i]];
      std::vector<std::string> row{i == 0 ? path : "", name,
                                   fmt::format("{:.1f} %", 100 * p[order[i]])};
      if (o.test > 0) row.insert(row.begin() + 1, i == 0 ? label : "");
      table.add_row(row);
      entry["classes"].push_back({{"class", name}, {"probability", p[order[i]]}});
    }
  }
  if (unread < o.images.size() + static_cast<std::size_t>(o.test))
    std::fputs(table.str().c_str(), stdout);
  if (!o.json.empty()) write_json(o.json, json);
  return unread == 0 ? success : failure;
}

}  // namespace

void add_predict(CLI::App& app, int& exit) {
  auto o = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("predict", "Tell what a trained model sees in images, JPEG or PNG");
  command->option_defaults()->always_capture_default();
  command->add_option("images", o->images, "Image files")->type_name("FILE");
  command
      ->add_option("--test", o->test,
                   "Also so many test images of the data set that the model was trained on")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1000000}));
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
