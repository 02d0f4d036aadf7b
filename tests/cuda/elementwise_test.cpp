#include <lipgrad/ops/kernels/elementwise.h>

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

template <class T>
void check_unary(Unary op, double a, double b) {
  for (std::int64_t n : {1, 3, 1023, 1024, 3333}) {
    for (std::int64_t shift : {0, 1}) {
      CAPTURE(static_cast<int>(op));
      CAPTURE(n);
      CAPTURE(shift);
      const std::vector<T> x = hard_values<T>(n, 1), gy = random_values<T>(n, 2);
      std::vector<T> y(n), gx(n);
      cpu::unary(op, a, b, n, x.data(), y.data());
      DeviceVector<T> dx(x, shift), dy(n, shift), dg(gy, shift);
      cuda::unary(op, a, b, n, dx.read(), dy.data());
      CHECK(difference(dy.host(), y) <= tolerance<T>);

      const std::vector<T>& saved = saves_result(op) ? y : x;
      cpu::unary_backward(op, a, b, n, saves_nothing(op) ? nullptr : saved.data(), gy.data(),
                          gx.data());
      DeviceVector<T> ds(saved, shift);
      cuda::unary_backward(op, a, b, n, saves_nothing(op) ? nullptr : ds.read(), dg.read(),
                           dg.data());  // in place
      CHECK(difference(dg.host(), gx) <= tolerance<T>);
    }
  }
}

template <class T>
void check_activation(Activation f, double a) {
  for (const auto& [rows, cols] : {std::pair{1, 1}, {5, 7}, {3, 1200}, {40, 64}, {700, 3}}) {
    for (std::int64_t shift : {0, 1}) {
      CAPTURE(static_cast<int>(f));
      CAPTURE(cols);
      CAPTURE(shift);
      const std::int64_t n = rows * cols;
      const std::vector<T> x = hard_values<T>(n, 3), gy = random_values<T>(n, 4),
                           bias = random_values<T>(cols, 5);
      std::vector<T> y(n), z(n), gx(n);
      cpu::activation(f, a, n, x.data(), y.data());
      cpu::bias_activation(f, a, rows, cols, x.data(), bias.data(), z.data());
      const std::vector<T>& saved = saves_result(f, a) ? y : x;
      cpu::activation_backward(f, a, n, saved.data(), gy.data(), gx.data());

      DeviceVector<T> dx(x, shift), dy(n, shift), db(bias, shift), ds(saved, shift), dg(gy, shift);
      cuda::activation(f, a, n, dx.read(), dy.data());
      CHECK(difference(dy.host(), y) <= tolerance<T>);
      cuda::bias_activation<T>(f, a, rows, cols, dx.read(), nullptr, dy.data());
      CHECK(difference(dy.host(), y) <= tolerance<T>);
      cuda::bias_activation(f, a, rows, cols, dx.read(), db.read(), dx.data());
      CHECK(difference(dx.host(), z) <= tolerance<T>);
      cuda::activation_backward(f, a, n, ds.read(), dg.read(), dg.data());
      CHECK(difference(dg.host(), gx) <= tolerance<T>);
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

TEST_SUITE("cuda") {
  TEST_CASE(
      "elementwise: maps equal the CPU's at any alignment, in place, with NaN and infinities") {
    if (!test::with_cuda()) return;
    const std::pair<double, double> parameters[] = {{1.5, 0}, {-2, 0.5}};
    for (int op = 0; op <= static_cast<int>(Unary::clamp); ++op) {
      for (auto [a, b] : parameters) {
        check_unary<float>(static_cast<Unary>(op), a, b);
        check_unary<double>(static_cast<Unary>(op), a, b);
      }
    }
  }

  TEST_CASE("elementwise: activations equal the CPU's, with and without a bias") {
    if (!test::with_cuda()) return;
    for (int f = 0; f <= static_cast<int>(Activation::softplus); ++f) {
      check_activation<float>(static_cast<Activation>(f), 0.7);
      check_activation<double>(static_cast<Activation>(f), 0.7);
    }
    check_activation<float>(Activation::leaky_relu, -0.2);  // its gradient reads x
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

  TEST_CASE("elementwise: nothing to do launches nothing") {
    if (!test::with_cuda()) return;
    cuda::unary<float>(Unary::exp, 0, 0, 0, nullptr, nullptr);
    cuda::bias_activation<float>(Activation::relu, 0, 0, 4, nullptr, nullptr, nullptr);
    cuda::bias_activation<float>(Activation::relu, 0, 4, 0, nullptr, nullptr, nullptr);
    cuda::binary<float>(Binary::add, Broadcast(0), nullptr, nullptr, nullptr);
    CHECK(DeviceVector<float>(2).host() == std::vector<float>(2, 77.0f));
  }
}

}  // namespace lipgrad
