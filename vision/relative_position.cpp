#include <lipgrad/vision/relative_position.h>

#include <cmath>
#include <vector>

#include <lipgrad/core/check.h>
#include <lipgrad/core/launch.h>
#include <lipgrad/core/op.h>
#include <lipgrad/vision/kernels/relative_position.h>

namespace lipgrad {
namespace {

struct RelativePositionBias {
  static constexpr auto name = "relative_position_bias";
  std::int64_t height, width;

  Tensor forward(Ctx&, Inputs in) const {
    const Tensor& table = in[0];
    const std::int64_t heads = table.size(1), tokens = height * width;
    Tensor bias = empty({heads, tokens, tokens}, table.dtype(), table.device());
    visit_float(name, table.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      LIPGRAD_LAUNCH(table.device(), relative_position_bias, heads, height, width, table.data<T>(),
                     bias.mutable_data<T>());
    });
    return bias;
  }
  void backward(Ctx&, const Tensor& gy, Grads gx) const {
    const std::int64_t heads = gy.size(0);
    Tensor grad = empty({(2 * height - 1) * (2 * width - 1), heads}, gy.dtype(), gy.device());
    visit_float(name, gy.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      LIPGRAD_LAUNCH(gy.device(), relative_position_bias_backward, heads, height, width,
                     gy.data<T>(), grad.mutable_data<T>());
    });
    gx[0] = std::move(grad);
  }
};

}  // namespace

Tensor relative_position_bias(const Tensor& table, std::int64_t height, std::int64_t width) {
  constexpr auto op = RelativePositionBias::name;
  check_same_kind(op, {&table});
  LIPGRAD_CHECK(height >= 1 && width >= 1, "{}: the window must be at least 1 x 1, got {} x {}", op,
                height, width);
  LIPGRAD_CHECK(table.rank() == 2 && table.size(0) == (2 * height - 1) * (2 * width - 1),
                "{}: the table of a {} x {} window must be ({}, heads), got {}", op, height, width,
                (2 * height - 1) * (2 * width - 1), table.shape());
  return apply(RelativePositionBias{height, width}, table);
}

Tensor relative_position_coordinates(std::int64_t height, std::int64_t width, DType dtype) {
  LIPGRAD_CHECK(height >= 1 && width >= 1,
                "relative_position_coordinates: the window must be at least 1 x 1, got {} x {}",
                height, width);
  const auto scaled = [](std::int64_t offset, std::int64_t size) {
    if (size == 1) return 0.0;
    const double z = 8 * static_cast<double>(offset) / static_cast<double>(size - 1);
    return std::copysign(std::log2(1 + std::abs(z)) / 3, z);
  };
  std::vector<double> at;
  for (std::int64_t y = 1 - height; y < height; ++y)
    for (std::int64_t x = 1 - width; x < width; ++x) {
      at.push_back(scaled(y, height));
      at.push_back(scaled(x, width));
    }
  return from_vector({static_cast<std::int64_t>(at.size() / 2), 2}, at).to(dtype);
}

}  // namespace lipgrad
