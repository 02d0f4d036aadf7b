#include "lipgrad/gat_settings.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include <lipgrad/core/error.h>
#include <lipgrad/graph/datasets.h>

namespace lipgrad::cli {
namespace {

// Options whose values have names.
template <class T>
using Names = std::vector<std::pair<std::string, T>>;

const Names<AttentionNorm> attention_norms{
    {"none", AttentionNorm::none},
    {"lipschitz", AttentionNorm::lipschitz},
    {"lipschitz-reference", AttentionNorm::lipschitz_reference}};
const Names<FeatureNormKind> feature_norms{{"none", FeatureNormKind::none},
                                           {"pairnorm", FeatureNormKind::pair_norm},
                                           {"pairnorm-si", FeatureNormKind::pair_norm_si},
                                           {"pairnorm-scs", FeatureNormKind::pair_norm_scs},
                                           {"layernorm", FeatureNormKind::layer_norm},
                                           {"layernorm-graph", FeatureNormKind::graph_layer_norm},
                                           {"centernorm", FeatureNormKind::center_norm}};
const Names<Residual> residuals{{"none", Residual::none},
                                {"plain", Residual::plain},
                                {"weighted", Residual::weighted},
                                {"damped", Residual::damped}};
const Names<bool> initialisers{{"glorot", false}, {"spectral", true}};

// An option that takes one of the names; the first is the default.
template <class T>
void add_choice(CLI::App& command, const char* option, T& value, const Names<T>& names,
                const std::string& help) {
  std::vector<std::string> all;
  for (const auto& [name, meaning] : names) all.push_back(name);
  command
      .add_option_function<std::string>(
          option,
          [&value, &names](const std::string& given) {
            for (const auto& [name, meaning] : names)
              if (name == given) value = meaning;
          },
          help)
      ->default_str(names.front().first)
      ->check(CLI::IsMember(all));
}

// A finite number of at least 0, or above 0.
CLI::Validator number(const char* name, bool zero) {
  return CLI::Validator(
      [=](std::string& text) {
        double value = 0;
        if (CLI::detail::lexical_cast(text, value) && std::isfinite(value) &&
            (zero ? value >= 0 : value > 0))
          return std::string();
        return fmt::format("expected a number {} 0, got {}", zero ? "of at least" : "above", text);
      },
      name);
}
const CLI::Validator non_negative = number("NONNEGATIVE", true);
const CLI::Validator positive = number("POSITIVE", false);
const CLI::Range any_count(std::int64_t{0}, std::int64_t{1} << 40);

void add_data(CLI::App& command, GatSettings& s) {
  command.option_defaults()->group(data_group);
  command.add_option("--data", s.data, "Data set: a name, 'generated', or a .npz file");
  command.add_option("--features", s.features, "How node features are kept")
      ->check(CLI::IsMember({"auto", "dense", "sparse"}));
  command
      .add_option("--row-normalize", s.row_normalize, "Divide every node's features by their sum")
      ->default_str("false");
  command
      .add_option("--missing", s.missing,
                  "Percentage of the nodes outside the training set whose features are set to zero")
      ->check(CLI::Range(0.0, 100.0));
  command.add_option("--missing-seed", s.missing_seed,
                     "Seed that chooses these nodes (default: that of the first run)");
}

void add_model(CLI::App& command, GatSettings& s) {
  command.option_defaults()->group(model_group);
  GatOptions& m = s.model;
  const CLI::Range probability(0.0, 1.0);
  command.add_option("--layers", m.layers, "Attention layers")->check(CLI::Range(1, 1000));
  command.add_option("--heads", m.heads, "Heads of a layer")->check(CLI::Range(1, 1024));
  command.add_option("--hidden", m.hidden, "Features of a head")->check(CLI::Range(1, 1 << 16));
  command
      .add_option("--linear-ends", m.linear_ends,
                  "A linear layer before and after the attention layers; else the first attention "
                  "layer takes the features and the last one gives the classes")
      ->default_str("true");
  command
      .add_option("--out-heads", m.out_heads,
                  "Heads of the last layer, averaged, without linear ends")
      ->check(CLI::Range(1, 1024));
  command
      .add_option(
          "--input-width", m.input_width,
          "Features after the first linear layer; 0: as many as a head has, or as all heads "
          "for an initial residual or an identity map")
      ->check(CLI::Range(0, 1 << 20));
  command.add_option("--input-activation", m.input_activation, "ELU after the first linear layer")
      ->default_str("false");
  command
      .add_option("--last-activation", m.last_activation,
                  "ELU and norm after the last attention layer too")
      ->default_str("false");
  command.add_option("--dropout", m.dropout, "Dropout on the features that enter a layer")
      ->check(probability);
  command.add_option("--input-dropout", m.input_dropout, "The same before the first linear layer")
      ->check(probability);
  command.add_option("--output-dropout", m.output_dropout, "The same before the last linear layer")
      ->check(probability);
  command.add_option("--attention-dropout", m.attention_dropout, "Dropout on attention weights")
      ->check(probability);
  command.add_option("--negative-slope", m.negative_slope, "Slope of LeakyReLU in the scores");
  add_choice(command, "--attention-norm", m.attention_norm, attention_norms,
             "Norm of the attention scores");
  command.add_option("--kappa", m.kappa, "LipschitzNorm bounds scores by 1 / kappa")
      ->check(positive);
  add_choice(command, "--norm", m.norm, feature_norms, "Norm of the features after each layer");
  command.add_option("--norm-scale", m.norm_scale, "Scale of PairNorm")->check(positive);
  add_choice(command, "--residual", m.residual, residuals,
             "How a layer's result f joins its input h: f; h + f; h + alpha f; h + alpha (f - h)");
  command.add_option("--residual-gain", m.residual_gain, "alpha = gain / layers at first [1]");
  command
      .add_option("--initial-residual", m.initial_residual,
                  "Share of the first layer's input in every layer's result")
      ->check(CLI::Range(0.0, 0.999999));
  command
      .add_option("--identity-map", m.identity_map,
                  "lambda: layer l projects by (1 - b) I + b W, b = ln(lambda / l + 1); 0: by W")
      ->check(non_negative);
  add_choice(command, "--init", m.spectral_init, initialisers,
             "Weights of the attention layers: Glorot uniform, or normal over its largest singular "
             "value");
}

void add_training(CLI::App& command, GatSettings& s) {
  command.option_defaults()->group(training_group);
  command.add_option("--lr", s.lr, "Learning rate of Adam")->check(non_negative);
  command.add_option("--weight-decay", s.weight_decay, "L2 penalty, added to the gradient")
      ->check(non_negative);
  command
      .add_option("--layer-weight-decay", s.groups.layer_weight_decay,
                  "The same for weights and biases of attention layers")
      ->check(non_negative);
  command
      .add_option("--scale-weight-decay", s.groups.scale_weight_decay,
                  "The same for attention vectors, residual weights and norms")
      ->check(non_negative);
  command
      .add_option("--scale-lr-factor", s.groups.scale_lr_factor,
                  "Factor of the learning rate of these")
      ->check(non_negative);
  command
      .add_option(
          "--schedule", s.schedule,
          "Learning rate: constant, divided by 10 when validation loss has not improved for "
          "10 epochs, or a cosine down to 0")
      ->check(CLI::IsMember({"constant", "plateau", "cosine"}));
  command
      .add_option("--epochs", s.epochs, "Epochs [by layers: 1000, from 5 on 1500, from 8 on 2500]")
      ->check(any_count);
  command
      .add_option("--patience", s.patience,
                  "Stop after so many epochs without a better one; 0: never")
      ->check(any_count);
  command
      .add_option("--select", s.select,
                  "Which epoch's weights count: best validation accuracy, lowest validation loss, "
                  "or the last")
      ->check(CLI::IsMember({"accuracy", "loss", "last"}));
  command.add_option("--seed", s.seed, "Seed of the first run; run r uses seed + r")
      ->check(non_negative);
}

// alpha L at first that served best at 2, 10 and 30 layers, straight between them.
double depth_gain(std::int64_t layers) {
  const double l = static_cast<double>(layers);
  return l <= 2 ? l : l <= 10 ? 2 + (l - 2) * 3 / 8 : std::min(12.0, 5 + (l - 10) * 7 / 20);
}

}  // namespace

GatSettings::GatSettings() {
  model.heads = 8;
  model.hidden = 64;
  model.linear_ends = true;
  model.attention_dropout = 0.3;
}

std::int64_t GatSettings::num_epochs() const {
  return epochs.value_or(model.layers <= 4 ? 1000 : model.layers <= 7 ? 1500 : 2500);
}

void add_gat_settings(CLI::App& command, GatSettings& settings) {
  command.option_defaults()->always_capture_default();
  add_data(command, settings);
  add_model(command, settings);
  add_training(command, settings);
  command.option_defaults()->group("Options");
}

std::vector<std::string> preset_names() {
  return {"paper", "standard", "contrast", "depth", "missing"};
}

Settings preset(const std::string& name, std::optional<std::int64_t> layers,
                const std::string& data) {
  if (name == "paper") return {};
  if (name == "standard")
    return {{"linear-ends", "false"},  {"layers", "2"},
            {"hidden", "8"},           {"attention-dropout", "0.6"},
            {"row-normalize", "true"}, {"schedule", "constant"},
            {"epochs", "200"},         {"select", "accuracy"}};
  if (name == "contrast")
    return {{"layers", "30"},      {"heads", "4"},           {"attention-norm", "lipschitz"},
            {"lr", "0.001"},       {"schedule", "constant"}, {"epochs", "220"},
            {"select", "accuracy"}};
  if (name == "depth")
    return {{"layers", "30"},
            {"heads", "1"},
            {"row-normalize", "true"},
            {"attention-norm", "lipschitz"},
            {"norm", "centernorm"},
            {"residual", "damped"},
            {"residual-gain", fmt::format("{}", depth_gain(layers.value_or(30)))},
            {"initial-residual", "0.1"},
            {"identity-map", "0.5"},
            {"init", "spectral"},
            {"input-activation", "true"},
            {"last-activation", "true"},
            {"dropout", "0.2"},
            {"input-dropout", "0.8"},
            {"output-dropout", "0.8"},
            {"attention-dropout", "0"},
            {"lr", "0.01"},
            {"layer-weight-decay", "0.01"},
            {"scale-weight-decay", "0"},
            {"scale-lr-factor", "0.02"},
            {"schedule", "constant"},
            {"epochs", "250"},
            {"select", "loss"}};
  if (name == "missing") {
    const bool citeseer = data == "citeseer";
    return {{"layers", citeseer ? "9" : "11"},
            {"heads", "1"},
            {"missing", "100"},
            {"attention-norm", "lipschitz"},
            {"schedule", "cosine"},
            {"epochs", citeseer ? "300" : "500"},
            {"select", "accuracy"}};
  }
  throw Error(
      fmt::format("unknown preset '{}'; there are: {}", name, fmt::join(preset_names(), ", ")));
}

std::string describe_presets() {
  std::string text = "Presets, for what neither the command line nor --config sets:\n";
  text += "  paper: the defaults above, the LipschitzNorm paper's protocol\n";
  for (const std::string& name : preset_names()) {
    if (name == "paper") continue;
    std::string line = "  " + name + ":";
    for (const auto& [option, value] : preset(name, std::nullopt, "cora")) {
      const std::string word = fmt::format(" {} {}", option, value);
      const std::size_t begin = line.rfind('\n') == std::string::npos ? 0 : line.rfind('\n') + 1;
      if (line.size() - begin + word.size() > 96) line += "\n   ";
      line += word + ",";
    }
    line.back() = '\n';
    text += line;
  }
  text +=
      "  (depth: the gain is 2 at 2 layers, 5 at 10, 12 from 30 on; missing: on citeseer 9 "
      "layers and\n  300 epochs)";
  return text;
}

NodeData load(const GatSettings& s) {
  NodeDataOptions options;
  if (s.features != "auto") options.sparse_features = s.features == "sparse";
  options.row_normalize = s.row_normalize;
  NodeData data = load_node_data(s.data, options);
  if (s.missing > 0) {
    Generator rng(s.missing_seed.value_or(s.seed));
    hide_features(data, s.missing, rng);
  }
  return data;
}

std::unique_ptr<Gat> make_gat(const GatSettings& settings, const NodeData& data) {
  GatOptions options = settings.model;
  options.in = data.features.cols();
  options.out = data.num_classes;
  return std::make_unique<Gat>(options);
}

}  // namespace lipgrad::cli
