#include <lipgrad/core/blas.h>

#include <cblas.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <memory>
#include <mutex>
#include <vector>

#include <lipgrad/core/check.h>
#include <lipgrad/core/kernels/direct_gemm.h>
#include <lipgrad/core/threads.h>

// Of LAPACK, which is part of OpenBLAS; Fortran adds the lengths of the strings.
extern "C" void dsyev_(const char* jobz, const char* uplo, const blasint* n, double* a,
                       const blasint* lda, double* w, double* work, const blasint* lwork,
                       blasint* info, std::size_t, std::size_t);
extern "C" void dsyevr_(const char* jobz, const char* range, const char* uplo, const blasint* n,
                        double* a, const blasint* lda, const double* vl, const double* vu,
                        const blasint* il, const blasint* iu, const double* abstol, blasint* m,
                        double* w, double* z, const blasint* ldz, blasint* isuppz, double* work,
                        const blasint* lwork, blasint* iwork, const blasint* liwork, blasint* info,
                        std::size_t, std::size_t, std::size_t);

namespace lipgrad {
namespace {

// With OpenMP, OpenBLAS keeps its number of threads for each calling thread, otherwise for the
// process. So every thread sets it once, and again should the program have changed it.
void use_one_blas_thread() {
  thread_local bool set = false;
  if (set && openblas_get_num_threads() == 1) [[likely]]
    return;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  openblas_set_num_threads(1);
  set = true;
}

CBLAS_TRANSPOSE cblas(bool trans) { return trans ? CblasTrans : CblasNoTrans; }

void call_gemm(bool ta, bool tb, std::int64_t m, std::int64_t n, std::int64_t k, float alpha,
               const float* a, std::int64_t lda, const float* b, std::int64_t ldb, float beta,
               float* c, std::int64_t ldc) {
  cblas_sgemm(CblasRowMajor, cblas(ta), cblas(tb), m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

void call_gemm(bool ta, bool tb, std::int64_t m, std::int64_t n, std::int64_t k, double alpha,
               const double* a, std::int64_t lda, const double* b, std::int64_t ldb, double beta,
               double* c, std::int64_t ldc) {
  cblas_dgemm(CblasRowMajor, cblas(ta), cblas(tb), m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

// Where direct_gemm beats OpenBLAS, which copies both operands first: C narrow or k short, and
// enough rows to make up for copying B. (Measured with AVX2: 1.1 to 2 times; elsewhere 0.6 to 1.)
bool direct_suits(bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k) {
  if (n <= 16) return m >= (trans_b ? 32 : 4);
  if (k <= 32) return m >= 32;
  if (trans_a) return false;
  return m >= (trans_b ? 128 : 32) && ((n <= 64 && k <= 512) || (n <= 128 && k <= 256));
}

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// How a product is cut: into tiles of (tile_m, tile_n) elements of C and, where that gives too few,
// into pieces of tile_k terms, whose partial sums are added in order.
struct Plan {
  std::int64_t tile_m, tile_n, tile_k;
  std::int64_t tiles_m, tiles_n, pieces_k;
  std::int64_t tiles() const { return tiles_m * tiles_n; }
};

// One piece of work should take some 20 microseconds at least, and a large product be cut into at
// least 16 pieces. Tiles 370 wide cost some 5 % over an uncut product, tiles of 192 x 384 some 6 %,
// 192 x 192 13 % (OpenBLAS packs A and B again for each); where C is narrow, tiles 128 high cost
// nothing, nor does cutting k as long as its pieces stay long.
constexpr double min_flops = 1e6;
constexpr std::int64_t wanted_pieces = 16;
constexpr std::int64_t wide_tile = 384, narrow_tile = 192, skinny_tile = 128, short_k = 512;
constexpr std::int64_t largest_tile = 4096, largest_k = std::int64_t{1} << 30;

Plan make_plan(std::int64_t m, std::int64_t n, std::int64_t k) {
  const double flops =
      2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  const auto wanted = static_cast<std::int64_t>(
      std::clamp(flops / min_flops, 1.0, static_cast<double>(wanted_pieces)));
  Plan plan{};
  plan.tiles_m = ceil_div(m, largest_tile);
  plan.tiles_n = ceil_div(n, largest_tile);
  while (plan.tiles() < wanted) {
    const std::int64_t high = ceil_div(m, plan.tiles_m), wide = ceil_div(n, plan.tiles_n);
    const std::int64_t longer = std::max(high, wide), shorter = std::min(high, wide);
    const std::int64_t least = shorter >= wide_tile || shorter < narrow_tile
                                   ? (shorter < narrow_tile ? skinny_tile : narrow_tile)
                                   : wide_tile;
    if (longer < 2 * least) break;
    // Doubling keeps the pieces even and their number fit for the usual numbers of threads.
    (high >= wide ? plan.tiles_m : plan.tiles_n) *= 2;
  }
  plan.pieces_k = ceil_div(k, largest_k);
  if (plan.tiles() < wanted)
    plan.pieces_k = std::max(plan.pieces_k, std::min(ceil_div(wanted, plan.tiles()), k / short_k));
  plan.pieces_k = std::max<std::int64_t>(plan.pieces_k, 1);
  const auto even = [](std::int64_t size, std::int64_t pieces) {
    const std::int64_t piece = ceil_div(size, pieces);
    return pieces == 1 ? piece : ceil_div(piece, 16) * 16;
  };
  plan.tile_m = even(m, plan.tiles_m);
  plan.tile_n = even(n, plan.tiles_n);
  plan.tile_k = even(k, plan.pieces_k);
  plan.tiles_m = ceil_div(m, plan.tile_m);
  plan.tiles_n = ceil_div(n, plan.tile_n);
  plan.pieces_k = ceil_div(k, plan.tile_k);
  return plan;
}

void check_sizes(const char* op, bool trans_a, bool trans_b, std::int64_t m, std::int64_t n,
                 std::int64_t k, std::int64_t lda, std::int64_t ldb, std::int64_t ldc) {
  LIPGRAD_CHECK(m >= 0 && n >= 0 && k >= 0, "{}: negative size in {} x {} x {}", op, m, n, k);
  LIPGRAD_CHECK(lda >= (trans_a ? m : k) && ldb >= (trans_b ? k : n) && ldc >= n,
                "{}: leading dimensions {}, {}, {} are too small for {} x {} x {}", op, lda, ldb,
                ldc, m, n, k);
  constexpr std::int64_t limit = std::numeric_limits<blasint>::max();
  LIPGRAD_CHECK(std::max({lda, ldb, ldc}) <= limit,
                "{}: leading dimensions {}, {}, {} exceed what BLAS can take ({})", op, lda, ldb,
                ldc, limit);
}

template <class T>
void scale(std::int64_t m, std::int64_t n, T beta, T* c, std::int64_t ldc) {
  for (std::int64_t i = 0; i < m; ++i) {
    T* row = c + i * ldc;
    if (beta == T(0)) {
      std::fill(row, row + n, T(0));
    } else {
      for (std::int64_t j = 0; j < n; ++j) row[j] *= beta;
    }
  }
}

template <class T>
struct Product {
  bool trans_a, trans_b;
  std::int64_t m, n, k;
  T alpha;
  const T* a;
  std::int64_t lda;
  const T* b;
  std::int64_t ldb;
  T beta;
  T* c;
  std::int64_t ldc;

  // The terms from l0 on of the tile at (i0, j0) go to `out`: out = alpha product + factor out.
  void tile(const Plan& plan, std::int64_t i0, std::int64_t j0, std::int64_t l0, T factor, T* out,
            std::int64_t ld_out) const {
    const std::int64_t high = std::min(plan.tile_m, m - i0), wide = std::min(plan.tile_n, n - j0);
    const std::int64_t terms = std::min(plan.tile_k, k - l0);
    const T* from_a = a + (trans_a ? l0 * lda + i0 : i0 * lda + l0);
    const T* from_b = b + (trans_b ? j0 * ldb + l0 : l0 * ldb + j0);
    if (direct_suits(trans_a, trans_b, high, wide, terms)) {
      cpu::direct_gemm(high, wide, terms, alpha, from_a, trans_a ? 1 : lda, trans_a ? lda : 1,
                       from_b, trans_b ? 1 : ldb, trans_b ? ldb : 1, factor, out, ld_out);
    } else {
      use_one_blas_thread();
      call_gemm(trans_a, trans_b, high, wide, terms, alpha, from_a, lda, from_b, ldb, factor, out,
                ld_out);
    }
  }

  void tile_to_c(const Plan& plan, std::int64_t index) const {
    const std::int64_t i0 = index / plan.tiles_n * plan.tile_m;
    const std::int64_t j0 = index % plan.tiles_n * plan.tile_n;
    tile(plan, i0, j0, 0, beta, c + i0 * ldc + j0, ldc);
  }
};

template <class T>
void run_with_pieces(const Product<T>& p, const Plan& plan, const GemmEpilogue& epilogue) {
  // The first piece goes to C, the others to partial matrices of their own.
  const std::int64_t size = p.m * p.n;
  const auto partial = std::make_unique_for_overwrite<T[]>((plan.pieces_k - 1) * size);
  parallel_for(plan.pieces_k * plan.tiles(), 1, [&](std::int64_t index, std::int64_t) {
    const std::int64_t piece = index / plan.tiles(), tile = index % plan.tiles();
    const std::int64_t i0 = tile / plan.tiles_n * plan.tile_m;
    const std::int64_t j0 = tile % plan.tiles_n * plan.tile_n;
    if (piece == 0) {
      p.tile(plan, i0, j0, 0, p.beta, p.c + i0 * p.ldc + j0, p.ldc);
    } else {
      T* out = partial.get() + (piece - 1) * size + i0 * p.n + j0;
      p.tile(plan, i0, j0, piece * plan.tile_k, T(0), out, p.n);
    }
  });
  const std::int64_t rows = std::max<std::int64_t>(1, 16384 / p.n);
  parallel_for(p.m, rows, [&](std::int64_t i0, std::int64_t i1) {
    for (std::int64_t i = i0; i < i1; ++i) {
      T* row = p.c + i * p.ldc;
      for (std::int64_t piece = 1; piece < plan.pieces_k; ++piece) {
        const T* from = partial.get() + (piece - 1) * size + i * p.n;
        for (std::int64_t j = 0; j < p.n; ++j) row[j] += from[j];
      }
    }
    if (epilogue) epilogue(i0, i1, 0, p.n);
  });
}

}  // namespace

template <class T>
void gemm(bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k, T alpha,
          const T* a, std::int64_t lda, const T* b, std::int64_t ldb, T beta, T* c,
          std::int64_t ldc, GemmEpilogue epilogue) {
  check_sizes("gemm", trans_a, trans_b, m, n, k, lda, ldb, ldc);
  if (m == 0 || n == 0) return;
  if (k == 0 || alpha == T(0)) {
    scale(m, n, beta, c, ldc);
    if (epilogue) epilogue(0, m, 0, n);
    return;
  }
  const Product<T> product{trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc};
  const Plan plan = make_plan(m, n, k);
  if (plan.pieces_k > 1) return run_with_pieces(product, plan, epilogue);
  parallel_for(plan.tiles(), 1, [&](std::int64_t tile, std::int64_t) {
    product.tile_to_c(plan, tile);
    if (!epilogue) return;
    const std::int64_t i0 = tile / plan.tiles_n * plan.tile_m;
    const std::int64_t j0 = tile % plan.tiles_n * plan.tile_n;
    epilogue(i0, std::min(m, i0 + plan.tile_m), j0, std::min(n, j0 + plan.tile_n));
  });
}

template <class T>
void gemm_batched(std::int64_t batch, bool trans_a, bool trans_b, std::int64_t m, std::int64_t n,
                  std::int64_t k, T alpha, const T* a, std::int64_t lda, std::int64_t stride_a,
                  const T* b, std::int64_t ldb, std::int64_t stride_b, T beta, T* c,
                  std::int64_t ldc, std::int64_t stride_c) {
  check_sizes("gemm_batched", trans_a, trans_b, m, n, k, lda, ldb, ldc);
  LIPGRAD_CHECK(batch >= 0, "gemm_batched: negative batch {}", batch);
  if (batch == 0 || m == 0 || n == 0) return;
  if (batch == 1) return gemm(trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  if (k == 0 || alpha == T(0)) {
    for (std::int64_t i = 0; i < batch; ++i) scale(m, n, beta, c + i * stride_c, ldc);
    return;
  }
  const double flops =
      2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  if (flops >= wanted_pieces * min_flops || k > largest_k) {
    for (std::int64_t i = 0; i < batch; ++i)
      gemm(trans_a, trans_b, m, n, k, alpha, a + i * stride_a, lda, b + i * stride_b, ldb, beta,
           c + i * stride_c, ldc);
    return;
  }
  const Plan plan{m, n, k, 1, 1, 1};
  const auto grain =
      std::clamp<std::int64_t>(static_cast<std::int64_t>(min_flops / flops), 1, batch);
  parallel_for(batch, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const Product<T> product{
          trans_a, trans_b,          m,  n, k, alpha, a + i * stride_a, lda, b + i * stride_b, ldb,
          beta,    c + i * stride_c, ldc};
      product.tile_to_c(plan, 0);
    }
  });
}

namespace {

// All eigenvalues of a symmetric matrix, ascending; the matrix is overwritten. LAPACK's result.
blasint eigenvalues_of(blasint n, double* matrix, double* values) {
  blasint info = 0, length = -1;
  double wanted = 0;
  dsyev_("N", "L", &n, matrix, &n, values, &wanted, &length, &info, 1, 1);
  length = static_cast<blasint>(wanted);
  std::vector<double> work(length);
  dsyev_("N", "L", &n, matrix, &n, values, work.data(), &length, &info, 1, 1);
  return info;
}

// The largest eigenvalue alone, with its vector.
blasint largest_eigenvector(blasint n, double* matrix, double* values, double* vector) {
  const double unused = 0;
  blasint info = 0, length = -1, integers = -1, found = 0, support[2], wanted_integers = 0;
  double wanted = 0;
  dsyevr_("V", "I", "L", &n, matrix, &n, &unused, &unused, &n, &n, &unused, &found, values, vector,
          &n, support, &wanted, &length, &wanted_integers, &integers, &info, 1, 1, 1);
  length = static_cast<blasint>(wanted);
  integers = wanted_integers;
  std::vector<double> work(length);
  std::vector<blasint> integer_work(integers);
  dsyevr_("V", "I", "L", &n, matrix, &n, &unused, &unused, &n, &n, &unused, &found, values, vector,
          &n, support, work.data(), &length, integer_work.data(), &integers, &info, 1, 1, 1);
  return info;
}

}  // namespace

double largest_singular_value(std::int64_t rows, std::int64_t cols, const double* a) {
  return largest_singular_value(rows, cols, a, nullptr, nullptr);
}

double largest_singular_value(std::int64_t rows, std::int64_t cols, const double* a, double* left,
                              double* right) {
  LIPGRAD_CHECK(rows >= 0 && cols >= 0, "largest_singular_value: negative size in {} x {}", rows,
                cols);
  double largest = 0;
  for (std::int64_t i = 0; i < rows * cols; ++i) {
    LIPGRAD_CHECK(std::isfinite(a[i]),
                  "largest_singular_value: element ({}, {}) of a {} x {} matrix is {}", i / cols,
                  i % cols, rows, cols, a[i]);
    largest = std::max(largest, std::abs(a[i]));
  }
  if (left != nullptr) {
    std::fill(left, left + rows, 0.0);
    std::fill(right, right + cols, 0.0);
  }
  if (largest == 0) return 0;
  const std::int64_t size = std::min(rows, cols);
  LIPGRAD_CHECK(size <= std::numeric_limits<blasint>::max() / 64,
                "largest_singular_value: {} x {} exceeds what LAPACK can take", rows, cols);
  // By a power of two, so that nothing is rounded and squares stay in range.
  int exponent = 0;
  std::frexp(largest, &exponent);
  std::vector<double> scaled(rows * cols), gram(size * size), eigenvalues(size);
  for (std::int64_t i = 0; i < rows * cols; ++i) scaled[i] = std::ldexp(a[i], -exponent);
  const bool wide = cols >= rows;
  gemm(!wide, wide, size, size, std::max(rows, cols), 1.0, scaled.data(), cols, scaled.data(), cols,
       0.0, gram.data(), size);
  use_one_blas_thread();
  const auto n = static_cast<blasint>(size);
  const blasint info =
      left != nullptr ? largest_eigenvector(n, gram.data(), eigenvalues.data(), wide ? left : right)
                      : eigenvalues_of(n, gram.data(), eigenvalues.data());
  LIPGRAD_CHECK(info == 0, "largest_singular_value: LAPACK returned {} for {} x {}", info, rows,
                cols);
  if (left == nullptr) return std::ldexp(std::sqrt(std::max(0.0, eigenvalues.back())), exponent);
  // The other vector, from A right = value left: its length is the value, too.
  const double* known = wide ? left : right;
  double *other = wide ? right : left, squares = 0;
  const std::int64_t count = std::max(rows, cols);
  gemm(wide, false, count, std::int64_t{1}, size, 1.0, scaled.data(), cols, known, std::int64_t{1},
       0.0, other, std::int64_t{1});
  for (std::int64_t i = 0; i < count; ++i) squares += other[i] * other[i];
  const double value = std::sqrt(squares);
  for (std::int64_t i = 0; i < count; ++i) other[i] /= value;
  return std::ldexp(value, exponent);
}

const char* blas_description() { return openblas_get_config(); }
const char* blas_core() { return openblas_get_corename(); }

template void gemm(bool, bool, std::int64_t, std::int64_t, std::int64_t, float, const float*,
                   std::int64_t, const float*, std::int64_t, float, float*, std::int64_t,
                   GemmEpilogue);
template void gemm(bool, bool, std::int64_t, std::int64_t, std::int64_t, double, const double*,
                   std::int64_t, const double*, std::int64_t, double, double*, std::int64_t,
                   GemmEpilogue);
template void gemm_batched(std::int64_t, bool, bool, std::int64_t, std::int64_t, std::int64_t,
                           float, const float*, std::int64_t, std::int64_t, const float*,
                           std::int64_t, std::int64_t, float, float*, std::int64_t, std::int64_t);
template void gemm_batched(std::int64_t, bool, bool, std::int64_t, std::int64_t, std::int64_t,
                           double, const double*, std::int64_t, std::int64_t, const double*,
                           std::int64_t, std::int64_t, double, double*, std::int64_t, std::int64_t);

}  // namespace lipgrad
