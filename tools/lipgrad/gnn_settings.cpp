#include "lipgrad/gnn_settings.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include <lipgrad/core/error.h>
#include <lipgrad/graph/datasets.h>

#include "lipgrad/choices.h"

namespace lipgrad::cli {
namespace {

const Choices<AttentionNormChoice> attention_norms{
    {"none", AttentionNormChoice::none},
    {"lipschitz", AttentionNormChoice::lipschitz},
    {"lipschitz-reference", AttentionNormChoice::lipschitz_reference}};
const Choices<std::optional<NormScope>> norm_scopes{{"auto", std::nullopt},
                                                    {"neighbourhood", NormScope::neighbourhood},
                                                    {"global", NormScope::global}};
const Choices<QueryNorm> query_norms{{"global", QueryNorm::global},
                                     {"per-node", QueryNorm::per_node},
                                     {"edge-expanded", QueryNorm::edge_expanded}};
const Choices<FeatureNormKind> feature_norms{{"none", FeatureNormKind::none},
                                             {"pairnorm", FeatureNormKind::pair_norm},
                                             {"pairnorm-si", FeatureNormKind::pair_norm_si},
                                             {"pairnorm-scs", FeatureNormKind::pair_norm_scs},
                                             {"layernorm", FeatureNormKind::layer_norm},
                                             {"layernorm-graph", FeatureNormKind::graph_layer_norm},
                                             {"centernorm", FeatureNormKind::center_norm},
                                             {"nodenorm", FeatureNormKind::node_norm},
                                             {"meannorm", FeatureNormKind::mean_norm},
                                             {"graphnorm", FeatureNormKind::graph_norm},
                                             {"batchnorm", FeatureNormKind::batch_norm},
                                             {"groupnorm", FeatureNormKind::group_norm},
                                             {"messagenorm", FeatureNormKind::message_norm}};
const Choices<Residual> residuals{{"none", Residual::none},
                                  {"plain", Residual::plain},
                                  {"weighted", Residual::weighted},
                                  {"damped", Residual::damped}};
const Choices<bool> initialisers{{"glorot", false}, {"spectral", true}};

void add_data(CLI::App& command, GnnSettings& s) {
  command.option_defaults()->group(data_group);
  command.add_option("--data", s.data, "Data set: a name, 'generated', or a .npz file");
  command.add_option("--features", s.features, "How node features are kept")
      ->check(CLI::IsMember({"auto", "dense", "sparse"}));
  command
      .add_option("--splits", s.splits,
                  "Training, validation and test nodes: the data set's own, or one of the ten of "
                  "60, 20 and 20 % of geom-gcn (cora, citeseer, pubmed)")
      ->check(CLI::IsMember({"own", "geom-gcn"}));
  command.add_option("--split", s.split, "Which, where there are several")
      ->check(CLI::Range(0, 1000));
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

void add_attention(CLI::App& command, GnnSettings& s) {
  GnnOptions& m = s.model;
  LipschitzNorm& l = s.lipschitz;
  const bool dot = m.layer == GnnLayer::transformer;
  command.add_option("--attention-dropout", m.attention_dropout, "Dropout on attention weights")
      ->check(CLI::Range(0.0, 1.0));
  if (!dot)
    command.add_option("--negative-slope", m.negative_slope, "Slope of LeakyReLU in the scores");
  if (dot)
    command.add_option("--root", m.root, "A term of the node itself beside what it attends to")
        ->default_str("true");
  if (dot)
    command.add_option("--beta-gate", m.beta_gate, "A gate between a node's own term and the rest")
        ->default_str("false");
  add_choice(command, "--attention-norm", s.attention_norm, attention_norms,
             "Norm of the attention scores; the next options are its own");
  command.add_option("--kappa", l.kappa, dot ? "Divides the scores [1]" : "Divides the scores [4]")
      ->check(positive);
  add_choice(command, "--norm-scope", l.scope, norm_scopes,
             dot ? "Where maxima over keys and values are taken [auto: global]"
                 : "Where maxima over sources are taken [auto: neighbourhood]");
  if (dot) add_choice(command, "--query-norm", l.query_norm, query_norms, "Norm of the queries");
  if (dot)
    command.add_option("--pre-scale", l.pre_scale, "Scores keep their 1 / sqrt(features)")
        ->default_str("false");
  command
      .add_option("--norm-joint", l.joint,
                  dot ? "One norm of the queries over all heads"
                      : "One norm of the attention vectors over all heads")
      ->default_str("false");
  command.add_option("--norm-alpha", l.alpha, "Factor of the normalised scores")->check(positive);
  command.add_option("--norm-detach", l.detach, "Gradients take the norms for constants")
      ->default_str("false");
  command
      .add_option("--target-lipschitz", l.target_lipschitz,
                  "Scale each layer's attention so that its Lipschitz constant is at most this")
      ->check(positive);
}

void add_model(CLI::App& command, GnnSettings& s) {
  command.option_defaults()->group(model_group);
  GnnOptions& m = s.model;
  const CLI::Range probability(0.0, 1.0);
  command.add_option("--layers", m.layers, "Layers between the ends")->check(CLI::Range(1, 1000));
  const bool attention = has_attention(m.layer);
  if (attention)
    command.add_option("--heads", m.heads, "Heads of a layer")->check(CLI::Range(1, 1024));
  command
      .add_option("--hidden", m.hidden,
                  attention ? "Features of a head" : "Features after each layer")
      ->check(CLI::Range(1, 1 << 16));
  command
      .add_option("--linear-ends", m.linear_ends,
                  "A linear layer before and after the layers; else the first layer takes the "
                  "features and the last one gives the classes")
      ->default_str("true");
  if (attention)
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
      .add_option("--last-activation", m.last_activation, "ELU and norm after the last layer too")
      ->default_str("false");
  command.add_option("--dropout", m.dropout, "Dropout on the features that enter a layer")
      ->check(probability);
  command.add_option("--input-dropout", m.input_dropout, "The same before the first linear layer")
      ->check(probability);
  command.add_option("--output-dropout", m.output_dropout, "The same before the last linear layer")
      ->check(probability);
  if (attention) add_attention(command, s);
  add_choice(command, "--norm", m.norm.kind, feature_norms,
             "Norm of the features after each layer");
  command.add_option("--norm-scale", m.norm.scale, "Scale of PairNorm; of MessageNorm at first")
      ->check(positive);
  command.add_option("--norm-p", m.norm.p, "NodeNorm divides by the p-th root of the deviation")
      ->check(positive);
  command.add_option("--norm-groups", m.norm.groups, "Groups of GroupNorm")
      ->check(CLI::Range(1, 1024));
  command.add_option("--norm-lambda", m.norm.lambda, "Share of the groups in GroupNorm")
      ->check(non_negative);
  add_choice(command, "--residual", m.residual, residuals,
             "How a layer's result f joins its input h: f; h + f; h + alpha f; h + alpha (f - h)");
  command.add_option("--residual-gain", m.residual_gain, "alpha = gain / layers at first [1]");
  command
      .add_option("--initial-residual", m.initial_residual,
                  "Share of the first layer's input in every layer's result")
      ->check(CLI::Range(0.0, 0.999999));
  if (m.layer != GnnLayer::ggnn)
    command
        .add_option("--identity-map", m.identity_map,
                    "lambda: layer l projects by (1 - b) I + b W, b = ln(lambda / l + 1); 0: by W")
        ->check(non_negative);
  add_choice(command, "--init", m.spectral_init, initialisers,
             "Weights of the layers: Glorot uniform, or normal over its largest singular "
             "value");
  command
      .add_option("--checkpoint-layers", m.checkpoint_layers,
                  "Compute layers again in backward: less memory, the same results")
      ->default_str("false");
}

void add_training(CLI::App& command, GnnSettings& s) {
  command.option_defaults()->group(training_group);
  command.add_option("--lr", s.lr, "Learning rate of Adam")->check(non_negative);
  command.add_option("--weight-decay", s.weight_decay, "L2 penalty, added to the gradient")
      ->check(non_negative);
  command
      .add_option("--layer-weight-decay", s.groups.layer_weight_decay,
                  "The same for weights and biases of the layers")
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
      .add_option(
          "--select", s.select,
          "Which epoch's weights count: best validation score (accuracy, or what the data set "
          "is judged by), lowest validation loss, "
          "or the last")
      ->check(CLI::IsMember({"score", "loss", "last"}));
  command
      .add_option("--parts", s.parts,
                  "Train on so many parts of the graph, one by one; the whole is evaluated")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 31));
  command
      .add_option("--partition", s.partition,
                  "How: random parts, new in every epoch, or parts with few edges between them")
      ->check(CLI::IsMember({"random", "metis"}));
  command
      .add_option("--fanouts", s.fanouts,
                  "Train on sampled neighbourhoods of batches of training nodes: how many edges "
                  "into a node are followed, for each layer from the last one: 10,5; -1: all")
      ->check(CLI::Validator(
          [](const std::string& text) {
            try {
              parse_fanouts(text);
            } catch (const Error& error) {
              return std::string(error.what());
            }
            return std::string();
          },
          "COUNT,COUNT,..."));
  command.add_option("--batch-size", s.batch_size, "Training nodes of such a batch")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 31));
  command.add_option("--seed", s.seed, "Seed of the first run; run r uses seed + r")
      ->check(non_negative);
}

}  // namespace

const Names& gnn_names() {
  static const Names names{{"gcn", GnnLayer::gcn},
                           {"ggnn", GnnLayer::ggnn},
                           {"gat", GnnLayer::gat},
                           {"gatv2", GnnLayer::gatv2},
                           {"transformer", GnnLayer::transformer}};
  return names;
}

GnnLayer gnn_layer(const std::string& name) {
  for (const auto& [known, layer] : gnn_names())
    if (known == name) return layer;
  throw Error(
      fmt::format("unknown model '{}'; there are: gcn, ggnn, gat, gatv2, transformer", name));
}

GnnSettings::GnnSettings(GnnLayer layer) {
  model.layer = layer;
  model.heads = !has_attention(layer) ? 1 : layer == GnnLayer::transformer ? 4 : 8;
  model.hidden = 64;
  model.linear_ends = true;
  model.attention_dropout = 0.3;
  if (layer == GnnLayer::transformer) {
    model.dropout = 0.5;
    lr = 1e-3;
  }
}

std::int64_t GnnSettings::num_epochs() const {
  return epochs.value_or(model.layers <= 4 ? 1000 : model.layers <= 7 ? 1500 : 2500);
}

void add_gnn_settings(CLI::App& command, GnnSettings& settings) {
  command.option_defaults()->always_capture_default();
  add_data(command, settings);
  add_model(command, settings);
  add_training(command, settings);
  command.option_defaults()->group("Options");
}

std::vector<std::int64_t> parse_fanouts(const std::string& text) {
  std::vector<std::int64_t> fanouts;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    std::int64_t count = 0;
    const auto [next, error] = std::from_chars(at, end, count);
    if (error != std::errc() || count < -1 || count == 0 || (next != end && *next != ',') ||
        next + 1 == end)
      throw Error("expected counts such as 10,5, got " + text);
    fanouts.push_back(count);
    at = next == end ? end : next + 1;
  }
  return fanouts;
}

NodeData load(const GnnSettings& s) {
  NodeDataOptions options;
  if (s.features != "auto") options.sparse_features = s.features == "sparse";
  options.row_normalize = s.row_normalize;
  options.split = s.split;
  if (s.splits != "own") options.splits = s.splits;
  NodeData data = load_node_data(s.data, options);
  if (s.missing > 0) {
    Generator rng(s.missing_seed.value_or(s.seed));
    hide_features(data, s.missing, rng);
  }
  return data;
}

std::unique_ptr<Gnn> make_gnn(const GnnSettings& settings, const NodeData& data) {
  return make_gnn(settings, data.features.cols(), data.num_classes,
                  data.edge_features.defined() ? data.edge_features.size(1) : 0);
}

std::unique_ptr<Gnn> make_gnn(const GnnSettings& settings, std::int64_t in, std::int64_t out,
                              std::int64_t edge_features) {
  GnnOptions options = settings.model;
  options.in = in;
  options.out = out;
  if (takes_edge_features(options.layer)) options.edge_features = edge_features;
  LipschitzNorm norm = settings.lipschitz;
  if (settings.attention_norm == AttentionNormChoice::lipschitz_reference) {
    norm = LipschitzNorm::reference_code_2022(
        options.layer == GnnLayer::transformer ? ScoreKind::dot_uvw : ScoreKind::gat);
    norm.kappa = settings.lipschitz.kappa;
  }
  if (settings.attention_norm != AttentionNormChoice::none) options.attention_norm = norm;
  return std::make_unique<Gnn>(options);
}

}  // namespace lipgrad::cli
