#include <lipgrad/ops/kernels/linear.h>

#include <doctest/doctest.h>

#include "ops/kernel_test.h"

namespace lipgrad {
namespace {

double value(Activation f, double z) {
  switch (f) {
    case Activation::relu:
      return std::max(z, 0.0);
    case Activation::gelu:
      return z * 0.5 * std::erfc(-z / std::sqrt(2.0));
    case Activation::tanh:
      return std::tanh(z);
    default:
      return z;
  }
}

template <class T>
void check_linear(Activation f, std::int64_t rows, std::int64_t in, std::int64_t out, bool biased,
                  bool keep) {
  CAPTURE(rows);
  CAPTURE(in);
  CAPTURE(out);
  const auto x = random_values<T>(rows * in + 1, 1, -1, 1);
  const auto w = random_values<T>(out * in + 1, 2, -1, 1), b = random_values<T>(out + 1, 3, -1, 1);
  std::vector<T> pre(rows * out);
  const auto run = [&] {
    std::vector<T> y(rows * out);
    cpu::linear<T>(f, 0, rows, in, out, x.data(), w.data(), biased ? b.data() : nullptr,
                   keep ? pre.data() : nullptr, y.data());
    return y;
  };
  CHECK(same_on_any_threads(run));
  const auto y = run();
  double worst = 0, worst_pre = 0;
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < out; ++j) {
      double z = biased ? b[j] : 0;
      for (std::int64_t l = 0; l < in; ++l) z += double(x[i * in + l]) * w[j * in + l];
      worst = std::max(worst, std::abs(y[i * out + j] - value(f, z)));
      if (keep) worst_pre = std::max(worst_pre, std::abs(pre[i * out + j] - z));
    }
  const double limit = 4 * double(std::numeric_limits<T>::epsilon()) * double(in + 4);
  CHECK(worst < limit);
  CHECK(worst_pre < limit);
}

}  // namespace

TEST_CASE("linear kernel: bias and activation in the product's blocks") {
  for (Activation f : {Activation::identity, Activation::relu, Activation::gelu, Activation::tanh})
    for (bool biased : {false, true})
      for (bool keep : {false, true}) {
        check_linear<float>(f, 33, 20, 17, biased, keep);
        check_linear<double>(f, 1, 3, 1, biased, keep);
        check_linear<float>(f, 0, 3, 2, biased, keep);
        check_linear<float>(f, 3, 0, 2, biased, keep);
        check_linear<float>(f, 700, 90, 410, biased, keep);
      }
  check_linear<float>(Activation::relu, 20, 5000, 9, true, true);  // k cut into pieces
}

TEST_CASE("linear_backward_bias: the activation's gradient and its column sums") {
  struct Size {
    std::int64_t rows, cols;
  };
  for (const Size& s : {Size{0, 4}, Size{3, 0}, Size{1, 1}, Size{7, 65}, Size{3000, 7},
                        Size{300, 371}, Size{9, 20000}}) {
    CAPTURE(s.rows);
    CAPTURE(s.cols);
    const auto y = random_values<float>(s.rows * s.cols, 1),
               gy = random_values<float>(s.rows * s.cols, 2);
    for (Activation f : {Activation::identity, Activation::relu}) {
      const auto run = [&] {
        std::vector<float> gz(s.rows * s.cols), gb(s.cols);
        cpu::linear_backward_bias<float>(f, 0, s.rows, s.cols, y.data(), gy.data(), gz.data(),
                                         gb.data());
        gb.insert(gb.end(), gz.begin(), gz.end());
        return gb;
      };
      CHECK(same_on_any_threads(run));
      const auto got = run();
      double worst = 0;
      bool right = true;
      for (std::int64_t j = 0; j < s.cols; ++j) {
        double sum = 0;
        for (std::int64_t i = 0; i < s.rows; ++i) {
          const std::int64_t at = i * s.cols + j;
          const float g = f == Activation::identity || y[at] > 0 ? gy[at] : 0;
          if (f == Activation::relu) right &= got[s.cols + at] == g;
          sum += g;
        }
        worst = std::max(worst, std::abs(got[j] - sum));
      }
      CHECK(right);
      CHECK(worst < 1e-6 * double(s.rows + 1));
    }
  }
}

TEST_CASE("transpose kernel") {
  for (std::int64_t rows : {0, 1, 5, 64, 333})
    for (std::int64_t cols : {0, 1, 31, 33, 200}) {
      const auto x = random_values<double>(rows * cols, 4);
      std::vector<double> y(rows * cols);
      cpu::transpose<double>(rows, cols, x.data(), y.data());
      bool right = true;
      for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < cols; ++j) right &= y[j * rows + i] == x[i * cols + j];
      CHECK(right);
    }
}

}  // namespace lipgrad
