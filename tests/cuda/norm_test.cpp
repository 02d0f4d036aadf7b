#include <lipgrad/ops/kernels/norm.h>

#include "cuda/kernel_test.h"

namespace lipgrad {
namespace {

using test::DeviceVector;
using test::difference;
using test::tolerance;

template <class T>
bool close(const DeviceVector<T>& got, const std::vector<T>& expected) {
  return difference(got.host(), expected) <= tolerance<T>;
}

enum class Kind { layer, rms, center };

template <class T>
void check_norm(Kind kind, std::int64_t rows, std::int64_t cols, std::int64_t shift, bool affine) {
  CAPTURE(static_cast<int>(kind));
  CAPTURE(rows);
  CAPTURE(cols);
  CAPTURE(shift);
  CAPTURE(affine);
  const double eps = 1e-5;
  const std::int64_t n = rows * cols;
  const std::vector<T> x = random_values<T>(n, 1, -1, 3), w = random_values<T>(cols, 2),
                       b = random_values<T>(cols, 3), gy = random_values<T>(n, 4);
  std::vector<T> y(n), mean(rows), rstd(rows), gx(n), gw(cols), gb(cols);
  const DeviceVector<T> dx(x, shift), dw(w, shift), db(b, shift), dgy(gy, shift);
  DeviceVector<T> dy(n, shift), dmean(rows), drstd(rows), dgw(cols, shift), dgb(cols, shift);
  const T* weight = affine ? w.data() : nullptr;
  const T* bias = affine ? b.data() : nullptr;
  const T* dweight = affine ? dw.read() : nullptr;
  const T* dbias = affine ? db.read() : nullptr;
  if (kind == Kind::layer) {
    cpu::layer_norm(rows, cols, eps, x.data(), weight, bias, y.data(), mean.data(), rstd.data());
    cuda::layer_norm(rows, cols, eps, dx.read(), dweight, dbias, dy.data(), dmean.data(),
                     drstd.data());
  } else if (kind == Kind::rms) {
    cpu::rms_norm(rows, cols, eps, x.data(), weight, y.data(), rstd.data());
    cuda::rms_norm(rows, cols, eps, dx.read(), dweight, dy.data(), drstd.data());
  } else {
    cpu::center_norm(rows, cols, x.data(), weight, bias, y.data(), mean.data());
    cuda::center_norm(rows, cols, dx.read(), dweight, dbias, dy.data(), dmean.data());
  }
  CHECK(close(dy, y));
  if (kind != Kind::rms) CHECK(close(dmean, mean));
  if (kind != Kind::center) CHECK(close(drstd, rstd));

  // All gradients, gx in the place of gy; then each alone.
  for (int wanted : {7, 1, 2, 4}) {
    CAPTURE(wanted);
    const bool want_x = wanted & 1, want_w = wanted & 2, want_b = wanted & 4;
    DeviceVector<T> in_place(gy, shift), aside(n, shift);
    T* target = !want_x ? nullptr : wanted == 7 ? in_place.data() : aside.data();
    T *cpu_x = want_x ? gx.data() : nullptr, *cpu_w = want_w ? gw.data() : nullptr,
      *cpu_b = want_b ? gb.data() : nullptr;
    T *cuda_w = want_w ? dgw.data() : nullptr, *cuda_b = want_b ? dgb.data() : nullptr;
    if (kind == Kind::center) {
      cpu::center_norm_backward(rows, cols, x.data(), weight, mean.data(), gy.data(), cpu_x, cpu_w,
                                cpu_b);
      cuda::center_norm_backward(rows, cols, want_w ? dx.read() : nullptr, dweight,
                                 want_w ? dmean.read() : nullptr, in_place.read(), target, cuda_w,
                                 cuda_b);
    } else {
      const bool layer = kind == Kind::layer;
      cpu::norm_backward(rows, cols, x.data(), weight, layer ? mean.data() : nullptr, rstd.data(),
                         gy.data(), cpu_x, cpu_w, cpu_b);
      cuda::norm_backward(rows, cols, dx.read(), dweight, layer ? dmean.read() : nullptr,
                          drstd.read(), in_place.read(), target, cuda_w, cuda_b);
    }
    if (want_x) CHECK(close(wanted == 7 ? in_place : aside, gx));
    if (want_w) CHECK(close(dgw, gw));
    if (want_b) CHECK(close(dgb, gb));
  }
}

template <class T>
void check_l2(std::int64_t outer, std::int64_t n, std::int64_t inner, std::int64_t shift) {
  CAPTURE(outer);
  CAPTURE(n);
  CAPTURE(inner);
  const std::int64_t count = outer * n * inner;
  std::vector<T> x = random_values<T>(count, 1);
  for (std::int64_t i = 0; i < n; ++i) x[i * inner] = T(i == 0 ? 1e-4 : 0);  // shorter than eps
  const std::vector<T> gy = random_values<T>(count, 2);
  std::vector<T> y(count), norm(outer * inner), gx(count);
  const double eps = 1e-2;
  DeviceVector<T> dx(x, shift), dy(count, shift), dnorm(outer * inner), dgy(gy, shift);
  cpu::l2_normalize(outer, n, inner, eps, x.data(), y.data(), norm.data());
  cuda::l2_normalize(outer, n, inner, eps, dx.read(), dy.data(), dnorm.data());
  CHECK(close(dy, y));
  CHECK(close(dnorm, norm));
  cpu::l2_normalize_backward(outer, n, inner, eps, y.data(), norm.data(), gy.data(), gx.data());
  cuda::l2_normalize_backward(outer, n, inner, eps, dy.read(), dnorm.read(), dgy.read(),
                              dgy.data());
  CHECK(close(dgy, gx));
}

}  // namespace

TEST_CASE("norm: layer_norm, rms_norm and center_norm with gradients equal the CPU's") {
  if (!test::with_cuda()) return;
  // Rows of a group of lanes, of a block; few and many blocks.
  const std::pair<std::int64_t, std::int64_t> sizes[] = {{1, 3},    {5, 7},    {33, 10}, {70, 32},
                                                         {9, 100},  {2600, 4}, {3, 512}, {20, 516},
                                                         {40, 771}, {2, 5000}};
  for (const Kind kind : {Kind::layer, Kind::rms, Kind::center}) {
    for (const auto& [rows, cols] : sizes) {
      check_norm<float>(kind, rows, cols, 0, true);
      check_norm<double>(kind, rows, cols, 1, true);
    }
    check_norm<float>(kind, 20, 96, 1, true);
    check_norm<double>(kind, 20, 96, 0, false);
    check_norm<float>(kind, 2, 15000, 0, false);   // gradients do not fit shared memory
    check_norm<double>(kind, 18, 30000, 0, true);  // nor does the row
  }
}

TEST_CASE("norm: l2_normalize and its gradient equal the CPU's, also below eps") {
  if (!test::with_cuda()) return;
  check_l2<float>(3, 1, 1, 0);
  for (std::int64_t n : {5, 32, 200, 700, 3000}) {
    check_l2<float>(4, n, 1, 0);
    check_l2<double>(4, n, 1, 1);
  }
  check_l2<float>(3, 40, 7, 0);
  check_l2<double>(2, 300, 33, 0);
  check_l2<float>(1, 9000, 2, 0);
}

TEST_CASE("norm: no rows give no results and gradients of zero") {
  if (!test::with_cuda()) return;
  DeviceVector<float> weights(6), biases(6);
  const float* none = nullptr;
  float* nothing = nullptr;
  cuda::layer_norm(0, 6, 1e-5, none, none, none, nothing, nothing, nothing);
  cuda::norm_backward(0, 6, none, none, none, none, none, nothing, weights.data(), biases.data());
  CHECK(weights.host() == std::vector<float>(6, 0.0f));
  CHECK(biases.host() == std::vector<float>(6, 0.0f));
  DeviceVector<float> norm(3);
  cuda::l2_normalize(1, 0, 3, 1e-5, none, nothing, norm.data());
  CHECK(norm.host() == std::vector<float>(3, 0.0f));
}

TEST_CASE("norm: the same bits at any alignment") {
  if (!test::with_cuda()) return;
  const std::int64_t rows = 50, cols = 96;
  const std::vector<float> x = random_values<float>(rows * cols, 1),
                           gy = random_values<float>(rows * cols, 2);
  std::vector<float> first_x, first_w;
  for (std::int64_t shift : {0, 1}) {
    const DeviceVector<float> dx(x, shift), dgy(gy, shift);
    DeviceVector<float> y(rows * cols, shift), mean(rows), rstd(rows), gx(rows * cols, shift),
        gw(cols);
    const float* none = nullptr;
    float* nothing = nullptr;
    cuda::layer_norm(rows, cols, 1e-5, dx.read(), none, none, y.data(), mean.data(), rstd.data());
    cuda::norm_backward(rows, cols, dx.read(), none, mean.read(), rstd.read(), dgy.read(),
                        gx.data(), gw.data(), nothing);
    if (shift == 0) first_x = gx.host(), first_w = gw.host();
    CHECK(same_bits(gx.host(), first_x));
    CHECK(same_bits(gw.host(), first_w));
  }
}

}  // namespace lipgrad
