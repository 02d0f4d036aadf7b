#include <lipgrad/vision/cross_shaped_attention.h>
#include <lipgrad/vision/window_attention.h>

#include "catalogue/catalogue.h"

namespace lipgrad::catalogue {
namespace {

// MultiHeadAttention where window is unset, else WindowAttention.
void add_attention(Catalogue& c, const char* kind, const MultiHeadAttentionOptions& options,
                   std::optional<AttentionWindow> window, bool regions = false,
                   std::int64_t every_element_up_to = 2000) {
  struct Plain : Module {
    explicit Plain(const MultiHeadAttentionOptions& o) : layer(*this, "layer", o) {}
    MultiHeadAttention layer;
  };
  struct Windows : Module {
    Windows(const MultiHeadAttentionOptions& o, const AttentionWindow& w)
        : layer(*this, "layer", o, w) {}
    WindowAttention layer;
  };
  Case one;
  one.op = window ? "WindowAttention" : "MultiHeadAttention";
  one.kind = kind;
  one.options.every_element_up_to = every_element_up_to;
  one.make = [=](Generator& rng) {
    const std::int64_t tokens = window ? window->height * window->width : 5;
    Instance instance;
    instance.inputs = {randn({2, tokens, options.dim}, f64, rng)};
    if (window) {
      const auto root = std::make_shared<Windows>(options, *window);
      Tensor label;
      if (regions) {
        std::vector<std::int32_t> of;
        for (std::int64_t i = 0; i < 2 * tokens; ++i) of.push_back(static_cast<int>(i % 3 / 2));
        label = from_vector({2, tokens}, of);
      }
      instance.module = root;
      instance.fn = [root, label](Inputs in) {
        return std::vector<Tensor>{root->layer.forward(
            in[0], label.defined() ? label.to(in[0].device()) : label, Mode::eval())};
      };
    } else {
      const auto root = std::make_shared<Plain>(options);
      instance.module = root;
      instance.fn = [root](Inputs in) {
        return std::vector<Tensor>{root->layer.forward(in[0], Mode::eval())};
      };
    }
    instance.module->initialize(rng);
    instance.module->to(f64);
    return instance;
  };
  c.add(std::move(one));
}

void add_cross_shaped(Catalogue& c, const char* kind, const MultiHeadAttentionOptions& options,
                      const CrossShape& shape) {
  struct Net : Module {
    Net(const MultiHeadAttentionOptions& o, const CrossShape& s) : layer(*this, o, s) {}
    CrossShapedAttention layer;
  };
  Case one;
  one.op = "CrossShapedAttention";
  one.kind = kind;
  one.make = [=](Generator& rng) {
    const auto net = std::make_shared<Net>(options, shape);
    net->initialize(rng);
    net->to(f64);
    return Instance{
        {randn({2, shape.height, shape.width, options.dim}, f64, rng)},
        [net](Inputs in) { return std::vector<Tensor>{net->layer.forward(in[0], Mode::eval())}; },
        net};
  };
  c.add(std::move(one));
}

}  // namespace

void add_window_attention(Catalogue& c) {
  const MultiHeadAttentionOptions plain{.dim = 6, .heads = 2};
  add_attention(c, "normal", plain, {});
  add_attention(c, "normal", plain, AttentionWindow{2, 3});
  add_attention(c, "regions", plain, AttentionWindow{2, 2}, true);

  MultiHeadAttentionOptions paper = plain;
  paper.attention.score = AttentionScore::cosine;
  paper.attention.tau = 3;
  paper.attention.normalise_v = true;
  paper.attention.eps = 1e-2;
  paper.attention.eps_mode = LengthEps::inside_root;
  paper.learn_tau = Learned::one;
  paper.learn_nu = Learned::each_head;
  add_attention(c, "LipsFormer's paper", paper, AttentionWindow{2, 3}, true);

  MultiHeadAttentionOptions second = plain;
  second.attention.score = AttentionScore::cosine;
  second.attention.tau = 3;
  second.learn_tau = Learned::each_head;
  second.tau_ceiling = 100;
  second.qkv_bias = QkvBias::queries_and_values;
  add_attention(c, "Swin-V2", second, AttentionWindow{2, 2, PositionBias::continuous}, false, 200);

  MultiHeadAttentionOptions normed = plain;
  normed.qk_norm = true;
  add_attention(c, "norms of queries and keys", normed, {});

  const MultiHeadAttentionOptions wide{.dim = 8, .heads = 4};
  add_cross_shaped(c, "normal", wide, {4, 2, 2});
  add_cross_shaped(c, "the whole map", plain, {2, 3, 0});
  MultiHeadAttentionOptions lipsformer = wide;
  lipsformer.attention.score = AttentionScore::cosine;
  lipsformer.attention.tau = 3;
  lipsformer.attention.eps = 1e-2;
  lipsformer.attention.eps_mode = LengthEps::inside_root;
  lipsformer.nu_over_heads = true;
  add_cross_shaped(c, "LipsFormer, lines of tokens", lipsformer, {3, 4, 1});
}

}  // namespace lipgrad::catalogue
