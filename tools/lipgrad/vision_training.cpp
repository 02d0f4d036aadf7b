#include "lipgrad/vision_training.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <lipgrad/core/checkpoint.h>
#include <lipgrad/core/error.h>
#include <lipgrad/models/image_classification.h>
#include <lipgrad/ops/optimizers.h>
#include <lipgrad/ops/schedules.h>

#include "lipgrad/gnn_settings.h"

namespace lipgrad::cli {
namespace {

using Json = nlohmann::json;

Rate rate_of(const VisionSettings& s, std::int64_t updates_an_epoch) {
  const auto per_epoch = static_cast<double>(updates_an_epoch);
  const auto warmup = static_cast<std::int64_t>(s.warmup_epochs * per_epoch);
  const std::int64_t rest = std::max<std::int64_t>(1, s.epochs * updates_an_epoch - warmup);
  Rate rate =
      s.schedule == "cosine" ? cosine_decay({.steps = rest, .min_lr = s.min_lr}) : constant_rate();
  if (warmup > 0) return linear_warmup({.steps = warmup, .start_factor = 1e-3}, std::move(rate));
  return rate;
}

std::shared_ptr<ImageLoader> loader(const VisionSettings& s,
                                    const std::shared_ptr<const ImageSet>& images, bool train,
                                    std::uint64_t seed) {
  if (!images) return nullptr;
  ImageLoaderOptions options{.batch_size = s.batch_size, .train = train, .seed = seed};
  options.augment = s.augment;
  options.augment.height = options.augment.width = s.image_size;
  options.evaluation = evaluation_options(s);
  options.mix = s.mix;
  options.skip_corrupt = s.skip_corrupt;
  return std::make_shared<ImageLoader>(images, options);
}

ImageSetInfo info_from(const Json& json, const std::string& where) {
  try {
    ImageSetInfo info;
    info.name = json.at("name").get<std::string>();
    info.class_names = json.at("class_names").get<std::vector<std::string>>();
    info.channels = json.at("channels").get<std::int64_t>();
    info.mean = json.at("mean").get<std::vector<double>>();
    info.stddev = json.at("stddev").get<std::vector<double>>();
    const auto channels = static_cast<std::size_t>(info.channels);
    if ((channels != 1 && channels != 3) || info.mean.size() != channels ||
        info.stddev.size() != channels || info.class_names.empty())
      throw Error(where + ": what it says of its images contradicts itself");
    return info;
  } catch (const Json::exception& error) {
    throw Error(
        fmt::format("{}: what it says of its images cannot be used: {}", where, error.what()));
  }
}

}  // namespace

void add_configuration(CLI::App& command, VisionConfiguration& configuration) {
  command.option_defaults()->always_capture_default();
  command
      .add_option("--model", configuration.settings.model,
                  "Model, or a family of which --preset chooses one")
      ->check(CLI::IsMember(vision_model_names()));
  command.add_option("--preset", configuration.preset, "Settings that go together, see below")
      ->check(CLI::IsMember(vision_preset_names()));
  add_vision_data(command, configuration.settings);
  add_vision_model(command, configuration.settings);
  add_vision_training(command, configuration.settings);
  command.option_defaults()->group("Options");
  command
      .add_option("--evaluate-every", configuration.evaluate_every, "Epochs between evaluations")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  command.add_flag("--tf32", configuration.tf32,
                   "Matrix products of CUDA devices on tensor cores, rounded to 10 bits");
}

void complete(CLI::App& command, VisionConfiguration& configuration, const Settings& settings,
              const std::string& where) {
  VisionSettings& s = configuration.settings;
  fill(command, settings, where);
  s.model = resolved_model(s.model, configuration.preset);
  fill(command, vision_preset(configuration.preset, s.model, s.data),
       "preset " + configuration.preset);
  fill(command, vision_model_settings(s.model), "model " + s.model);
}

Json to_json(const CLI::App& command, const VisionConfiguration& configuration,
             std::uint64_t seed) {
  const VisionSettings& s = configuration.settings;
  Json config = Json::object();
  for (const char* group : {data_group, model_group, training_group})
    config.update(to_json(command, group));
  config["model"] = s.model;
  config["seed"] = seed;
  if (configuration.evaluate_every != 1) config["evaluate-every"] = configuration.evaluate_every;
  if (configuration.tf32) config["tf32"] = true;
  if (s.train_images == 0) config.erase("train-images");
  if (s.test_images == 0) config.erase("test-images");
  return config;
}

Json to_json(const CLI::App& command, const VisionConfiguration& configuration,
             const ImageSetInfo& images, std::uint64_t seed) {
  Json config = to_json(command, configuration, seed);
  config["images"] = {{"name", images.name},
                      {"class_names", images.class_names},
                      {"channels", images.channels},
                      {"mean", images.mean},
                      {"stddev", images.stddev}};
  return config;
}

// `count` of its images, drawn by the seed; 0: all of them.
void keep_some(std::shared_ptr<const ImageSet>& set, std::int64_t count, std::uint64_t seed,
               const char* part) {
  if (count == 0 || !set) return;
  if (count > set->size())
    throw Error(
        fmt::format("train: --{}-images {}: the data set has {}", part, count, set->size()));
  Generator rng(seed);
  const Tensor order = rand_permutation(set->size(), rng);
  const auto* ids = order.data<std::int64_t>();
  set = image_subset(set, {ids, ids + count});
}

ImageData load(const VisionSettings& s) {
  ImageData data = load_image_data(s.data, {.validation = s.validation, .seed = s.seed});
  if (!data.validation && s.select != "last")
    throw Error("train: --select " + s.select +
                " needs validation images: give --validation a share of the training images");
  keep_some(data.train, s.train_images, s.seed, "train");
  keep_some(data.test, s.test_images, s.seed, "test");
  return data;
}

EvaluationOptions evaluation_options(const VisionSettings& settings) {
  return {.height = settings.image_size, .width = settings.image_size};
}

Run train_run(const CLI::App& command, const VisionConfiguration& configuration,
              const ImageData& data, std::uint64_t seed, Device device, const RunOptions& how) {
  const VisionSettings& s = configuration.settings;
  const ImageSetInfo& images = data.train->info();
  const std::unique_ptr<ImageClassifier> model =
      make_vision_model(s, images.channels, data.train->classes());
  Generator rng(seed);
  model->initialize(rng);
  model->to(device);
  const ImageLoaders loaders{loader(s, data.train, true, seed),
                             loader(s, data.validation, false, seed),
                             loader(s, data.test, false, seed)};
  const Task task = image_classification(*model, loaders, device);
  AdamW optimizer(*model, {.lr = s.lr,
                           .beta2 = s.beta2,
                           .weight_decay = s.weight_decay,
                           .groups = vision_groups(s.vector_weight_decay)});
  LrSchedule schedule(optimizer, rate_of(s, (task.steps + s.accumulate - 1) / s.accumulate));
  TrainOptions options;
  options.epochs = s.epochs;
  options.select = selection(s.select);
  options.out = how.out;
  options.resume = how.resume;
  options.checkpoint_every = how.checkpoint_every;
  options.evaluate_every = configuration.evaluate_every;
  options.log_gradients_every = how.log_gradients;
  options.accumulate = s.accumulate;
  options.clip_norm = s.clip_norm;
  options.schedule_per_update = true;
  options.average_decay = s.average_decay;
  Json config = to_json(command, configuration, images, seed);
  if (s.schedule != "cosine") config.erase("epochs");
  options.config = config.dump(-1, ' ', false, Json::error_handler_t::replace);
  options.progress = how.progress;
  options.interrupted = stop_asked;
  Run run{seed, task.score, train(task, optimizer, &schedule, rng, options)};
  tell_corrupt(*loaders.train, "training");
  if (loaders.validation) tell_corrupt(*loaders.validation, "validation");
  if (loaders.test) tell_corrupt(*loaders.test, "test");
  return run;
}

void tell_corrupt(const ImageLoader& loader, const char* part) {
  const CorruptImages corrupt = loader.corrupt();
  if (corrupt.count == 0) return;
  fmt::print(stderr, "lipgrad: left out {} {} image{} that cannot be read:\n", corrupt.count, part,
             corrupt.count == 1 ? "" : "s");
  for (const std::string& error : corrupt.errors) fmt::print(stderr, "  {}\n", error);
  const std::int64_t more = corrupt.count - static_cast<std::int64_t>(corrupt.errors.size());
  if (more > 0) fmt::print(stderr, "  and {} more\n", more);
}

bool is_vision(const Json& config) {
  return config.is_object() && config.contains("images") && config["images"].is_object();
}

TrainedVision make_vision(const std::string& path, const Json& config) {
  VisionConfiguration configuration;
  CLI::App command("", "vision");
  add_configuration(command, configuration);
  Json plain = config;
  plain.erase("images");
  fill(command, from_json(plain, path), path);
  TrainedVision trained{configuration.settings, info_from(config.at("images"), path), nullptr};
  trained.model = make_vision_model(trained.settings, trained.images.channels,
                                    static_cast<std::int64_t>(trained.images.class_names.size()));
  return trained;
}

TrainedVision load_vision(const std::string& path, const Json& config, Device device) {
  TrainedVision trained = make_vision(path, config);
  load_checkpoint(path, *trained.model);
  trained.model->to(device);
  return trained;
}

}  // namespace lipgrad::cli
