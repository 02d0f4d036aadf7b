#include <lipgrad/ops/kernels/elementwise.h>

#include <lipgrad/core/kernels/accumulate.h>
#include <lipgrad/ops/kernels/activation.h>

#include "cuda/kernel_test.h"

namespace lipgrad {
namespace {

using test::DeviceVector;
using test::difference;
using test::tolerance;

constexpr double inf = std::numeric_limits<double>::infinity();

// Values of both signs with zeros, infinities and NaN among them.
template <class T>
std::vector<T> hard_values(std::int64_t n, std::uint32_t seed) {
  std::vector<T> x = random_values<T>(n, seed);
  const T odd[] = {T(0), T(-0.0), T(inf), T(-inf), std::numeric_limits<T>::quiet_NaN(), T(1)};
  for (std::int64_t i = 0; i < n; i += 7) x[i] = odd[i / 7 % 6];
  return x;
}

// Lengths and distances from an aligned address: parts of a block, whole ones, and several.
const std::pair<std::int64_t, std::int64_t> lengths[] = {{3, 0}, {2048, 0}, {3333, 0}, {1027, 1}};

template <class T>
void check_unary() {
  for (const auto& [n, shift] : lengths) {
    CAPTURE(n);
    CAPTURE(shift);
    const std::vector<T> x = hard_values<T>(n, 1), gy = random_values<T>(n, 2);
    std::vector<T> y(n), gx(n);
    const DeviceVector<T> dx(x, shift), dgy(gy, shift);
    DeviceVector<T> dy(n, shift);
    for (int i = 0; i <= static_cast<int>(Unary::clamp); ++i) {
      const Unary op = static_cast<Unary>(i);
      CAPTURE(i);
      const double a = i % 2 == 0 ? 1.5 : -2, b = 1.75;
      cpu::unary(op, a, b, n, x.data(), y.data());
      cuda::unary(op, a, b, n, dx.read(), dy.data());
      CHECK(difference(dy.host(), y) <= tolerance<T>);
      // Its gradient, in the place of the saved result.
      const bool result = saves_result(op), nothing = saves_nothing(op);
      cpu::unary_backward(op, a, b, n,
                          nothing  ? nullptr
                          : result ? y.data()
                                   : x.data(),
                          gy.data(), gx.data());
      cuda::unary_backward(op, a, b, n,
                           nothing  ? nullptr
                           : result ? dy.read()
                                    : dx.read(),
                           dgy.read(), dy.data());
      CHECK(difference(dy.host(), gx) <= tolerance<T>);
    }
  }
}

template <class T>
void check_activations(double a) {
  for (const auto& [rows, cols] : {std::pair{1, 1}, {5, 7}, {3, 1200}, {40, 64}}) {
    for (std::int64_t shift : {0, 1}) {
      CAPTURE(cols);
      CAPTURE(shift);
      const std::int64_t n = rows * cols;
      const std::vector<T> x = hard_values<T>(n, 3), gy = random_values<T>(n, 4),
                           bias = random_values<T>(cols, 5);
      std::vector<T> y(n), z(n), gx(n);
      const DeviceVector<T> dx(x, shift), db(bias, shift), dgy(gy, shift);
      DeviceVector<T> dy(n, shift), dz(n, shift);
      for (int i = 0; i <= static_cast<int>(Activation::softplus); ++i) {
        const Activation f = static_cast<Activation>(i);
        CAPTURE(i);
        cpu::activation(f, a, n, x.data(), y.data());
        cuda::activation(f, a, n, dx.read(), dy.data());
        CHECK(difference(dy.host(), y) <= tolerance<T>);
        cpu::bias_activation(f, a, rows, cols, x.data(), bias.data(), z.data());
        cuda::bias_activation(f, a, rows, cols, dx.read(), db.read(), dz.data());
        CHECK(difference(dz.host(), z) <= tolerance<T>);
        const bool result = saves_result(f, a);
        cpu::activation_backward(f, a, n, result ? y.data() : x.data(), gy.data(), gx.data());
        cuda::activation_backward(f, a, n, result ? dy.read() : dx.read(), dgy.read(), dz.data());
        CHECK(difference(dz.host(), gx) <= tolerance<T>);
      }
    }
  }
}

using Sizes = std::vector<std::int64_t>;

std::int64_t product(const Sizes& size) {
  std::int64_t n = 1;
  for (std::int64_t s : size) n *= s;
  return n;
}

struct BroadcastCase {
  Sizes result, u, v, w;
};

template <class T>
void check_broadcast(const BroadcastCase& c, std::int64_t shift) {
  Broadcast two(static_cast<int>(c.result.size()), c.result.data());
  two.set_operand(0, static_cast<int>(c.u.size()), c.u.data());
  two.set_operand(1, static_cast<int>(c.v.size()), c.v.data());
  Broadcast three = two;
  three.set_operand(2, static_cast<int>(c.w.size()), c.w.data());
  two.collapse(2);
  three.collapse(3);
  const std::int64_t n = product(c.result);
  const std::vector<T> u = random_values<T>(product(c.u), 1, 0.1, 3),
                       v = random_values<T>(product(c.v), 2, -2, 2),
                       w = random_values<T>(product(c.w), 3);
  std::vector<std::uint8_t> condition(u.size());
  for (std::size_t i = 0; i < u.size(); ++i) condition[i] = u[i] < 1.5 ? 0 : 1 + i % 200;
  std::vector<T> y(n);
  DeviceVector<T> du(u, shift), dv(v, shift), dw(w, shift), dy(n, shift);
  const DeviceVector<std::uint8_t> dc(condition, shift);
  for (Binary op : {Binary::add, Binary::sub, Binary::mul, Binary::div, Binary::pow,
                    Binary::minimum, Binary::maximum}) {
    CAPTURE(static_cast<int>(op));
    cpu::binary(op, two, u.data(), v.data(), y.data());
    cuda::binary(op, two, du.read(), dv.read(), dy.data());
    CHECK(difference(dy.host(), y) <= tolerance<T>);
    if (op == Binary::add || op == Binary::sub || op == Binary::mul) continue;
    for (int which : {0, 1}) {
      cpu::binary_backward(op, which, three, u.data(), v.data(), w.data(), y.data());
      cuda::binary_backward(op, which, three, du.read(), dv.read(), dw.read(), dy.data());
      CHECK(difference(dy.host(), y) <= tolerance<T>);
    }
  }
  for (int zero : {0, 1, 2}) {
    cpu::where<T>(three, condition.data(), zero == 1 ? nullptr : v.data(),
                  zero == 2 ? nullptr : w.data(), y.data());
    cuda::where<T>(three, dc.read(), zero == 1 ? nullptr : dv.read(),
                   zero == 2 ? nullptr : dw.read(), dy.data());
    CHECK(difference(dy.host(), y) == 0);
  }
}

}  // namespace

TEST_CASE("elementwise: maps equal the CPU's at any alignment, in place, with NaN and infinities") {
  if (!test::with_cuda()) return;
  check_unary<float>();
  check_unary<double>();
}

TEST_CASE("elementwise: activations equal the CPU's, with and without a bias") {
  if (!test::with_cuda()) return;
  check_activations<float>(0.7);
  check_activations<double>(0.7);
  check_activations<float>(-0.2);  // the gradient of leaky_relu reads x
}

TEST_CASE("elementwise: maps and activations in place, and a bias that is null") {
  if (!test::with_cuda()) return;
  const std::int64_t n = 1500;
  const std::vector<float> x = random_values<float>(n, 1), gy = random_values<float>(n, 2);
  std::vector<float> y(n), gx(n);
  DeviceVector<float> dx(x), dgy(gy);
  cpu::activation(Activation::silu, 0, n, x.data(), y.data());
  cpu::activation_backward(Activation::silu, 0, n, x.data(), gy.data(), gx.data());
  cuda::activation_backward(Activation::silu, 0, n, dx.read(), dgy.read(), dgy.data());
  cuda::bias_activation<float>(Activation::silu, 0, 30, 50, dx.read(), nullptr, dx.data());
  CHECK(difference(dx.host(), y) <= tolerance<float>);
  CHECK(difference(dgy.host(), gx) <= tolerance<float>);
  cpu::unary(Unary::exp, 0, 0, n, y.data(), y.data());
  cuda::unary(Unary::exp, 0, 0, n, dx.read(), dx.data());
  CHECK(difference(dx.host(), y) <= tolerance<float>);
}

TEST_CASE("elementwise: every kind of broadcasting equals the CPU's") {
  if (!test::with_cuda()) return;
  const BroadcastCase cases[] = {
      {{}, {}, {}, {}},
      {{1500}, {1500}, {1500}, {1500}},
      {{1500}, {1500}, {1}, {1500}},  // a scalar
      {{1500}, {}, {1500}, {1}},
      {{30, 48}, {30, 48}, {48}, {30, 48}},  // along rows
      {{30, 48}, {30, 1}, {30, 48}, {48}},   // along columns
      {{30, 7}, {30, 1}, {7}, {30, 7}},      // both, no multiple of a pack
      {{5, 6, 8}, {5, 1, 8}, {6, 1}, {5, 6, 8}},
      {{3, 4, 5, 6}, {3, 1, 5, 1}, {4, 1, 6}, {3, 4, 5, 6}},
      {{2, 3, 2, 3, 2, 3, 2, 4}, {2, 1, 2, 1, 2, 1, 2, 4}, {1, 3, 1, 3, 1, 3, 1, 1}, {1, 4}},
  };
  for (const BroadcastCase& c : cases) {
    for (std::int64_t shift : {0, 1}) {
      CAPTURE(shift);
      CAPTURE(c.result.size());
      check_broadcast<float>(c, shift);
      check_broadcast<double>(c, shift);
    }
  }
}

TEST_CASE("elementwise: offsets beyond 2^31") {
  if (!test::with_cuda()) return;
  const std::int64_t far = (std::int64_t{1} << 31) + 4096, sizes[] = {2, 5};
  Tensor condition = empty({far + 5}, u8, cuda_device());
  cuda::fill<std::uint8_t>(condition.mutable_data<std::uint8_t>(), 5, 1);
  cuda::fill<std::uint8_t>(condition.mutable_data<std::uint8_t>() + far, 5, 0);
  Broadcast shape(2, sizes);
  for (int k : {0, 1, 2}) shape.set_operand(k, 2, sizes);
  shape.stride[0][0] = far;
  const std::vector<float> u = random_values<float>(10, 1), v = random_values<float>(10, 2);
  const DeviceVector<float> du(u), dv(v);
  DeviceVector<float> dy(10);
  cuda::where(shape, condition.data<std::uint8_t>(), du.read(), dv.read(), dy.data());
  const std::vector<float> y = dy.host();
  for (int i = 0; i < 10; ++i) CHECK(y[i] == (i < 5 ? u[i] : v[i]));
}

TEST_CASE("elementwise: nothing to do launches nothing") {
  if (!test::with_cuda()) return;
  cuda::unary<float>(Unary::exp, 0, 0, 0, nullptr, nullptr);
  cuda::bias_activation<float>(Activation::relu, 0, 0, 4, nullptr, nullptr, nullptr);
  cuda::bias_activation<float>(Activation::relu, 0, 4, 0, nullptr, nullptr, nullptr);
  cuda::binary<float>(Binary::add, Broadcast(0), nullptr, nullptr, nullptr);
  CHECK(DeviceVector<float>(2).host() == std::vector<float>(2, 77.0f));
}

}  // namespace lipgrad
