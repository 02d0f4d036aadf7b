#include <lipgrad/vision/patches.h>

#include <doctest/doctest.h>

#include <lipgrad/core/error.h>
#include <lipgrad/core/npz.h>
#include <lipgrad/core/random.h>
#include <lipgrad/core/tape.h>
#include <lipgrad/ops/layers.h>
#include <lipgrad/ops/shape.h>

#include <support/data.h>
#include <support/tensors.h>

namespace lipgrad {
namespace {

using test::distance;

// Sets all parameters of a module to the file's, runs it and compares values and gradients.
template <class Run>
void compare(const std::string& file, Module& module, const Shape& in, const Shape& out, Run run) {
  CAPTURE(file);
  const auto golden = load_npz(test::golden("lipsformer/" + file));
  Generator rng{1};
  module.initialize(rng);
  for (const auto& [name, p] : module.named_parameters())
    p->set_value(golden.at("w." + name.substr(name.find('.') + 1)));
  Tape tape;
  const Tensor x = tape.watch(reshape(golden.at("in.x"), in));
  const Tensor y = run(x);
  REQUIRE(y.shape() == out);
  CHECK(distance(y, reshape(golden.at("out.y"), out)) <= 1e-12);
  std::vector<Tensor> wanted{x};
  for (const auto& [name, p] : module.named_parameters()) wanted.push_back(*p);
  const auto g = tape.grad(y, wanted, reshape(golden.at("rand.r"), out));
  CHECK(distance(g[0], reshape(golden.at("gin.x"), in)) <= 1e-10);
  std::size_t i = 1;
  for (const auto& [name, p] : module.named_parameters()) {
    CAPTURE(name);
    CHECK(distance(g[i++], golden.at("gw." + name.substr(name.find('.') + 1))) <= 1e-10);
  }
}

}  // namespace

TEST_CASE("PatchEmbed and CenterNorm: what LipsFormer's code gives") {
  struct Net : Module {
    PatchEmbed embed{*this, "embed", 3, 10, 4, {.dtype = f64}};
    std::optional<CenterNorm> norm;
  } net;
  // Below the embedding, as the file names it.
  net.norm.emplace(net.embed, "norm", 10, CenterNormOptions{.dtype = f64});
  compare("lips_patch_embed.npz", net, {2, 3, 8, 12}, {2, 2, 3, 10},
          [&](const Tensor& x) { return net.norm->forward(net.embed.forward(x)); });
}

TEST_CASE("PatchMerging: what LipsFormer's and Swin's code give") {
  struct Net : Module {
    PatchMerging merging;
    explicit Net(PatchNorm norm) : merging(*this, "merging", 8, {.norm = norm, .dtype = f64}) {}
  };
  Net lips(PatchNorm::center), swin(PatchNorm::layer);
  compare("lips_patch_merging.npz", lips, {2, 4, 6, 8}, {2, 2, 3, 16},
          [&](const Tensor& x) { return lips.merging.forward(x); });
  compare("swin_patch_merging.npz", swin, {2, 4, 6, 8}, {2, 2, 3, 16},
          [&](const Tensor& x) { return swin.merging.forward(x); });
}

TEST_CASE("extract_patches: channel by channel, rows from above") {
  Tensor image = zeros({1, 2, 4, 4});
  for (int i = 0; i < 32; ++i) image.mutable_data<float>()[i] = static_cast<float>(i);
  const Tensor patches = extract_patches(image, {2, 4});
  CHECK(patches.shape() == Shape({1, 2, 1, 16}));
  CHECK(patches.to_vector<float>() == std::vector<float>{0,  1,  2,  3,  4,  5,  6,  7,  16, 17, 18,
                                                         19, 20, 21, 22, 23, 8,  9,  10, 11, 12, 13,
                                                         14, 15, 24, 25, 26, 27, 28, 29, 30, 31});
}

TEST_CASE("patch_merge: upper left, lower left, upper right, lower right") {
  const Tensor x = from_values<float>({1, 2, 4, 1}, {0, 1, 2, 3, 10, 11, 12, 13});
  CHECK(patch_merge(x).to_vector<float>() == std::vector<float>{0, 10, 1, 11, 2, 12, 3, 13});
}

TEST_CASE("PatchEmbed is the convolution whose stride is its kernel") {
  struct Net : Module {
    PatchEmbed embed{*this, "embed", 3, 6, {2, 4}, {.dtype = f64}};
  } net;
  Generator rng{2};
  net.initialize(rng);
  const Tensor images = randn({2, 3, 6, 8}, f64, rng);
  CHECK(distance(net.embed.forward(images),
                 net.embed.proj.forward(permute(images, {0, 2, 3, 1})).detach()) <= 1e-14);
}

TEST_CASE("PatchEmbed with a larger kernel: patches that overlap, as many") {
  struct Net : Module {
    PatchEmbed embed{*this, "embed", 3, 6, 4, {.kernel = 7, .layer = "0", .dtype = f64}};
  } net;
  Generator rng{2};
  net.initialize(rng);
  const Tensor images = randn({2, 3, 8, 12}, f64, rng);
  CHECK(net.named_parameters()[0].first == "embed.0.weight");
  CHECK(distance(net.embed.forward(images),
                 conv2d(permute(images, {0, 2, 3, 1}), net.embed.proj.weight, *net.embed.proj.bias,
                        {.stride = 4, .padding = 2})
                     .detach()) <= 1e-14);
  CHECK(net.embed.forward(images).shape() == Shape({2, 2, 3, 6}));
  CHECK_THROWS_WITH_AS(net.embed.forward(ones({1, 3, 30, 32}, f64)),
                       "PatchEmbed: patches of 4 x 4 do not divide an image of 30 x 32: resize, "
                       "crop or pad it",
                       Error);
  struct Small : Module {
    PatchEmbed embed{*this, "embed", 3, 6, 4, {.kernel = 3}};
  };
  CHECK_THROWS_WITH_AS(Small(), "PatchEmbed: a kernel of 3 x 3 is smaller than patches of 4 x 4",
                       Error);
}

TEST_CASE("patches: errors say what does not fit") {
  CHECK_THROWS_WITH_AS(extract_patches(ones({1, 3, 30, 32}), 4),
                       "extract_patches: patches of 4 x 4 do not divide an image of 30 x 32: "
                       "resize, crop or pad it",
                       Error);
  CHECK_THROWS_AS(extract_patches(ones({3, 32, 32}), 4), Error);
  CHECK_THROWS_AS(extract_patches(ones({1, 3, 32, 32}), 0), Error);
  CHECK_THROWS_WITH_AS(patch_merge(ones({1, 7, 8, 3})),
                       "patch_merge: height and width of (1, 7, 8, 3) must be even: pad the image, "
                       "or choose a patch size that leaves even numbers of patches",
                       Error);
  CHECK_THROWS_AS(patch_merge(ones({8, 8, 3})), Error);
  struct Net : Module {
    PatchEmbed embed{*this, "embed", 3, 6, 4};
  } net;
  CHECK_THROWS_WITH_AS(net.embed.forward(ones({1, 1, 8, 8})),
                       "PatchEmbed: made for images (B, 3, H, W), got (1, 1, 8, 8)", Error);
}

}  // namespace lipgrad
