#include <lipgrad/ops/kernels/softmax.h>

#include "cuda/kernel_test.h"

namespace lipgrad {
namespace {

using test::DeviceVector;
using test::difference;
using test::tolerance;

constexpr double inf = std::numeric_limits<double>::infinity();

struct Sizes {
  std::int64_t outer, n, inner;
};
// Rows of a group of lanes, of a block, too long to be kept; the same for columns.
const Sizes all_sizes[] = {{3, 1, 1},     {70, 5, 1},  {9, 10, 1},   {5, 32, 1},   {3, 100, 1},
                           {2, 512, 1},   {2, 513, 1}, {3, 1024, 1}, {2, 4099, 1}, {1, 20000, 1},
                           {1, 60000, 1}, {4, 3, 5},   {2, 100, 7},  {3, 60, 49},  {1, 600, 3},
                           {100, 1, 6},   {40, 2, 2},  {1, 1500, 9}, {2, 8000, 2}};

// Rows with every oddity: masked out, -inf, infinite, NaN.
template <class T>
void check_softmax(const Sizes& s, std::int64_t shift, bool odd) {
  CAPTURE(s.outer);
  CAPTURE(s.n);
  CAPTURE(s.inner);
  CAPTURE(shift);
  CAPTURE(odd);
  const std::int64_t count = s.outer * s.n * s.inner;
  std::vector<T> x = random_values<T>(count, 1, -8, 8);
  const std::vector<T> gy = random_values<T>(count, 2);
  std::vector<std::uint8_t> mask(count);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t slot = i / (s.n * s.inner) * s.inner + i % s.inner;
    mask[i] = x[i] > -2 && slot % 3 != 1 ? 1 + i % 255 : 0;
    if (odd && slot % 4 == 0) x[i] = static_cast<T>(-inf);
    if (odd && i % 97 == 5) x[i] = static_cast<T>(-inf);
    if (odd && i % 1009 == 7) x[i] = std::numeric_limits<T>::quiet_NaN();
    if (odd && i % 2003 == 9) x[i] = static_cast<T>(inf);
  }
  std::vector<T> y(count), gx(count);
  DeviceVector<T> dx(x, shift), dgy(gy, shift), dy(count, shift), dgx(count, shift);
  const DeviceVector<std::uint8_t> dmask(mask, shift);
  for (const bool masked : {false, true}) {
    CAPTURE(masked);
    const std::uint8_t* m = masked ? mask.data() : nullptr;
    const std::uint8_t* dm = masked ? dmask.read() : nullptr;
    cpu::log_softmax(s.outer, s.n, s.inner, x.data(), m, y.data());
    cuda::log_softmax(s.outer, s.n, s.inner, dx.read(), dm, dy.data());
    CHECK(difference(dy.host(), y) <= tolerance<T>);
    cpu::log_softmax_backward(s.outer, s.n, s.inner, y.data(), gy.data(), gx.data());
    cuda::log_softmax_backward(s.outer, s.n, s.inner, DeviceVector<T>(y, shift).read(), dgy.read(),
                               dgx.data());
    CHECK(difference(dgx.host(), gx) <= tolerance<T>);

    cpu::softmax(s.outer, s.n, s.inner, x.data(), m, y.data());
    DeviceVector<T> in_place(x, shift);
    cuda::softmax(s.outer, s.n, s.inner, in_place.read(), dm, in_place.data());
    CHECK(difference(in_place.host(), y) <= tolerance<T>);
    cpu::softmax_backward(s.outer, s.n, s.inner, y.data(), gy.data(), gx.data());
    DeviceVector<T> gradient(gy, shift);
    cuda::softmax_backward(s.outer, s.n, s.inner, in_place.read(), gradient.read(),
                           gradient.data());
    CHECK(difference(gradient.host(), gx) <= tolerance<T>);
  }
}

}  // namespace

TEST_CASE("softmax: rows and columns of every length equal the CPU's, with and without a mask") {
  if (!test::with_cuda()) return;
  for (const Sizes& s : all_sizes) {
    check_softmax<float>(s, 0, false);
    check_softmax<double>(s, 1, false);
  }
  check_softmax<float>({5, 48, 1}, 1, false);
  check_softmax<double>({2, 640, 1}, 0, false);
}

TEST_CASE("softmax: rows of -inf, infinities and NaN") {
  if (!test::with_cuda()) return;
  for (const Sizes& s : {Sizes{100, 40, 1}, Sizes{8, 1100, 1}, Sizes{30, 20, 13}}) {
    check_softmax<float>(s, 0, true);
    check_softmax<double>(s, 0, true);
  }
}

TEST_CASE("softmax: the same bits at any alignment") {
  if (!test::with_cuda()) return;
  for (std::int64_t n : {48, 2048}) {
    const std::vector<float> x = random_values<float>(3 * n, 4);
    std::vector<float> first;
    for (std::int64_t shift : {0, 1, 2}) {
      DeviceVector<float> y(x, shift);
      cuda::softmax<float>(3, n, 1, y.read(), nullptr, y.data());
      if (shift == 0) first = y.host();
      CHECK(same_bits(y.host(), first));
    }
  }
}

TEST_CASE("softmax: a long row of one sign is exact to 1e-6") {
  if (!test::with_cuda()) return;
  const std::int64_t n = 3'000'000;  // alike, so that roundings add up: each is 1 / n
  DeviceVector<float> y(std::vector<float>(n, 0.5f));
  cuda::softmax<float>(1, n, 1, y.read(), nullptr, y.data());
  CHECK(std::abs(y.host()[n / 2] * double(n) - 1) <= 1e-6);
}

TEST_CASE("softmax: nothing to do") {
  if (!test::with_cuda()) return;
  cuda::softmax<float>(0, 4, 1, nullptr, nullptr, nullptr);
  cuda::softmax<float>(4, 0, 1, nullptr, nullptr, nullptr);
  cuda::softmax<float>(4, 0, 3, nullptr, nullptr, nullptr);
  cuda::softmax<float>(4, 3, 0, nullptr, nullptr, nullptr);
  CHECK(DeviceVector<float>(1).host()[0] == 77);
}

}  // namespace lipgrad
