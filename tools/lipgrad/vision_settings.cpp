#include "lipgrad/vision_settings.h"

#include <charconv>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lipgrad/core/error.h>

#include "lipgrad/choices.h"
#include "lipgrad/gnn_settings.h"

namespace lipgrad::cli {
namespace {

const Choices<TokenNormKind> norms{{"layernorm", TokenNormKind::layer},
                                   {"centernorm", TokenNormKind::center},
                                   {"none", TokenNormKind::none}};
const Choices<NormPlace> places{
    {"pre", NormPlace::pre}, {"post", NormPlace::post}, {"res-post", NormPlace::res_post}};
const Choices<ShortcutKind> shortcuts{{"plain", ShortcutKind::plain},
                                      {"weighted", ShortcutKind::weighted},
                                      {"layerscale", ShortcutKind::layer_scale},
                                      {"rezero", ShortcutKind::rezero},
                                      {"deepnorm", ShortcutKind::deepnorm}};
const Choices<VisionInit> inits{{"normal", VisionInit::normal},
                                {"spectral", VisionInit::spectral},
                                {"spectral-conv", VisionInit::spectral_conv},
                                {"deepnorm", VisionInit::deepnorm}};
const Choices<AttentionScore> scores{{"dot", AttentionScore::dot},
                                     {"cosine", AttentionScore::cosine}};
const Choices<LengthEps> eps_modes{{"clamp", LengthEps::clamp},
                                   {"inside-root", LengthEps::inside_root}};
const Choices<Learned> learned{
    {"no", Learned::no}, {"one", Learned::one}, {"each-head", Learned::each_head}};
const Choices<QkvBias> qkv_biases{{"all", QkvBias::all},
                                  {"none", QkvBias::none},
                                  {"queries-and-values", QkvBias::queries_and_values}};
const Choices<PositionBias> positions{{"table", PositionBias::table},
                                      {"none", PositionBias::none},
                                      {"continuous", PositionBias::continuous}};
const Choices<WindowShape> window_shapes{{"square", WindowShape::square},
                                         {"cross", WindowShape::cross}};
const Choices<ImageCrop> crops{{"none", ImageCrop::none},
                               {"padded", ImageCrop::padded},
                               {"random-resized", ImageCrop::random_resized}};
const Choices<bool> corrupt_images{{"refuse", false}, {"skip", true}};

const CLI::Range size(std::int64_t{1}, std::int64_t{1} << 20);
const CLI::Range probability(0.0, 1.0);

// "2,2,6,2"
std::vector<std::int64_t> parse_sizes(const std::string& text) {
  std::vector<std::int64_t> values;
  for (const std::string& word : CLI::detail::split(text, ',')) {
    std::int64_t value = 0;
    const char* end = word.data() + word.size();
    const auto [at, error] = std::from_chars(word.data(), end, value);
    if (error != std::errc() || at != end || value < 1 || value > 4096)
      throw Error(fmt::format("expected numbers from 1 to 4096 such as 2,2,6,2, got '{}'", text));
    values.push_back(value);
  }
  return values;
}

CLI::Validator sizes_text() {
  return CLI::Validator(
      [](const std::string& text) {
        try {
          parse_sizes(text);
        } catch (const Error& error) {
          return std::string(error.what());
        }
        return std::string();
      },
      "COUNT,COUNT,...");
}

void add_attention(CLI::App& command, VisionSettings& s) {
  MultiHeadAttentionOptions& a = s.sizes.attention;
  add_choice(command, "--attention", a.attention.score, scores,
             "Scores: scalar products, or cosines of the angles");
  command
      .add_option("--tau", a.attention.tau,
                  "Factor of the scores, or where a learned one starts [1 / sqrt(features of a "
                  "head), of cosines 10, in cross-shaped windows 12]")
      ->check(positive);
  command.add_option("--nu", a.attention.nu, "Factor of the result")->check(positive);
  command.add_option("--nu-over-heads", a.nu_over_heads, "nu is divided by sqrt(heads)")
      ->default_str("false");
  add_choice(command, "--learn-tau", a.learn_tau, learned, "Whether tau is learned");
  add_choice(command, "--learn-nu", a.learn_nu, learned, "Whether nu is learned");
  command.add_option("--tau-ceiling", a.tau_ceiling, "The largest that a learned tau may become")
      ->check(positive);
  command.add_option("--normalize-v", a.attention.normalise_v, "Values have length 1, too")
      ->default_str("false");
  command.add_option("--attention-eps", a.attention.eps, "In the lengths that cosines divide by")
      ->check(positive);
  add_choice(command, "--eps-mode", a.attention.eps_mode, eps_modes,
             "Lengths: max(|z|, eps) or sqrt(|z|^2 + eps)");
  command.add_option("--qk-norm", a.qk_norm, "LayerNorm of queries and keys")->default_str("false");
  add_choice(command, "--qkv-bias", a.qkv_bias, qkv_biases, "Biases of queries, keys and values");
  add_choice(command, "--position-bias", s.sizes.position, positions,
             "What relative positions add to scores in windows: a number from a table, or of a "
             "network (Swin V2)");
  command.add_option("--attention-dropout", a.attention.dropout, "Dropout on attention weights")
      ->check(probability);
}

}  // namespace

void add_vision_data(CLI::App& command, VisionSettings& s) {
  command.option_defaults()->always_capture_default();
  command.option_defaults()->group(data_group);
  command.add_option("--data", s.data,
                     "Data set: a name, a folder of classes, or an archive of one");
  command
      .add_option("--validation", s.validation,
                  "Share of the training images that is set aside for validation")
      ->check(CLI::Range(0.0, 0.99));
  command
      .add_option("--train-images", s.train_images,
                  "Train with so many images alone, drawn by the seed; 0: with all")
      ->check(non_negative);
  command.add_option("--test-images", s.test_images, "The same for tests")->check(non_negative);
  command.add_option("--image-size", s.image_size, "Height and width of the images [the model's]")
      ->check(CLI::Range(1, 1 << 16));
  command.add_option("--batch-size", s.batch_size, "Images of a step")->check(size);
  add_choice(command, "--corrupt", s.skip_corrupt, corrupt_images,
             "Images that cannot be read: end with the error of the first, or leave them out and "
             "tell which they are");
  AugmentOptions& a = s.augment;
  add_choice(command, "--crop", a.crop, crops,
             "Training images: whole; shifted within a border; a random part, resized");
  command.add_option("--padding", a.padding, "The border's width")->check(CLI::Range(0, 1024));
  command.add_option("--min-scale", a.min_scale, "The smallest part's share of the area")
      ->check(CLI::Range(0.0001, 1.0));
  command.add_option("--flip", a.flip, "Probability of a training image to be mirrored")
      ->check(probability);
  command.add_option("--erase", a.erase, "Probability that a rectangle is replaced by noise")
      ->check(probability);
  MixOptions& m = s.mix;
  command.add_option("--mixup", m.mixup, "Images are mixed in pairs by Beta(a, a) weights; 0: not")
      ->check(non_negative);
  command
      .add_option("--cutmix", m.cutmix,
                  "A rectangle of one is pasted into another, of area by Beta(a, a); 0: not")
      ->check(non_negative);
  command.add_option("--label-smoothing", m.label_smoothing, "Of the targets")
      ->check(CLI::Range(0.0, 1.0));
}

void add_vision_model(CLI::App& command, VisionSettings& s) {
  command.option_defaults()->always_capture_default();
  command.option_defaults()->group(model_group);
  SwinOptions& o = s.sizes;
  BlockOptions& b = o.block;
  command.add_option("--patch", o.patch, "Height and width of a patch")->check(size);
  command
      .add_option("--patch-kernel", o.patch_kernel,
                  "Height and width of the patches' projection, which may overlap; 0: the patch's")
      ->check(CLI::Range(0, 64));
  command
      .add_option("--merge-kernel", o.merge_kernel,
                  "The same of the convolutions between stages; 0: patches side by side, linear")
      ->check(CLI::Range(0, 64));
  command.add_option("--width", o.width, "Features after the patches' projection")->check(size);
  command.add_option("--depths", s.depths, "Blocks of each stage: 2,2,6,2")->check(sizes_text());
  command.add_option("--heads", s.heads, "Heads of each stage: 3,6,12,24")->check(sizes_text());
  add_choice(command, "--windows", o.windows, window_shapes,
             "What tokens attend to: windows, or stripes along both sides (CSwin)");
  command.add_option("--window", o.window, "Height and width of a window, in tokens")->check(size);
  command
      .add_option("--splits", s.splits,
                  "Widths of the stripes of each stage, 1,2,7,7; the last stage has the whole map")
      ->check(sizes_text());
  command.add_option("--shift", o.shift, "Every second block shifts its windows")
      ->default_str("true");
  add_attention(command, s);
  add_choice(command, "--norm", b.norm, norms, "Norm of tokens");
  add_choice(command, "--norm-place", b.place, places,
             "Where: before a branch, after the shortcut, or between branch and shortcut");
  command.add_option("--norm-eps", b.norm_eps, "Of layernorm")->check(non_negative);
  command.add_option("--attention-norm", b.attention_norm, "Attention has its norm")
      ->default_str("true");
  command.add_option("--final-norm", o.final_norm, "There is a norm after the last block")
      ->default_str("true");
  add_choice(command, "--residual", b.shortcut, shortcuts,
             "How a branch f joins x: x + f; x + alpha f, alpha learned from 1 / blocks (0.2 with "
             "cross-shaped windows) or a small number; a learned scalar from 0; (2 blocks)^(1/4) x "
             "+ f");
  command.add_option("--residual-initial", b.shortcut_initial, "Where alpha starts");
  command
      .add_option("--convolutions", b.convolutions,
                  "Two branches of depth-wise convolutions before attention")
      ->default_str("false");
  command.add_option("--kernel", b.kernel, "Their height and width, an odd number")
      ->check(CLI::Range(1, 63));
  command.add_option("--mlp-ratio", b.mlp_ratio, "Hidden features of the MLP over its own")
      ->check(positive);
  add_choice(command, "--init", b.init, inits,
             "Weights: normal of deviation 0.02; over their largest singular value, depth-wise "
             "kernels as matrices or as convolutions; DeepNorm's");
  command
      .add_option("--drop-path", o.drop_path,
                  "Probability of the last block's branches to "
                  "be left out; rises evenly from 0 at the first")
      ->check(CLI::Range(0.0, 0.999));
  command.add_option("--dropout", b.dropout, "Dropout in the MLP and after attention")
      ->check(probability);
  command
      .add_option("--checkpoint-blocks", o.checkpoint_blocks,
                  "Compute blocks again in backward: less memory, the same results")
      ->default_str("false");
}

void add_vision_training(CLI::App& command, VisionSettings& s) {
  command.option_defaults()->always_capture_default();
  command.option_defaults()->group(training_group);
  command.add_option("--lr", s.lr, "Learning rate of AdamW")->check(non_negative);
  command.add_option("--min-lr", s.min_lr, "Where the cosine ends")->check(non_negative);
  command
      .add_option("--warmup-epochs", s.warmup_epochs,
                  "Epochs in which the rate rises evenly from a thousandth; 0: no warm-up")
      ->check(non_negative);
  command.add_option("--schedule", s.schedule, "Learning rate after it: a cosine, or constant")
      ->check(CLI::IsMember({"cosine", "constant"}));
  command.add_option("--weight-decay", s.weight_decay, "Decoupled weight decay")
      ->check(non_negative);
  command
      .add_option("--vector-weight-decay", s.vector_weight_decay,
                  "The same of biases, norms, residual weights and positions")
      ->check(non_negative);
  command.add_option("--beta2", s.beta2, "AdamW's second moment: its memory")
      ->check(CLI::Range(0.0, 0.999999));
  command.add_option("--clip-norm", s.clip_norm, "Largest norm of the gradient; 0: any")
      ->check(non_negative);
  command
      .add_option("--average", s.average_decay,
                  "Measure and keep a moving average of the weights with this decay; 0: the "
                  "weights themselves")
      ->check(CLI::Range(0.0, 0.999999));
  command.add_option("--accumulate", s.accumulate, "Steps whose gradients make one update")
      ->check(size);
  command.add_option("--epochs", s.epochs, "Epochs")->check(any_count);
  command
      .add_option("--select", s.select,
                  "Which epoch's weights count: best validation accuracy, lowest validation loss, "
                  "or the last")
      ->check(CLI::IsMember({"last", "score", "loss"}));
  command.add_option("--seed", s.seed, "Seed of the first run; run r uses seed + r")
      ->check(non_negative);
}

std::unique_ptr<ImageClassifier> make_vision_model(const VisionSettings& settings,
                                                   std::int64_t channels, std::int64_t classes) {
  SwinOptions o = settings.sizes;
  o.image_height = o.image_width = settings.image_size;
  o.channels = channels;
  o.classes = classes;
  o.depths = parse_sizes(settings.depths);
  o.heads = parse_sizes(settings.heads);
  const bool cross = o.windows == WindowShape::cross;
  if (cross) o.splits = parse_sizes(settings.splits);
  if (o.attention.attention.score == AttentionScore::cosine && !o.attention.attention.tau)
    o.attention.attention.tau = cross ? 12 : 10;
  if (cross && o.block.shortcut == ShortcutKind::weighted && !o.block.shortcut_initial)
    o.block.shortcut_initial = 0.2;
  if (!settings.model.starts_with("vit")) return std::make_unique<Swin>(o);
  VisionTransformerOptions v;
  v.image_height = v.image_width = settings.image_size;
  v.channels = channels;
  v.classes = classes;
  v.patch = o.patch;
  v.width = o.width;
  v.depth = o.depths.front();
  v.heads = o.heads.front();
  v.attention = o.attention;
  v.block = o.block;
  v.drop_path = o.drop_path;
  v.checkpoint_blocks = o.checkpoint_blocks;
  return std::make_unique<VisionTransformer>(v);
}

// ---- the published settings, by options

namespace {

template <class T>
Settings::value_type choice(const char* option, const Choices<T>& names, const T& value) {
  return {option, name_in(names, value)};
}

const char* text(bool value) { return value ? "true" : "false"; }

}  // namespace

Settings vision_model_settings(const std::string& model) {
  if (model.starts_with("vit")) {
    const VisionTransformerOptions o = vit_options(model);
    return {{"image-size", fmt::format("{}", o.image_height)},
            {"patch", fmt::format("{}", o.patch)},
            {"width", fmt::format("{}", o.width)},
            {"depths", fmt::format("{}", o.depth)},
            {"heads", fmt::format("{}", o.heads)},
            {"norm-eps", fmt::format("{}", o.block.norm_eps)},
            {"drop-path", fmt::format("{}", o.drop_path)}};
  }
  const SwinOptions o = swin_options(model);
  return {{"image-size", fmt::format("{}", o.image_height)},
          {"patch", fmt::format("{}", o.patch)},
          {"patch-kernel", fmt::format("{}", o.patch_kernel)},
          {"merge-kernel", fmt::format("{}", o.merge_kernel)},
          {"width", fmt::format("{}", o.width)},
          {"depths", fmt::format("{}", fmt::join(o.depths, ","))},
          {"heads", fmt::format("{}", fmt::join(o.heads, ","))},
          {"window", fmt::format("{}", o.window)},
          {"shift", text(o.shift)},
          choice("windows", window_shapes, o.windows),
          {"splits", fmt::format("{}", fmt::join(o.splits, ","))},
          choice("position-bias", positions, o.position),
          choice("attention", scores, o.attention.attention.score),
          {"nu-over-heads", text(o.attention.nu_over_heads)},
          choice("norm", norms, o.block.norm),
          {"attention-norm", text(o.block.attention_norm)},
          {"final-norm", text(o.final_norm)},
          choice("norm-place", places, o.block.place),
          choice("residual", shortcuts, o.block.shortcut),
          {"convolutions", text(o.block.convolutions)},
          choice("init", inits, o.block.init),
          {"drop-path", fmt::format("{}", o.drop_path)}};
}

}  // namespace lipgrad::cli
