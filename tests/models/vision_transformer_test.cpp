#include <lipgrad/models/vision_transformer.h>

#include <doctest/doctest.h>

#include <lipgrad/core/error.h>

#include "models/vision_golden.h"

namespace lipgrad {
namespace {

TEST_CASE("published vision transformers have the published sizes") {
  struct Size {
    const char* name;
    std::int64_t parameters, multiply_adds;
  };
  for (const auto& [name, parameters, multiply_adds] :
       {Size{"vit_ti", 5717416, 1253683200}, Size{"vit_s", 22050664, 4598882304},
        Size{"vit_b", 86567656, 17563828224}}) {
    CAPTURE(name);
    const VisionTransformer model(vit_options(name));
    std::int64_t total = 0;
    for (const ModuleCost& cost : model.multiply_adds()) total += cost.multiply_adds;
    CHECK(model.num_parameters() == parameters);
    CHECK(total == multiply_adds);
  }
  CHECK(VisionTransformer(vit_options("vit_micro")).num_parameters() <= 1'000'000);
  CHECK_THROWS_WITH_AS(vit_options("vit_x"), doctest::Contains("there is no model 'vit_x'"), Error);
}

TEST_CASE("a vision transformer as published") {
  VisionTransformerOptions options{.image_height = 8, .image_width = 8, .classes = 5, .patch = 4};
  options.width = 8, options.depth = 2, options.heads = 2;
  options.block.dtype = f64;
  VisionTransformer model(options);
  test::compare(model, test::vision_golden("vit_model"),
                [&](const Tensor& x) { return model.forward(x, Mode::eval()); });
}

TEST_CASE("VisionTransformer names what does not fit") {
  VisionTransformerOptions options{.image_height = 16, .image_width = 16, .patch = 5};
  CHECK_THROWS_WITH_AS(VisionTransformer{options},
                       "VisionTransformer: images of 16 x 16 are not made of patches of 5 x 5",
                       Error);
  options.patch = 4;
  options.block.convolutions = true;
  CHECK_THROWS_AS(VisionTransformer{options}, Error);
  options.block.convolutions = false;
  const VisionTransformer model(options);
  CHECK_THROWS_WITH_AS(model.forward(zeros({2, 3, 16}), Mode::eval()),
                       "VisionTransformer: expects images (B, 3, 16, 16), got (2, 3, 16)", Error);
}

}  // namespace
}  // namespace lipgrad
