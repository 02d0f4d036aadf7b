#include <lipgrad/models/swin.h>

#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <lipgrad/core/error.h>
#include <lipgrad/core/tape.h>
#include <lipgrad/ops/shape.h>

#include "models/vision_golden.h"

namespace lipgrad {
namespace {

SwinOptions small(const std::string& model) {
  SwinOptions o = swin_options(model);
  o.image_height = o.image_width = 32;
  o.patch = 2;
  o.classes = 10;
  o.width = 16;
  o.depths = {2, 2};
  o.heads = {2, 4};
  o.window = 4;
  o.drop_path = 0;
  o.block.dtype = f64;
  return o;
}

TEST_CASE("blocks of Swin and LipsFormer-Swin as published") {
  const auto check = [](const char* file, const char* model, bool shift) {
    CAPTURE(file);
    Module root;
    SwinOptions options = small(model);
    options.image_height = options.image_width = 16;
    options.shift = true;
    Swin::Block block(root, "block", options, 0, shift ? 1 : 0);
    test::compare(block, test::vision_golden(file), [&](const Tensor& x) {
      return reshape(block.forward(reshape(x, {2, 8, 8, 16}), Mode::eval()), {2, 64, 16});
    });
  };
  check("swin_block_plain", "swin_t", false);
  check("lips_block_plain", "lipsformer_swin_t", false);
  check("lips_block_shifted", "lipsformer_swin_t", true);
}

// One stage of 16 features, or the first of two, on maps of side x side.
SwinOptions cross(const std::string& model, std::int64_t side, std::int64_t split, bool last) {
  SwinOptions o = small(model);
  o.image_height = o.image_width = 2 * side;
  o.depths.assign(last ? 1 : 2, 1);
  o.heads.assign(o.depths.size(), 4);
  o.splits.assign(o.depths.size(), split);
  o.block.mlp_ratio = 2;
  return o;
}

TEST_CASE("blocks and merging of CSwin and LipsFormer-CSwin as published") {
  for (const std::string name : {"cswin", "lips_cswin"}) {
    CAPTURE(name);
    const std::string model = name == "cswin" ? "cswin_t" : "lipsformer_cswin_t";
    for (const bool last : {false, true}) {
      CAPTURE(last);
      const std::int64_t side = last ? 4 : 8;
      Module root;
      Swin::Block block(root, "block", cross(model, side, last ? 4 : 2, last), 0, 0);
      test::compare(block, test::vision_golden(name + (last ? "_block_last" : "_block")),
                    [&](const Tensor& x) {
                      const Tensor y = block.forward(reshape(x, {2, side, side, 16}), Mode::eval());
                      return reshape(y, {2, side * side, 16});
                    });
    }
    Module root;
    Swin::Downsample merge(root, "merge", 6, small(model));
    test::compare(merge, test::vision_golden(name + "_merge"), [&](const Tensor& x) {
      return reshape(merge.forward(reshape(x, {2, 8, 8, 6})), {2, 16, 12});
    });
  }
}

TEST_CASE("whole models of CSwin and LipsFormer-CSwin give what their formulas do") {
  for (const std::string name : {"cswin", "lips_cswin"}) {
    CAPTURE(name);
    SwinOptions o = small(name == "cswin" ? "cswin_t" : "lipsformer_cswin_t");
    o.image_height = o.image_width = 16;
    o.patch = 4;
    o.classes = 3;
    o.width = 4;
    o.depths = {2, 1};
    o.heads = {2, 4};
    o.splits = {2, 1};
    o.block.mlp_ratio = 2;
    Swin model(o);
    test::compare(model, test::vision_golden(name + "_model"),
                  [&](const Tensor& x) { return model.forward(x, Mode::eval()); });
  }
}

TEST_CASE("whole models of Swin and LipsFormer-Swin as published") {
  for (const std::string name : {"swin", "lipsformer_swin"}) {
    CAPTURE(name);
    Swin model(small(name + "_t"));
    test::compare(model, test::vision_golden(name == "swin" ? "swin_model" : "lips_swin_model"),
                  [&](const Tensor& x) { return model.forward(x, Mode::eval()); });
  }
}

TEST_CASE("published models have the published sizes") {
  struct Size {
    const char* name;
    std::int64_t parameters, multiply_adds;
  };
  for (const auto& [name, parameters, multiply_adds] :
       {Size{"swin_t", 28288354, 4490566656}, Size{"swin_s", 49606258, 8740875264},
        Size{"swin_b", 87768224, 15430946816}, Size{"lipsformer_swin_t", 30908578, 4977524736},
        Size{"lipsformer_swin_t5", 28944310, 4587055104},
        Size{"lipsformer_swin_s", 54479794, 9663160320},
        Size{"lipsformer_swin_b", 96011168, 16968941568},
        Size{"lipsformer_swin_l", 214131580, 37707595776}, Size{"cswin_t", 22320552, 4324203008},
        Size{"cswin_s", 34643304, 6800714752}, Size{"cswin_b", 77382184, 14955348480},
        Size{"lipsformer_cswin_t", 23780136, 4674180608}}) {
    CAPTURE(name);
    const Swin model(swin_options(name));
    std::int64_t total = 0;
    for (const ModuleCost& cost : model.multiply_adds()) total += cost.multiply_adds;
    CHECK(model.num_parameters() == parameters);
    CHECK(total == multiply_adds);
  }
  for (const char* name :
       {"swin_micro", "lipsformer_swin_micro", "cswin_micro", "lipsformer_cswin_micro"})
    CHECK(Swin(swin_options(name)).num_parameters() <= 1'000'000);
  for (const std::string name : {"swin_l", "cswin_l", "cswin_t5", "lipsformer_cswin_s", "t"})
    CHECK_THROWS_WITH_AS(swin_options(name),
                         doctest::Contains(("there is no model '" + name + "'").c_str()), Error);
}

TEST_CASE("every part of LipsFormer alone makes a model whose loss has gradients everywhere") {
  std::vector<SwinOptions> all;
  const auto add = [&](auto change) {
    SwinOptions o = small("swin_t");
    o.image_height = o.image_width = 16;
    change(o);
    all.push_back(o);
  };
  add([](SwinOptions& o) { o.block.norm = TokenNormKind::center; });
  add([](SwinOptions& o) { o.block.norm = TokenNormKind::none; });
  add([](SwinOptions& o) { o.block.place = NormPlace::post; });
  add([](SwinOptions& o) { o.block.place = NormPlace::res_post; });
  add([](SwinOptions& o) { o.attention.attention.score = AttentionScore::cosine; });
  for (const ShortcutKind kind : {ShortcutKind::weighted, ShortcutKind::layer_scale,
                                  ShortcutKind::rezero, ShortcutKind::deepnorm})
    add([&](SwinOptions& o) {
      o.block.shortcut = kind;
      o.block.shortcut_initial = 0.3;
    });
  add([](SwinOptions& o) { o.block.convolutions = true; });
  add([](SwinOptions& o) { o.block.init = VisionInit::spectral; });
  add([](SwinOptions& o) {
    o.block.convolutions = true;
    o.block.init = VisionInit::spectral_conv;
  });
  add([](SwinOptions& o) { o.block.init = VisionInit::deepnorm; });
  add([](SwinOptions& o) { o.checkpoint_blocks = true; });
  add([](SwinOptions& o) { o.drop_path = 0.3, o.block.dropout = 0.2; });
  add([](SwinOptions& o) { o.patch_kernel = 5; });
  add([](SwinOptions& o) { o.merge_kernel = 3; });
  add([](SwinOptions& o) { o.final_norm = false; });
  add([](SwinOptions& o) {
    o.attention.nu_over_heads = true;
    o.attention.learn_nu = Learned::each_head;
  });
  const auto add_cross = [&](auto change) {
    add([&](SwinOptions& o) {
      o.windows = WindowShape::cross;
      o.shift = false;
      o.position = PositionBias::none;
      o.splits = {2, 1};
      change(o);
    });
  };
  add_cross([](SwinOptions&) {});
  add_cross([](SwinOptions& o) { o.attention.learn_nu = Learned::one; });
  add_cross([](SwinOptions& o) { o.attention.qkv_bias = QkvBias::none; });
  add_cross([](SwinOptions& o) { o.splits = {8, 7}; });
  add_cross([](SwinOptions& o) { o.image_height = 32, o.splits = {4, 4}; });
  for (const SwinOptions& options : all) {
    Swin model(options);
    Generator rng{1};
    model.initialize(rng);
    Tape tape;
    const Tensor y =
        model.forward(randn({3, 3, options.image_height, 16}, f64, rng), Mode::train(rng));
    tape.backward(y, randn({3, 10}, f64, rng));
    for (const auto& [path, parameter] : model.named_parameters()) {
      CAPTURE(path);
      REQUIRE(parameter->grad().defined());
      double squares = 0;
      for (std::int64_t i = 0; i < parameter->numel(); ++i)
        squares += std::pow(parameter->grad().data<double>()[i], 2);
      CHECK(squares > 0);
    }
  }
}

TEST_CASE("blocks that are computed again change nothing") {
  std::vector<Tensor> grads[2];
  for (const bool again : {false, true}) {
    SwinOptions options = small("lipsformer_swin_t");
    options.image_height = options.image_width = 16;
    options.drop_path = 0.4;
    options.checkpoint_blocks = again;
    Swin model(options);
    Generator rng{1};
    model.initialize(rng);
    Tape tape;
    const Tensor y = model.forward(randn({4, 3, 16, 16}, f64, rng), Mode::train(rng));
    tape.backward(y, randn({4, 10}, f64, rng));
    for (const Parameter* p : model.parameters()) grads[again].push_back(p->grad().clone());
  }
  for (std::size_t i = 0; i < grads[0].size(); ++i) CHECK(bitwise_equal(grads[0][i], grads[1][i]));
}

TEST_CASE("Swin names sizes that do not fit") {
  const auto fails = [](auto change) {
    SwinOptions o = swin_options("swin_t");
    change(o);
    const Swin model(o);
  };
  CHECK_THROWS_WITH_AS(fails([](SwinOptions& o) { o.image_height = 222; }),
                       "Swin: images of 222 x 224 are not made of patches of 4 x 4", Error);
  CHECK_THROWS_WITH_AS(fails([](SwinOptions& o) { o.image_width = 232; }),
                       "Swin: the map of 56 x 58 in stage 1 is not made of windows of 7 x 7",
                       Error);
  CHECK_THROWS_WITH_AS(fails([](SwinOptions& o) {
                         o.heads = {3, 6};
                       }),
                       "Swin: 4 depths and 2 numbers of heads; expects one of each a stage", Error);
  CHECK_THROWS_WITH_AS(fails([](SwinOptions& o) {
                         o.heads = {3, 6, 12, 25};
                       }),
                       "Swin: stage 4 of 2 blocks, 768 features and 25 heads", Error);
  CHECK_THROWS_WITH_AS(
      fails([](SwinOptions& o) { o.window = 56, o.image_width = o.image_height = 28; }),
      "Swin: the map of 7 x 7 after stage 1 cannot be halved", Error);
  CHECK_THROWS_WITH_AS(
      fails([](SwinOptions& o) { o.depths = o.heads = {1, 1, 1, 1, 1, 1, 1, 1, 1}; }),
      "Swin: 9 stages; expects at most 8", Error);
  CHECK_THROWS_WITH_AS(fails([](SwinOptions& o) { o.patch_kernel = 3; }),
                       "Swin: a kernel of 3 is smaller than patches of 4", Error);
  CHECK_THROWS_WITH_AS(fails([](SwinOptions& o) { o.merge_kernel = 1; }),
                       "Swin: patches cannot be merged by a kernel of 1; expects at least 2, or 0",
                       Error);
  CHECK_THROWS_WITH_AS(fails([](SwinOptions& o) { o.windows = WindowShape::cross; }),
                       "Swin: cross-shaped windows have neither a shift nor a bias of positions",
                       Error);
  const auto cross_fails = [](auto change) {
    SwinOptions o = swin_options("cswin_t");
    change(o);
    const Swin model(o);
  };
  CHECK_THROWS_WITH_AS(cross_fails([](SwinOptions& o) {
                         o.splits = {1, 2};
                       }),
                       "Swin: 4 depths and 2 widths of stripes; expects one of each a stage, at "
                       "least 1",
                       Error);
  CHECK_THROWS_WITH_AS(cross_fails([](SwinOptions& o) {
                         o.splits = {1, 2, 5, 7};
                       }),
                       "Swin: the map of 14 x 14 in stage 3 is not made of stripes of 5", Error);
  CHECK_THROWS_WITH_AS(
      cross_fails([](SwinOptions& o) {
        o.heads = {1, 4, 8, 16};
      }),
      "Swin: the 1 heads of stage 1 cannot be halved for the stripes of both sides", Error);
  CHECK_THROWS_WITH_AS(fails([](SwinOptions& o) { o.block.mlp_ratio = 1e300; }),
                       "Mlp: ratio 1e+300 is not above 0 and at most 1024", Error);
  Swin model(small("swin_t"));
  CHECK_THROWS_WITH_AS(model.forward(zeros({2, 3, 32, 30}, f64), Mode::eval()),
                       "Swin: expects images (B, 3, 32, 32), got (2, 3, 32, 30)", Error);
}

TEST_CASE("vision_groups takes vectors, scalars and tables of positions apart") {
  Swin model(small("lipsformer_swin_t"));
  const std::vector<OptimizerGroup> groups = vision_groups(0.0005);
  REQUIRE(groups.size() == 1);
  CHECK(groups[0].weight_decay == 0.0005);
  std::map<std::string, bool> in;
  for (const auto& [path, parameter] : model.named_parameters())
    in[path] = groups[0].contains(path, *parameter);
  CHECK(in.at("head.bias"));
  CHECK(in.at("layers.0.blocks.0.alpha1.scale"));
  CHECK(in.at("layers.0.blocks.1.attn.relative_position_bias_table"));
  CHECK(in.at("patch_embed.norm.weight"));
  CHECK(!in.at("layers.0.blocks.1.attn.qkv.weight"));
  CHECK(!in.at("layers.0.blocks.1.dwconv_layers.0.weight"));
}

}  // namespace
}  // namespace lipgrad
