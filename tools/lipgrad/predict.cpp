#include <algorithm>
#include <cmath>
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
#include <lipgrad/core/npz.h>
#include <lipgrad/core/tape.h>
#include <lipgrad/ops/softmax.h>
#include <lipgrad/vision/image_file.h>

#include "lipgrad/commands.h"
#include "lipgrad/results.h"
#include "lipgrad/training.h"
#include "lipgrad/vision_training.h"

namespace lipgrad::cli {
namespace {

using Json = nlohmann::json;

struct Options {
  std::string checkpoint, json, inputs, logits, data, dtype = "f32", device = "cpu";
  std::vector<std::string> images;
  std::int64_t top = 3, test = 0;
};

DType dtype_of(const Options& o) { return o.dtype == "f64" ? f64 : f32; }

// A table of classes and their probabilities, JSON of the same, and all logits.
class Predictions {
 public:
  Predictions(const Options& o, std::vector<std::string> classes, std::int64_t images)
      : options_(o), classes_(std::move(classes)), table_(columns(o)) {
    json_ = {{"checkpoint", o.checkpoint}, {"images", Json::array()}};
    if (!o.logits.empty())
      logits_ =
          full({images, static_cast<std::int64_t>(classes_.size())}, std::nan(""), dtype_of(o));
  }

  // Logits (B, classes) of the images from `first` on; label: of a test image.
  void add(const std::vector<std::string>& names, std::int64_t first, const Tensor& logits,
           const std::string& label = {}) {
    const Tensor local = logits.to(cpu_device);
    if (logits_.defined()) {
      Tensor rows = logits_.alias(local.shape(), first * local.size(1));
      copy_into(rows, local);
    }
    const std::vector<double> p = softmax(local.to(f64)).to_vector<double>();
    for (std::size_t i = 0; i < names.size(); ++i)
      add_row(names[i], label, p.data() + i * classes_.size());
  }
  void add_error(const std::string& name, const std::string& error) {
    std::fprintf(stderr, "lipgrad: %s\n", error.c_str());
    json_["images"].push_back({{"image", name}, {"error", error}});
  }
  void report() const {
    if (any_) std::fputs(table_.str().c_str(), stdout);
    if (logits_.defined()) save_npy(options_.logits, logits_);
    if (!options_.json.empty()) write_json(options_.json, json_);
  }

 private:
  static std::vector<std::string> columns(const Options& o) {
    if (o.test > 0) return {"image", "label", "class", "probability"};
    return {"image", "class", "probability"};
  }
  void add_row(const std::string& name, const std::string& label, const double* p) {
    std::vector<std::size_t> order(classes_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return p[a] > p[b]; });
    order.resize(std::min(order.size(), static_cast<std::size_t>(options_.top)));
    any_ = true;
    Json& entry = json_["images"].emplace_back(Json{{"image", name}, {"classes", Json::array()}});
    if (!label.empty()) entry["label"] = label;
    for (const std::size_t c : order) {
      const bool first = c == order.front();
      std::vector<std::string> row{first ? name : "", classes_[c],
                                   fmt::format("{:.1f} %", 100 * p[c])};
      if (options_.test > 0) row.insert(row.begin() + 1, first ? label : "");
      table_.add_row(row);
      entry["classes"].push_back({{"class", classes_[c]}, {"probability", p[c]}});
    }
  }

  const Options& options_;
  std::vector<std::string> classes_;
  Table table_;
  Json json_;
  Tensor logits_;
  bool any_ = false;
};

// The images of a .npy file, or of an archive the array "images", "x" or the only one.
Tensor load_inputs(const std::string& path) {
  if (!path.ends_with(".npz")) return load_npy(path);
  const NpzFile file(path);
  std::string name = file.names().size() == 1 ? file.names().front() : "images";
  if (!file.contains(name)) name = "x";
  return to_tensor(file.read(name));
}

void predict_array(const Options& o, const TrainedVision& trained, Device device,
                   Predictions& predictions, const Tensor& inputs) {
  constexpr std::int64_t batch = 32;
  const std::int64_t n = inputs.size(0), rest = inputs.shape().trailing(1);
  for (std::int64_t first = 0; first < n; first += batch) {
    const std::int64_t count = std::min(batch, n - first);
    std::vector<std::string> names;
    for (std::int64_t i = 0; i < count; ++i)
      names.push_back(fmt::format("{}[{}]", o.inputs, first + i));
    const Tensor part = inputs.alias(inputs.shape().with(0, count), first * rest);
    predictions.add(names, first,
                    trained.model->forward(part.to(dtype_of(o)).to(device), Mode::eval()));
  }
}

// The files, then the first test images of the data set.
bool predict_files(const Options& o, const TrainedVision& trained, Device device,
                   const ImageSet* test, Predictions& predictions) {
  const EvaluationOptions evaluation = evaluation_options(trained.settings);
  const ImageTransform transform(trained.images, {}, evaluation);
  TransformScratch scratch;
  bool complete = true;
  const std::int64_t files = static_cast<std::int64_t>(o.images.size());
  for (std::int64_t i = 0; i < files + o.test; ++i) {
    const bool is_file = i < files;
    const std::string name =
        is_file ? o.images[static_cast<std::size_t>(i)] : test->name(i - files);
    const std::string label = is_file ? "" : trained.images.class_names[test->label(i - files)];
    Image image;
    try {
      if (is_file)
        image = load_image(name, {.channels = trained.images.channels});
      else
        test->read(i - files, image);
    } catch (const Error& error) {
      predictions.add_error(name, error.what());
      complete = false;
      continue;
    }
    Tensor input = empty({1, trained.images.channels, evaluation.height, evaluation.width});
    transform.evaluate(image, scratch, input.mutable_data<float>());
    predictions.add({name}, i,
                    trained.model->forward(input.to(dtype_of(o)).to(device), Mode::eval()), label);
  }
  return complete;
}

int predict_images(const Options& o, const Json& config, Device device) {
  if (!o.data.empty()) throw Error("predict: --data is for graph networks; give images");
  if (o.inputs.empty() && o.images.empty() && o.test == 0)
    throw Error("predict: no images: name files, or give --test a number, or --inputs an array");
  if (!o.inputs.empty() && (!o.images.empty() || o.test > 0))
    throw Error("predict: --inputs stands instead of image files and --test");
  const TrainedVision trained = load_vision(o.checkpoint, config, device);
  trained.model->to(dtype_of(o));
  if (o.inputs.empty()) {
    const auto classes = static_cast<std::int64_t>(trained.images.class_names.size());
    const ImageData data = o.test > 0 ? load(trained.settings) : ImageData();
    if (o.test > 0 && (!data.test || o.test > data.test->size()))
      throw Error(fmt::format("predict: --test {}: {} has {} test images", o.test,
                              trained.settings.data, data.test ? data.test->size() : 0));
    if (o.test > 0 && data.test->classes() != classes)
      throw Error(fmt::format("predict: {} has {} classes, the model {}", trained.settings.data,
                              data.test->classes(), classes));
    Predictions predictions(o, trained.images.class_names,
                            static_cast<std::int64_t>(o.images.size()) + o.test);
    const bool complete = predict_files(o, trained, device, data.test.get(), predictions);
    predictions.report();
    return complete ? success : failure;
  }
  const Tensor inputs = load_inputs(o.inputs);
  const std::int64_t side = trained.settings.image_size;
  if (inputs.rank() != 4 || !is_floating(inputs.dtype()) ||
      inputs.size(1) != trained.images.channels || inputs.size(2) != side || inputs.size(3) != side)
    throw Error(fmt::format("{}: {} {}; the model takes images (B, {}, {}, {}) of f32 or f64",
                            o.inputs, name_of(inputs.dtype()), inputs.shape().str(),
                            trained.images.channels, side, side));
  Predictions predictions(o, trained.images.class_names, inputs.size(0));
  predict_array(o, trained, device, predictions, inputs);
  predictions.report();
  return success;
}

int predict_nodes(const Options& o, const Json& config, Device device) {
  if (o.test > 0 || o.logits.empty() || !o.images.empty() || !o.inputs.empty())
    throw Error(o.checkpoint +
                ": not a checkpoint of `lipgrad train vision`; of a graph network, give "
                "--logits FILE.npy and no images");
  if (!o.json.empty()) throw Error("predict: of a graph network there is no --json");
  GnnSettings settings = gnn_settings_of(config, o.checkpoint);
  if (!o.data.empty()) settings.data = o.data;
  NodeData data = load(settings);
  data.features = data.features.to(dtype_of(o));
  if (data.edge_features.defined()) data.edge_features = data.edge_features.to(dtype_of(o));
  data = data.to(device);
  const std::unique_ptr<Gnn> model = make_gnn(settings, data);
  load_checkpoint(o.checkpoint, *model);
  model->to(dtype_of(o));
  model->to(device);
  const Tensor logits = model->forward(data.graph, data.features, data.edge_features, Mode::eval());
  save_npy(o.logits, logits);
  fmt::print("{}: logits {} of the nodes of {}\n", o.logits, logits.shape().str(), data.name);
  return success;
}

int run(const Options& o) {
  for (const std::string& path : {o.json, o.logits})
    if (!path.empty()) check_writable(path);
  const Device device = parse_device(o.device);
  const Json config =
      Json::parse(read_checkpoint_info(o.checkpoint).config, nullptr, /*exceptions=*/false);
  const NoGrad off;
  return is_vision(config) ? predict_images(o, config, device) : predict_nodes(o, config, device);
}

}  // namespace

void add_predict(CLI::App& app, int& exit) {
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "predict", "Tell what a trained model sees in images, JPEG or PNG, or give its logits");
  command->option_defaults()->always_capture_default();
  command->add_option("images", o->images, "Image files")->type_name("FILE");
  command
      ->add_option("--test", o->test,
                   "Also so many test images of the data set that the model was trained on")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1000000}));
  command->add_option("--checkpoint", o->checkpoint, "Of `lipgrad train`, such as best.lip")
      ->required()
      ->type_name("FILE");
  command->add_option("--top", o->top, "The likeliest classes")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1000000}));
  command
      ->add_option("--inputs", o->inputs,
                   "Instead of files: images (B, C, H, W) as the model takes them, .npy or .npz")
      ->type_name("FILE");
  command
      ->add_option("--logits", o->logits,
                   "Also write the logits to this .npy file: a row for each image, or, of a graph "
                   "network, for each node")
      ->type_name("FILE");
  command->add_option("--data", o->data, "The data set of nodes, instead of the checkpoint's");
  command->add_option("--dtype", o->dtype, "What is computed in")
      ->check(CLI::IsMember({"f32", "f64"}));
  add_device(*command, o->device);
  command->add_option("--json", o->json, "Also write the results to this file");
  command->callback([o, &exit] { exit = run(*o); });
}

}  // namespace lipgrad::cli
