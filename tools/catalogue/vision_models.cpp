#include <lipgrad/models/swin.h>
#include <lipgrad/models/vision_transformer.h>
#include <lipgrad/ops/elementwise.h>

#include "catalogue/catalogue.h"

namespace lipgrad::catalogue {
namespace {

// A model of two images of 8 x 8, in training, with random values for all its parameters.
template <class Model, class Options>
void add_model(Catalogue& c, const char* op, const char* kind, const Options& options) {
  Case one;
  one.op = op;
  one.kind = kind;
  one.make = [options](Generator& rng) {
    const auto model = std::make_shared<Model>(options);
    // What scales does so by about 1, so that features, and with them gradients, stay large enough
    // for finite differences to see.
    for (Parameter* p : model->parameters()) {
      const std::string& name = p->name();
      const bool scales =
          (p->shape().rank() == 1 && name == "weight") || name == "tau" || name == "nu";
      p->set_value(add(mul(randn(p->shape(), f64, rng), 0.3), scales ? 1 : 0));
    }
    // Blocks that are computed again draw in backward: the generator lives on.
    const auto draws = std::make_shared<Generator>();
    return Instance{{randn({2, options.channels, 8, 8}, f64, rng)},
                    [model, draws](Inputs in) {
                      draws->restore(11, 0);
                      return std::vector<Tensor>{model->forward(in[0], Mode::train(*draws))};
                    },
                    model};
  };
  c.add(std::move(one));
}

SwinOptions small(const char* model) {
  SwinOptions o = swin_options(model);
  o.image_height = o.image_width = 8;
  o.channels = 1;
  o.classes = 3;
  o.patch = 2;
  o.width = 4;
  o.depths = {2, 1};
  o.heads = {1, 2};
  o.window = 2;
  o.drop_path = 0.1;
  o.block.mlp_ratio = 2;
  o.block.kernel = 3;
  o.block.dtype = f64;
  o.block.norm_eps = 1e-2;
  // Cosines of lengths near 0 bend more than finite differences can follow.
  o.attention.attention.eps = 0.1;
  o.attention.attention.eps_mode = LengthEps::inside_root;
  return o;
}

}  // namespace

void add_vision_models(Catalogue& c) {
  add_model<Swin>(c, "Swin", "normal", small("swin_t"));
  SwinOptions lipsformer = small("lipsformer_swin_t");
  lipsformer.attention.attention.tau = 2;
  add_model<Swin>(c, "Swin", "LipsFormer", lipsformer);
  lipsformer.shift = true;
  lipsformer.attention.attention.normalise_v = true;
  lipsformer.attention.learn_tau = Learned::each_head;
  lipsformer.attention.learn_nu = Learned::one;
  lipsformer.checkpoint_blocks = true;
  add_model<Swin>(c, "Swin", "the paper's attention, shifted, blocks computed again", lipsformer);
  SwinOptions v2 = small("swin_t");
  v2.block.place = NormPlace::res_post;
  v2.block.shortcut = ShortcutKind::rezero;
  add_model<Swin>(c, "Swin", "norms of branches, ReZero", v2);
  SwinOptions deep = small("swin_t");
  deep.block.place = NormPlace::post;
  deep.block.shortcut = ShortcutKind::deepnorm;
  deep.block.init = VisionInit::deepnorm;
  add_model<Swin>(c, "Swin", "DeepNorm", deep);
  // Stripes of one token, then of the whole map; a projection and a merging that overlap.
  SwinOptions cross = small("cswin_t");
  cross.heads = {2, 2};
  cross.splits = {1, 7};
  cross.patch_kernel = 3;
  add_model<Swin>(c, "Swin", "CSwin", cross);
  cross = small("lipsformer_cswin_t");
  cross.heads = {2, 2};
  cross.splits = {2, 7};
  cross.attention.attention.tau = 2;
  cross.block.attention_norm = true;  // gradients of what is not used are 0
  add_model<Swin>(c, "Swin", "LipsFormer-CSwin", cross);
  cross.block.place = NormPlace::pre;
  cross.final_norm = true;
  cross.attention.qkv_bias = QkvBias::queries_and_values;
  cross.attention.learn_nu = Learned::each_head;
  cross.attention.attention.normalise_v = true;
  cross.checkpoint_blocks = true;
  add_model<Swin>(c, "Swin", "cross-shaped, nu of each head", cross);
  VisionTransformerOptions vit{.image_height = 8, .image_width = 8, .channels = 1, .classes = 3};
  vit.patch = 4, vit.width = 6, vit.depth = 2, vit.heads = 2;
  vit.drop_path = 0.1;
  vit.block.mlp_ratio = 2;
  vit.block.dtype = f64;
  vit.block.norm_eps = 1e-2;
  add_model<VisionTransformer>(c, "VisionTransformer", "normal", vit);
}

}  // namespace lipgrad::catalogue
