#include "lipgrad/sweep_presets.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lipgrad/core/error.h>

#include "lipgrad/training.h"

namespace lipgrad::cli {
namespace {

// Methods by the names of the paper's tables.
const std::vector<Choice> table1_methods{
    {"GCN", {{"model", "gcn"}}},
    {"GGNN", {{"model", "ggnn"}}},
    {"GAT", {{"model", "gat"}, {"attention-norm", "none"}}},
    {"GAT-Pn", {{"model", "gat"}, {"attention-norm", "none"}, {"norm", "pairnorm"}}},
    {"GAT-Lip", {{"model", "gat"}, {"attention-norm", "lipschitz"}}}};
// The transformer's dropout is that of the authors' script.
const std::vector<Choice> figure5_methods{
    {"GAT", {{"model", "gat"}, {"attention-norm", "none"}}},
    {"GT", {{"model", "transformer"}, {"attention-norm", "none"}, {"dropout", "0.5"}}},
    {"GAT-Pn", {{"model", "gat"}, {"attention-norm", "none"}, {"norm", "pairnorm"}}},
    {"GT-Ln",
     {{"model", "transformer"},
      {"attention-norm", "none"},
      {"norm", "layernorm-graph"},
      {"dropout", "0.5"}}},
    {"GAT-Lip", {{"model", "gat"}, {"attention-norm", "lipschitz"}}},
    {"GT-Lip", {{"model", "transformer"}, {"attention-norm", "lipschitz"}, {"dropout", "0.5"}}}};

// The recipe of `train --preset depth` without each of its parts in turn.
const std::vector<Choice> ablation_methods{
    {"whole", {}},
    {"no-initial-residual", {{"initial-residual", "0"}}},
    {"no-identity-map", {{"identity-map", "0"}}},
    {"no-residual", {{"residual", "none"}}},
    {"plain-residual", {{"residual", "plain"}}},
    {"no-centernorm", {{"norm", "none"}}},
    {"glorot", {{"init", "glorot"}}},
    {"no-input-activation", {{"input-activation", "false"}}},
    {"no-last-activation", {{"last-activation", "false"}}},
    {"same-rate-for-scales", {{"scale-lr-factor", "1"}}},
    {"little-layer-decay", {{"layer-weight-decay", "0.0005"}}}};

// The methods of models that there are; the others are told.
Axis methods(const std::vector<Choice>& all, std::vector<std::string>& notes) {
  const std::vector<std::string> models = model_names();
  Axis axis{method_axis, {}};
  std::vector<std::string> missing;
  for (const Choice& choice : all) {
    const bool known =
        std::all_of(choice.settings.begin(), choice.settings.end(), [&](const auto& setting) {
          return setting.first != "model" ||
                 std::find(models.begin(), models.end(), setting.second) != models.end();
        });
    if (known)
      axis.choices.push_back(choice);
    else
      missing.push_back(choice.label);
  }
  if (!missing.empty())
    notes.push_back(fmt::format("Not in this version: {}.", fmt::join(missing, ", ")));
  return axis;
}

using Texts = std::vector<std::string>;

void use_protocol(SweepPreset& preset, const std::string& protocol, const std::string& epochs) {
  Settings& common = preset.grid.common;
  Texts& notes = preset.layout.notes;
  common.emplace_back("heads", "4");
  notes.push_back(
      "From the paper: public split, raw features, a linear layer to 64 features, attention layers "
      "of 4 heads of 64 features, a linear layer; dropout 0.6, of attention 0.3; Adam, weight "
      "decay "
      "5e-4.");
  if (protocol == "paper") {
    notes.push_back(
        "Protocol `paper`, as the authors' code has it: learning rate 0.005, divided by 10 when "
        "validation loss has not improved for 10 epochs; 1000 epochs, 1500 from 5 layers on, 2500 "
        "from 8 on; the last epoch counts. Deep networks do not train under it.");
    if (!epochs.empty()) common.emplace_back("epochs", epochs);
    return;
  }
  if (protocol != "contrast")
    throw Error(
        fmt::format("sweep: there is no protocol '{}'; there are: contrast, paper", protocol));
  common.emplace_back("row-normalize", "false");
  common.emplace_back("lr", "0.001");
  common.emplace_back("schedule", "constant");
  common.emplace_back("select", "score");
  common.emplace_back("epochs", epochs.empty() ? "220" : epochs);
  notes.push_back(fmt::format(
      "Protocol `contrast` deviates where the paper's does not train at depth: learning rate "
      "0.001, "
      "constant (paper: 0.005, divided by 10 on plateaus); {} epochs (paper: 1000 to 2500); the "
      "epoch of the best validation accuracy counts (paper: the last). `--protocol paper` is the "
      "paper's own.",
      common.back().second));
}

SweepPreset table1(const std::string& protocol, bool quick) {
  SweepPreset p;
  p.layout.title = "Table 1 of the LipschitzNorm paper: missing features";
  use_protocol(p, protocol, quick ? "120" : "");
  const Texts data = quick ? Texts{"cora", "citeseer"} : Texts{"cora", "citeseer", "pubmed"};
  const Texts depths = quick ? Texts{"2", "5", "10"}
                             : Texts{"2", "3", "4", "5", "6", "8", "9", "10", "11", "12", "15"};
  p.grid.axes = {methods(table1_methods, p.layout.notes), make_axis("data", data),
                 make_axis("missing", {"0", "100"}), make_axis("layers", depths),
                 make_seeds({quick ? "2" : "5"})};
  p.grid.choose = {"layers"};
  p.layout.columns = {"data", "missing"};
  p.layout.notes.push_back(
      "100 % missing: the features of all nodes outside the training set are zero.");
  return p;
}

SweepPreset figure5(const std::string& protocol, bool quick) {
  SweepPreset p;
  p.layout.title = "Figure 5 of the LipschitzNorm paper: score against depth";
  use_protocol(p, protocol, quick ? "150" : "");
  const Texts data = quick ? Texts{"cora"} : Texts{"cora", "pubmed"};
  const Texts depths =
      quick ? Texts{"2", "5", "10", "20", "30"} : Texts{"2", "5", "10", "15", "20", "25", "30"};
  p.grid.axes = {methods(figure5_methods, p.layout.notes), make_axis("data", data),
                 make_axis("layers", depths), make_seeds({quick ? "1" : "5"})};
  p.layout.sections = {"data"};
  p.layout.columns = {"layers"};
  p.layout.notes.push_back("Published values are read off the paper's figure, +- 0.5 points.");
  return p;
}

SweepPreset gradients(const std::string& protocol, bool quick) {
  SweepPreset p;
  p.layout.title = "Gradients and training of deep networks, without and with LipschitzNorm";
  p.layout.figure = SweepFigure::gradients;
  use_protocol(p, protocol, quick ? "200" : "400");
  p.grid.common.emplace_back("data", "cora");
  p.grid.axes = {Axis{method_axis,
                      {{"none", {{"model", "gat"}, {"attention-norm", "none"}}},
                       {"LipschitzNorm", {{"model", "gat"}, {"attention-norm", "lipschitz"}}}}},
                 make_axis("layers", {"2", "5", "10", "20", "30"}), make_seeds({"1"})};
  p.grid.log_gradients = 1;
  p.layout.columns = {"layers"};
  p.layout.notes.push_back(
      "In the paper, 20 layers without the norm reach gradients of 10^8.8 within 100 epochs, with "
      "it 10^3.3 (read off its heat maps; data set and kind of norm are not said there), and "
      "training accuracy ends after 400 epochs at 1.00, 0.83, 0.37, 0.15, 0.15 for 2, 5, 10, 20, "
      "30 layers without the norm, and at 1.00, 1.00, 1.00, 0.89, 0.74 with it.");
  return p;
}

SweepPreset ablation(bool quick) {
  SweepPreset p;
  p.layout.title = "The recipe for depth without each of its parts, without and with LipschitzNorm";
  p.layout.figure = SweepFigure::ablation;
  p.grid.common = {{"model", "gat"}, {"preset", "depth"}, {"data", "cora"}};
  if (quick) p.grid.common.emplace_back("epochs", "120");
  p.grid.axes = {Axis{method_axis, ablation_methods},
                 make_axis("attention-norm", {"none", "lipschitz"}),
                 make_axis("dropout", quick ? Texts{"0.2"} : Texts{"0.2", "0.6"}),
                 make_axis("lr", quick ? Texts{"0.01"} : Texts{"0.01", "0.002"}),
                 make_axis("layers", quick ? Texts{"10", "30"} : Texts{"10", "30", "64"}),
                 make_seeds({quick ? "1" : "3"})};
  p.layout.sections = {"dropout", "lr"};
  p.layout.columns = {"layers", "attention-norm"};
  p.layout.notes.push_back(
      "Settings of `lipgrad train --preset depth`; each line changes the one part it names.");
  return p;
}

// Deep and narrow models of images, small and few enough for two cores: 160 steps of 32 images.
SweepPreset warmup(bool quick) {
  SweepPreset p;
  p.layout.title =
      "Learning rates at which Swin and LipsFormer-Swin train, without and with warm-up";
  p.layout.figure = SweepFigure::rates;
  p.grid.common = {{"data", "fashion-mnist"}, {"preset", "micro"},  {"train-images", "2560"},
                   {"test-images", "1000"},   {"image-size", "16"}, {"patch", "2"},
                   {"window", "4"},           {"width", "32"},      {"heads", "2,4"},
                   {"batch-size", "32"},      {"epochs", "2"},      {"evaluate-every", "2"},
                   {"schedule", "cosine"},    {"clip-norm", "0"},   {"drop-path", "0"},
                   {"crop", "none"},          {"flip", "0"},        {"label-smoothing", "0"}};
  p.grid.axes = {
      Axis{method_axis,
           {{"Swin", {{"model", "swin"}}}, {"LipsFormer", {{"model", "lipsformer_swin"}}}}},
      make_axis("warmup-epochs", {"0", "0.5"}),
      make_axis("depths", quick ? Texts{"2,2", "12,12"} : Texts{"2,2", "6,6", "12,12"}),
      make_axis("lr", quick
                          ? Texts{"0.001", "0.004", "0.016"}
                          : Texts{"0.0005", "0.001", "0.002", "0.004", "0.008", "0.016", "0.032"}),
      make_seeds({"1"})};
  p.layout.sections = {"warmup-epochs"};
  p.layout.columns = {"lr"};
  p.layout.notes = {
      "Both models: 16 x 16 pixels, patches of 2, windows of 4, 32 and 64 features, 2 and 4 heads; "
      "`depths` are the blocks of the two stages. The parts are each model's own: Swin has "
      "LayerNorm before branches, dot products and shifted windows, LipsFormer-Swin CenterNorm "
      "after branches, cosines, weighted residuals, convolutions and spectral initialisation.",
      "Both are trained alike: AdamW (0.9, 0.98), weight decay 0.05, batches of 32, a cosine; the "
      "gradient is not clipped (clip-norm 0), nothing is dropped, images are not augmented.",
      "Warm-up: the rate rises evenly from a thousandth of it over the first quarter of the "
      "steps."};
  return p;
}

struct TableRow {
  const char* method;
  std::array<Published, 6> values;  // Cora 0 %, 100 %, CiteSeer 0 %, 100 %, PubMed 0 %, 100 %
};
const std::vector<TableRow> table1_published{{"GCN",
                                              {{{82.5, 1.2, 2},
                                                {58.8, 3.5, 2},
                                                {69.5, 2.1, 2},
                                                {31.3, 2.7, 2},
                                                {77.9, 1.4, 2},
                                                {44.9, 4.4, 2}}}},
                                             {"GGNN",
                                              {{{81.8, 2.0, 2},
                                                {68.2, 2.5, 6},
                                                {68.5, 1.9, 3},
                                                {40.5, 1.4, 5},
                                                {78.4, 2.1, 4},
                                                {56.6, 1.9, 4}}}},
                                             {"GAT",
                                              {{{82.3, 2.3, 2},
                                                {65.3, 2.1, 4},
                                                {69.3, 1.6, 2},
                                                {42.8, 1.6, 4},
                                                {77.4, 0.5, 6},
                                                {63.1, 0.7, 4}}}},
                                             {"GAT-Pn",
                                              {{{78.8, 0.6, 4},
                                                {73.8, 1.2, 12},
                                                {67.2, 0.8, 4},
                                                {51.7, 1.1, 10},
                                                {77.6, 1.6, 8},
                                                {70.4, 1.1, 12}}}},
                                             {"GAT-Lip",
                                              {{{83.1, 0.5, 5},
                                                {75.3, 0.9, 11},
                                                {69.1, 1.5, 3},
                                                {50.9, 1.9, 9},
                                                {78.9, 1.3, 5},
                                                {73.3, 1.4, 15}}}}};

constexpr std::array figure5_depths{"2", "5", "10", "15", "20", "25", "30"};
struct FigureRow {
  const char *data, *method;
  std::array<double, 7> values;
};
const std::vector<FigureRow> figure5_published{
    {"cora", "GAT", {.822, .790, .574, .352, .318, .247, .235}},
    {"cora", "GT", {.815, .830, .647, .519, .279, .258, .226}},
    {"cora", "GAT-Pn", {.797, .786, .777, .752, .680, .636, .542}},
    {"cora", "GT-Ln", {.815, .804, .778, .695, .600, .535, .508}},
    {"cora", "GAT-Lip", {.820, .830, .806, .789, .769, .720, .692}},
    {"cora", "GT-Lip", {.815, .814, .805, .806, .775, .745, .718}},
    {"pubmed", "GAT", {.771, .786, .651, .579, .520, .494, .253}},
    {"pubmed", "GT", {.763, .770, .608, .548, .501, .327, .281}},
    {"pubmed", "GAT-Pn", {.731, .750, .702, .648, .600, .596, .556}},
    {"pubmed", "GT-Ln", {.757, .772, .688, .605, .595, .574, .519}},
    {"pubmed", "GAT-Lip", {.782, .809, .757, .728, .741, .677, .653}},
    {"pubmed", "GT-Lip", {.777, .781, .732, .703, .691, .666, .621}},
    {"ogbn-arxiv", "GAT", {.730, .738, .685, .593, .533, .446, .313}},
    {"ogbn-arxiv", "GT", {.709, .696, .649, .569, .460, .330, .283}},
    {"ogbn-arxiv", "GAT-Pn", {.687, .682, .655, .640, .597, .585, .535}},
    {"ogbn-arxiv", "GT-Ln", {.719, .725, .695, .669, .650, .576, .541}},
    {"ogbn-arxiv", "GAT-Lip", {.720, .731, .731, .698, .679, .674, .643}},
    {"ogbn-arxiv", "GT-Lip", {.720, .738, .722, .717, .688, .675, .661}},
    {"ogbn-proteins", "GAT", {.860, .860, .806, .697, .614, .534, .359}},
    {"ogbn-proteins", "GT", {.830, .786, .763, .627, .593, .507, .395}},
    {"ogbn-proteins", "GAT-Pn", {.823, .829, .785, .780, .716, .677, .627}},
    {"ogbn-proteins", "GT-Ln", {.861, .863, .807, .759, .727, .655, .604}},
    {"ogbn-proteins", "GAT-Lip", {.857, .862, .849, .819, .772, .746, .725}},
    {"ogbn-proteins", "GT-Lip", {.844, .855, .819, .806, .769, .718, .731}}};

}  // namespace

std::vector<std::pair<std::string, std::string>> sweep_presets() {
  return {{"paper-table1",
           "the LipschitzNorm paper's Table 1: five methods, three data sets, 0 and "
           "100 % of the features missing, the depth chosen on validation"},
          {"paper-figure5", "its Figure 5: score against depth, 2 to 30 layers, six methods"},
          {"paper-gradients",
           "its heat maps of gradients, layer by epoch, and training accuracy "
           "against epoch by depth, without and with the norm"},
          {"ablation",
           "the recipe of `train --preset depth` without each of its parts, without and "
           "with the norm, over dropout, learning rate and depth"},
          {"warmup",
           "images: up to which learning rate Swin and LipsFormer-Swin train, by depth, without "
           "and with warm-up, and which runs diverge"}};
}

SweepPreset sweep_preset(const std::string& name, const std::string& protocol, bool quick) {
  const auto make = [&]() -> SweepPreset {
    if (name == "paper-table1") return table1(protocol, quick);
    if (name == "paper-figure5") return figure5(protocol, quick);
    if (name == "paper-gradients") return gradients(protocol, quick);
    if (name == "ablation") return ablation(quick);
    if (name == "warmup") return warmup(quick);
    std::vector<std::string> names;
    for (const auto& [preset, about] : sweep_presets()) names.push_back(preset);
    throw Error(
        fmt::format("sweep: there is no preset '{}'; there are: {}", name, fmt::join(names, ", ")));
  };
  SweepPreset preset = make();
  if (quick)
    preset.layout.notes.push_back(
        "Thinned by --quick: fewer depths, seeds, data sets or epochs than without it.");
  return preset;
}

std::optional<Published> published(const std::string& sweep,
                                   const std::map<std::string, std::string>& labels) {
  const auto label = [&](const char* axis) {
    const auto found = labels.find(axis);
    return found == labels.end() ? std::string() : found->second;
  };
  if (sweep == "paper-table1") {
    constexpr std::array data{"cora", "citeseer", "pubmed"};
    const auto set = std::find(data.begin(), data.end(), label("data"));
    const std::string missing = label("missing");
    if (set == data.end() || (missing != "0" && missing != "100")) return std::nullopt;
    for (const TableRow& row : table1_published)
      if (row.method == label(method_axis))
        return row.values[static_cast<std::size_t>(2 * (set - data.begin()) + (missing == "100"))];
  }
  if (sweep == "paper-figure5") {
    const auto depth = std::find(figure5_depths.begin(), figure5_depths.end(), label("layers"));
    if (depth == figure5_depths.end()) return std::nullopt;
    for (const FigureRow& row : figure5_published)
      if (row.data == label("data") && row.method == label(method_axis))
        return Published{100 *
                         row.values[static_cast<std::size_t>(depth - figure5_depths.begin())]};
  }
  return std::nullopt;
}

}  // namespace lipgrad::cli
