#include <lipgrad/vision/patches.h>

#include "catalogue/one_layer.h"

namespace lipgrad::catalogue {
void add_patches(Catalogue& c) {
  const auto add = [&](const char* op, const char* kind, Shape x, auto f) {
    c.add(
        op, kind, [=](Generator& rng) { return std::vector<Tensor>{randn(x, f64, rng)}; },
        [=](Inputs in) { return f(in[0]); }, {.zero_gradient = x.numel() == 0});
  };
  const auto patches = [](const Tensor& x) { return extract_patches(x, {2, 3}); };
  add("extract_patches", "normal", {2, 3, 4, 6}, patches);
  add("extract_patches", "one row", {1, 1, 2, 3}, patches);
  add("extract_patches", "empty", {0, 3, 4, 6}, patches);
  add("patch_merge", "normal", {2, 4, 6, 3}, patch_merge);
  add("patch_merge", "one row", {1, 2, 2, 3}, patch_merge);
  add("patch_merge", "empty", {0, 4, 6, 3}, patch_merge);

  const auto conv = [] {
    return std::make_shared<Root<Conv2d>>(3, 4, Size2d(3), Conv2dLayerOptions{.padding = 1});
  };
  const GradcheckOptions nothing{.zero_gradient = true};
  add_layer(c, "Conv2d", "normal", {2, 3, 4, 3}, conv, forward<Conv2d>);
  add_layer(c, "Conv2d", "one row", {1, 1, 3, 3}, conv, forward<Conv2d>);
  add_layer(c, "Conv2d", "empty", {0, 3, 4, 3}, conv, forward<Conv2d>, nothing);
  const auto embed = [] { return std::make_shared<Root<PatchEmbed>>(3, 5, Size2d(2, 3)); };
  add_layer(c, "PatchEmbed", "normal", {2, 3, 4, 6}, embed, forward<PatchEmbed>);
  add_layer(c, "PatchEmbed", "one row", {1, 3, 2, 3}, embed, forward<PatchEmbed>);
  add_layer(c, "PatchEmbed", "empty", {0, 3, 4, 6}, embed, forward<PatchEmbed>, nothing);
  const auto overlapping = [] {
    return std::make_shared<Root<PatchEmbed>>(
        3, 5, Size2d(2, 3), PatchEmbedOptions{.kernel = Size2d(5, 4), .layer = "0"});
  };
  add_layer(c, "PatchEmbed", "overlapping", {2, 3, 4, 6}, overlapping, forward<PatchEmbed>);
  for (const PatchNorm norm : {PatchNorm::layer, PatchNorm::center, PatchNorm::none}) {
    const auto merging = [=] {
      return std::make_shared<Root<PatchMerging>>(3, PatchMergingOptions{.norm = norm});
    };
    const bool usual = norm == PatchNorm::layer;
    add_layer(c, "PatchMerging",
              usual                       ? "normal"
              : norm == PatchNorm::center ? "center"
                                          : "no norm",
              {2, 4, 6, 3}, merging, forward<PatchMerging>);
    if (!usual) continue;
    add_layer(c, "PatchMerging", "one row", {1, 2, 2, 3}, merging, forward<PatchMerging>);
    add_layer(c, "PatchMerging", "empty", {0, 4, 6, 3}, merging, forward<PatchMerging>, nothing);
  }
}

}  // namespace lipgrad::catalogue
