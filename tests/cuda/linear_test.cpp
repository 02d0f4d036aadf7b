#include <lipgrad/ops/kernels/linear.h>

#include "cuda/kernel_test.h"

namespace lipgrad {
namespace {

using test::DeviceVector;
using test::difference;
using test::tolerance;

// Sizes of the layer and how far its arrays are from 16 bytes.
struct Sizes {
  std::int64_t rows, in, out, shift;
};

template <class T>
void check(Activation f, const Sizes& s, bool with_bias, bool with_pre, double limit) {
  CAPTURE(static_cast<int>(f));
  CAPTURE(s.rows);
  CAPTURE(s.in);
  CAPTURE(s.out);
  CAPTURE(s.shift);
  CAPTURE(with_bias);
  CAPTURE(with_pre);
  constexpr double a = 0.3;
  const auto x = random_values<T>(s.rows * s.in, 1, -1, 1),
             weight = random_values<T>(s.out * s.in, 2, -1, 1), bias = random_values<T>(s.out, 3),
             gy = random_values<T>(s.rows * s.out, 4);
  std::vector<T> pre(s.rows * s.out), y(s.rows * s.out), gz(s.rows * s.out), gbias(s.out);
  const DeviceVector<T> dx(x, s.shift), dw(weight, s.shift), db(bias, s.shift), dg(gy, s.shift);
  DeviceVector<T> dpre(s.rows * s.out, s.shift), dy(s.rows * s.out, s.shift),
      dgz(s.rows * s.out, s.shift), dgbias(s.out, s.shift);
  cpu::linear(f, a, s.rows, s.in, s.out, x.data(), weight.data(), with_bias ? bias.data() : nullptr,
              with_pre ? pre.data() : nullptr, y.data());
  // Twice: the second time the algorithm is known.
  for (int time = 0; time < 2; ++time) {
    cuda::linear(f, a, s.rows, s.in, s.out, dx.read(), dw.read(), with_bias ? db.read() : nullptr,
                 with_pre ? dpre.data() : nullptr, dy.data());
    CHECK(difference(dy.host(), y) <= limit);
    if (with_pre) CHECK(difference(dpre.host(), pre) <= limit);
  }

  const bool identity = f == Activation::identity;
  if (!with_pre && !saves_result(f, a) && !identity) return;
  const std::vector<T>& saved = saves_result(f, a) ? y : pre;
  const DeviceVector<T> ds(saved, s.shift);
  cpu::linear_backward_bias(f, a, s.rows, s.out, identity ? nullptr : saved.data(), gy.data(),
                            identity ? nullptr : gz.data(), gbias.data());
  cuda::linear_backward_bias(f, a, s.rows, s.out, identity ? nullptr : ds.read(), dg.read(),
                             identity ? nullptr : dgz.data(), dgbias.data());
  CHECK(difference(dgbias.host(), gbias) <= tolerance<T>);
  if (identity) return;
  CHECK(difference(dgz.host(), gz) <= tolerance<T>);
  cuda::linear_backward_bias<T>(f, a, s.rows, s.out, ds.read(), dg.read(), dy.data(), nullptr);
  CHECK(difference(dy.host(), gz) <= tolerance<T>);
}

constexpr Sizes some_sizes[] = {{1, 1, 1, 0}, {33, 20, 47, 0}, {33, 20, 48, 0}, {7, 5, 16, 1},
                                {0, 3, 4, 0}, {3, 4, 0, 0},    {5, 0, 7, 0},    {700, 3, 5, 0}};

template <class T>
void check_transpose(std::int64_t rows, std::int64_t cols) {
  CAPTURE(rows);
  CAPTURE(cols);
  const auto x = random_values<T>(rows * cols, 1);
  std::vector<T> y(rows * cols);
  cpu::transpose(rows, cols, x.data(), y.data());
  const DeviceVector<T> dx(x, 1);
  DeviceVector<T> dy(rows * cols, 1);
  cuda::transpose(rows, cols, dx.read(), dy.data());
  CHECK(dy.host() == y);
}

}  // namespace

TEST_CASE("linear: every activation, with and without bias, equals the CPU's") {
  if (!test::with_cuda()) return;
  for (int f = 0; f <= static_cast<int>(Activation::softplus); ++f) {
    for (const Sizes& sizes : some_sizes) {
      for (const bool with_bias : {false, true}) {
        for (const bool with_pre : {false, true}) {
          const auto activation = static_cast<Activation>(f);
          check<float>(activation, sizes, with_bias, with_pre, tolerance<float>);
          check<double>(activation, sizes, with_bias, with_pre, tolerance<double>);
        }
      }
    }
  }
}

TEST_CASE("linear: TF32, with the activations of cuBLASLt") {
  if (!test::with_cuda()) return;
  const test::Precision tf32(MatmulPrecision::tf32);
  for (const Activation f : {Activation::identity, Activation::relu, Activation::gelu_tanh})
    for (const Sizes& sizes : some_sizes)
      for (const bool with_pre : {false, true}) check<float>(f, sizes, true, with_pre, 5e-3);
}

TEST_CASE("linear: NaN and infinities reach the result") {
  if (!test::with_cuda()) return;
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> x{nan, 1, -1e30f, 1}, weight{1, 0, 0, 1, 1e30f, 0}, bias{0, 0, 0};
  for (const Activation f : {Activation::identity, Activation::relu, Activation::gelu_tanh}) {
    std::vector<float> y(6);
    cpu::linear<float>(f, 0, 2, 2, 3, x.data(), weight.data(), bias.data(), nullptr, y.data());
    const DeviceVector<float> dx(x), dw(weight), db(bias);
    DeviceVector<float> dy(6);
    cuda::linear<float>(f, 0, 2, 2, 3, dx.read(), dw.read(), db.read(), nullptr, dy.data());
    CHECK(difference(dy.host(), y) <= tolerance<float>);
  }
}

TEST_CASE("linear: transposed matrices") {
  if (!test::with_cuda()) return;
  for (const auto& [rows, cols] : {std::pair{1, 1}, {32, 32}, {33, 7}, {5, 100}, {0, 3}, {3, 0}}) {
    check_transpose<float>(rows, cols);
    check_transpose<double>(rows, cols);
  }
}

}  // namespace lipgrad
