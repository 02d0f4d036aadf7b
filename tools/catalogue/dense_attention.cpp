#include <lipgrad/vision/dense_attention.h>

#include "catalogue/catalogue.h"

namespace lipgrad::catalogue {
namespace {

struct Setting {
  const char* kind;
  Shape shape;  // of qkv (B, T, 3, H, D)
  DenseAttentionOptions options = {};
  std::int64_t windows = 0;  // with regions of their own; 0: none
  bool bias = false;
  Shape tau = {0}, nu = {0};  // of tensors; empty: none
  GradcheckOptions check = {};
};

void add_setting(Catalogue& c, const Setting& s) {
  const std::int64_t tokens = s.shape.size(1), heads = s.shape.size(3);
  Case one;
  one.op = "dense_attention";
  one.kind = s.kind;
  one.options = s.check;
  one.make = [=](Generator& rng) {
    std::vector<Tensor> inputs{randn(s.shape, f64, rng)};
    if (s.bias) inputs.push_back(randn({heads, tokens, tokens}, f64, rng));
    if (s.tau.numel() > 0) inputs.push_back(rand_uniform(s.tau, 0.5, 2, f64, rng));
    if (s.nu.numel() > 0) inputs.push_back(rand_uniform(s.nu, 0.5, 2, f64, rng));
    Tensor regions;
    if (s.windows > 0) {  // token 0 of the first window is alone
      std::vector<std::int32_t> label;
      for (std::int64_t i = 0; i < s.windows * tokens; ++i)
        label.push_back(i == 0 ? 100 : static_cast<std::int32_t>(i * 5 % 7 % 3));
      regions = from_vector({s.windows, tokens}, label);
    }
    return Instance{inputs,
                    [=](Inputs in) {
                      std::size_t next = 1;
                      DenseAttentionTerms terms;
                      if (s.bias) terms.bias = in[next++];
                      if (s.tau.numel() > 0) terms.tau = in[next++];
                      if (s.nu.numel() > 0) terms.nu = in[next++];
                      if (regions.defined()) terms.regions = regions.to(in[0].device());
                      Generator draws{5};  // the same mask in every call
                      const Mode mode = s.options.dropout > 0 ? Mode::train(draws) : Mode::eval();
                      return std::vector<Tensor>{dense_attention(in[0], s.options, terms, mode)};
                    },
                    nullptr};
  };
  c.add(std::move(one));
}

}  // namespace

void add_dense_attention(Catalogue& c) {
  DenseAttentionOptions cosine, paper, dropped;
  cosine.score = paper.score = AttentionScore::cosine;
  cosine.tau = 3;
  paper.normalise_v = true;
  paper.eps_mode = LengthEps::inside_root;
  paper.eps = 1e-2;
  dropped.dropout = 0.4;
  add_setting(c, {"normal", {3, 5, 3, 2, 4}});
  add_setting(c, {"bias", {4, 5, 3, 2, 3}, {}, 0, true});
  add_setting(c, {"regions", {4, 6, 3, 2, 3}, {}, 2, true});
  add_setting(c, {"cosine", {2, 5, 3, 2, 4}, cosine, 0, true});
  add_setting(c,
              {"all lengths one, tau and nu learned", {4, 5, 3, 2, 4}, paper, 2, true, {1}, {2}});
  add_setting(c, {"tau of each head", {3, 4, 3, 3, 2}, paper, 0, false, {3}, {1}});
  add_setting(c, {"dropout", {2, 6, 3, 2, 3}, dropped, 1, true, {2}, {2}});
  add_setting(c, {"one row", {1, 1, 3, 1, 4}});
  add_setting(c, {"empty", {0, 4, 3, 2, 3}, {}, 0, true, {0}, {0}, {.zero_gradient = true}});
  add_setting(c, {"large", {6, 49, 3, 3, 32}, cosine, 3, true, {0}, {3}});
  add_setting(c, {"long", {2, 197, 3, 2, 16}});

  Case apart;
  apart.op = "dense_attention";
  apart.kind = "q, k and v apart";
  apart.make = [](Generator& rng) {
    std::vector<Tensor> inputs;
    for (int i = 0; i < 3; ++i) inputs.push_back(randn({2, 5, 3, 4}, f64, rng));
    return Instance{
        inputs, [](Inputs in) { return std::vector<Tensor>{dense_attention(in[0], in[1], in[2])}; },
        nullptr};
  };
  c.add(std::move(apart));
}

}  // namespace lipgrad::catalogue
