#include "lipgrad/measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <vector>

#include <lipgrad/core/blas.h>
#include <lipgrad/core/threads.h>

#include "lipgrad/results.h"

namespace lipgrad::cli {
namespace {

// Calls f, which does `work` units of work, again and again; rates in units a second / 1e9.
Rate repeated(double work, double seconds, auto&& f) {
  using Clock = std::chrono::steady_clock;
  f();  // brings in memory, kernels and threads
  std::vector<double> rates;
  const auto began = Clock::now();
  for (auto now = began;
       rates.size() < 3 || now < began + std::chrono::duration<double>(seconds);) {
    const auto before = now;
    f();
    now = Clock::now();
    rates.push_back(work / std::chrono::duration<double>(now - before).count() / 1e9);
  }
  return {median(rates), *std::max_element(rates.begin(), rates.end())};
}

template <class T>
std::vector<T> random_values(std::int64_t count, std::uint64_t seed) {
  std::vector<T> values(static_cast<std::size_t>(count));
  // Any numbers will do; a linear congruence is quick.
  for (T& value : values) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    value = static_cast<T>(static_cast<double>(seed >> 40) / (1 << 24) - 0.5);
  }
  return values;
}

template <class T>
double error(std::int64_t m, std::int64_t n, std::int64_t k) {
  const auto a = random_values<T>(m * k, 1), b = random_values<T>(k * n, 2);
  std::vector<T> c(static_cast<std::size_t>(m * n));
  gemm<T>(false, false, m, n, k, 1, a.data(), k, b.data(), n, 0, c.data(), n);
  double worst = 0;
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0, scale = 0;
      for (std::int64_t l = 0; l < k; ++l) {
        const double term = static_cast<double>(a[i * k + l]) * static_cast<double>(b[l * n + j]);
        sum += term;
        scale += std::fabs(term);
      }
      const double off = std::fabs(static_cast<double>(c[i * n + j]) - sum) / scale;
      if (std::isnan(off)) return INFINITY;
      worst = std::max(worst, off);
    }
  return worst;
}

}  // namespace

template <class T>
Rate gemm_rate(std::int64_t size, double seconds) {
  const auto a = random_values<T>(size * size, 1), b = random_values<T>(size * size, 2);
  std::vector<T> c(static_cast<std::size_t>(size * size));
  const auto n = static_cast<double>(size);
  return repeated(2 * n * n * n, seconds, [&] {
    gemm<T>(false, false, size, size, size, 1, a.data(), size, b.data(), size, 0, c.data(), size);
  });
}

Rate triad_rate(std::int64_t count, double seconds) {
  const auto size = static_cast<std::size_t>(count);
  const auto a = std::make_unique<double[]>(size), b = std::make_unique<double[]>(size),
             c = std::make_unique<double[]>(size);
  return repeated(24 * static_cast<double>(count), seconds, [&] {
    parallel_for(count, 1 << 16, [&](std::int64_t begin, std::int64_t end) {
      double* to = a.get();
      const double *x = b.get(), *y = c.get();
      for (std::int64_t i = begin; i < end; ++i) to[i] = x[i] + 3.0 * y[i];
    });
  });
}

double gemm_error() {
  return std::max({error<float>(67, 129, 300), error<float>(200, 7, 90),
                   error<double>(67, 129, 300), error<double>(40, 50, 20)});
}

template Rate gemm_rate<float>(std::int64_t, double);
template Rate gemm_rate<double>(std::int64_t, double);

}  // namespace lipgrad::cli
