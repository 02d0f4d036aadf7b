#include <lipgrad/ops/kernels/conv2d.h>
#include <lipgrad/ops/kernels/depthwise_conv.h>

#include "cuda/kernel_test.h"

namespace lipgrad {
namespace {

using test::DeviceVector;
using test::difference;
using test::tolerance;

ConvShape shape(std::int64_t batch, std::int64_t height, std::int64_t width, std::int64_t channels,
                std::int64_t kernel_height, std::int64_t kernel_width, std::int64_t stride_down,
                std::int64_t stride_right, std::int64_t pad_down, std::int64_t pad_right) {
  return {batch,
          height,
          width,
          channels,
          kernel_height,
          kernel_width,
          stride_down,
          stride_right,
          pad_down,
          pad_right,
          (height + 2 * pad_down - kernel_height) / stride_down + 1,
          (width + 2 * pad_right - kernel_width) / stride_right + 1};
}

}  // namespace

TEST_CASE_TEMPLATE("depth-wise convolutions: results and gradients equal the CPU's", T, float,
                   double) {
  if (!test::with_cuda()) return;
  const ConvShape shapes[] = {
      shape(2, 7, 7, 33, 7, 7, 1, 1, 3, 3),  shape(1, 9, 16, 3, 5, 5, 1, 1, 2, 2),
      shape(3, 4, 1, 40, 3, 3, 1, 1, 1, 1),  shape(1, 8, 13, 5, 2, 7, 1, 1, 0, 3),
      shape(1, 5, 8, 6, 3, 3, 1, 1, 5, 4),   shape(2, 9, 8, 6, 3, 5, 2, 3, 1, 3),
      shape(2, 40, 9, 34, 3, 3, 1, 1, 1, 1), shape(1, 6, 6, 2, 4, 4, 1, 1, 1, 1)};
  for (const ConvShape& s : shapes) {
    CAPTURE(s.height);
    CAPTURE(s.width);
    CAPTURE(s.kernel_width);
    const std::int64_t n = s.batch * s.height * s.width * s.channels, m = s.outputs() * s.channels,
                       taps = s.taps() * s.channels;
    const std::vector<T> x = random_values<T>(n, 1), w = random_values<T>(taps, 2),
                         bias = random_values<T>(s.channels, 3), gy = random_values<T>(m, 4);
    std::vector<T> y(m), gx(n), gw(taps);
    const DeviceVector<T> dx(x, 1), dw(w), dbias(bias), dgy(gy, 1);
    DeviceVector<T> dy(m), dgx(n), dgw(taps, 1);
    const T* none = nullptr;
    cpu::depthwise_conv(s, x.data(), w.data(), bias.data(), y.data());
    cuda::depthwise_conv(s, dx.read(), dw.read(), dbias.read(), dy.data());
    CHECK(difference(dy.host(), y) <= tolerance<T>);
    cpu::depthwise_conv(s, x.data(), w.data(), none, y.data());
    cuda::depthwise_conv(s, dx.read(), dw.read(), none, dy.data());
    CHECK(difference(dy.host(), y) <= tolerance<T>);
    cpu::depthwise_conv_backward_input(s, w.data(), gy.data(), gx.data());
    cuda::depthwise_conv_backward_input(s, dw.read(), dgy.read(), dgx.data());
    CHECK(difference(dgx.host(), gx) <= tolerance<T>);
    cpu::depthwise_conv_backward_weight(s, x.data(), gy.data(), gw.data());
    cuda::depthwise_conv_backward_weight(s, dx.read(), dgy.read(), dgw.data());
    CHECK(difference(dgw.host(), gw) <= tolerance<T>);
  }
}

TEST_CASE_TEMPLATE("columns of convolutions: copies and their sums equal the CPU's", T, float,
                   double) {
  if (!test::with_cuda()) return;
  for (const std::int64_t channels : {3, 8}) {
    for (const std::int64_t shift : {0, 1}) {
      CAPTURE(channels);
      CAPTURE(shift);
      const ConvShape s = shape(3, 9, 7, channels, 3, 4, 2, 1, 1, 2);
      const ConvBlock block{1, 2, 0, s.out_height, channels == 8 ? 4 : 0, channels == 8 ? 4 : 3};
      const std::int64_t n = s.batch * s.height * s.width * s.channels,
                         m = block.outputs(s) * s.taps() * block.channels;
      const std::vector<T> x = random_values<T>(n, 1), g = random_values<T>(m, 2);
      std::vector<T> columns(m), gx(n, T(77));
      const DeviceVector<T> dx(x, shift), dg(g, shift);
      DeviceVector<T> dcolumns(m, shift), dgx(n, shift);
      cpu::conv_columns(s, block, x.data(), columns.data());
      cuda::conv_columns(s, block, dx.read(), dcolumns.data());
      CHECK(dcolumns.host() == columns);
      cpu::conv_columns_backward(s, block, std::int64_t{0}, s.height, g.data(), gx.data());
      cuda::conv_columns_backward(s, block, std::int64_t{0}, s.height, dg.read(), dgx.data());
      CHECK(difference(dgx.host(), gx) <= tolerance<T>);
    }
  }
}

}  // namespace lipgrad
