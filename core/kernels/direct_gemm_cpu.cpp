// A product for shapes on which OpenBLAS loses much time copying A: C narrow, or k short. A is read
// in place, one broadcast element for each multiply-add of a vector of C's row; B is copied into
// panels as wide as the tile, in blocks of `block_k` rows, so that tails in n need no masks and a
// transposed B costs nothing more.

#include <lipgrad/core/kernels/direct_gemm.h>

#include <algorithm>
#include <utility>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <lipgrad/core/kernels/direct_gemm_cpu.cpp>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lipgrad::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// 6 x 2 accumulators fill AVX2's registers. Of one vector 8: more rows than the ways of the first
// cache thrash it when the distance of A's rows is a power of two.
constexpr int tile_rows = 6, narrow_tile_rows = 8;
constexpr std::int64_t block_k = 256, block_n = 256;

template <class T>
struct Rows {
  const T* a;
  std::int64_t row, col;
};

// C tile of R rows and V vectors: acc = sum over k of A(i, l) * panel(l, :).
template <int R, int V, class T>
HWY_ATTR void tile(std::int64_t k, T alpha, Rows<T> a, const T* panel, T beta, T* c,
                   std::int64_t ldc, std::int64_t columns) {
  const hn::ScalableTag<T> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  using Vec = hn::Vec<decltype(d)>;
  Vec acc[R][V];
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v) acc[r][v] = hn::Zero(d);
  const T* pa = a.a;
  for (std::int64_t l = 0; l < k; ++l, pa += a.col, panel += V * lanes) {
    Vec vb[V];
    for (int v = 0; v < V; ++v) vb[v] = hn::Load(d, panel + v * lanes);
    for (int r = 0; r < R; ++r) {
      const Vec va = hn::Set(d, pa[r * a.row]);
      for (int v = 0; v < V; ++v) acc[r][v] = hn::MulAdd(va, vb[v], acc[r][v]);
    }
  }
  const Vec valpha = hn::Set(d, alpha);
  if (columns == V * lanes) {
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < V; ++v) {
        T* to = c + r * ldc + v * lanes;
        Vec value = hn::Mul(valpha, acc[r][v]);
        if (beta != T(0)) value = hn::MulAdd(hn::Set(d, beta), hn::LoadU(d, to), value);
        hn::StoreU(value, d, to);
      }
    return;
  }
  HWY_ALIGN T row[V * HWY_MAX_BYTES / sizeof(T)] = {};
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) hn::Store(hn::Mul(valpha, acc[r][v]), d, row + v * lanes);
    T* to = c + r * ldc;
    if (beta != T(0)) {
      for (std::int64_t j = 0; j < columns; ++j) to[j] = beta * to[j] + row[j];
    } else {
      for (std::int64_t j = 0; j < columns; ++j) to[j] = row[j];
    }
  }
}

template <int V, class T, std::size_t... R>
HWY_ATTR void tile_of(std::int64_t rows, std::index_sequence<R...>, std::int64_t k, T alpha,
                      Rows<T> a, const T* panel, T beta, T* c, std::int64_t ldc,
                      std::int64_t columns) {
  const bool found =
      ((rows == static_cast<std::int64_t>(R) + 1 &&
        (tile<static_cast<int>(R) + 1, V>(k, alpha, a, panel, beta, c, ldc, columns), true)) ||
       ...);
  static_cast<void>(found);
}

// Rows of V vectors each, the columns beyond `columns` zero.
template <int V, class T>
HWY_ATTR void copy_panel(std::int64_t k, std::int64_t columns, const T* b, std::int64_t row_b,
                         std::int64_t col_b, T* panel) {
  const hn::ScalableTag<T> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d)), width = V * lanes;
  if (col_b == 1 && columns == width) {
    for (std::int64_t l = 0; l < k; ++l, panel += width, b += row_b)
      for (int v = 0; v < V; ++v) hn::Store(hn::LoadU(d, b + v * lanes), d, panel + v * lanes);
    return;
  }
  for (std::int64_t l = 0; l < k; ++l, panel += width, b += row_b) {
    for (std::int64_t i = 0; i < columns; ++i) panel[i] = b[i * col_b];
    for (std::int64_t i = columns; i < width; ++i) panel[i] = T(0);
  }
}

template <class T>
HWY_ATTR void direct(std::int64_t m, std::int64_t n, std::int64_t k, T alpha, const T* a,
                     std::int64_t row_a, std::int64_t col_a, const T* b, std::int64_t row_b,
                     std::int64_t col_b, T beta, T* c, std::int64_t ldc) {
  const hn::ScalableTag<T> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d)), width = 2 * lanes;
  const std::int64_t rows = n <= lanes ? narrow_tile_rows : tile_rows;
  HWY_ALIGN thread_local T packed[block_k * block_n];
  for (std::int64_t j0 = 0; j0 < n; j0 += block_n) {
    const std::int64_t nb = std::min(block_n, n - j0);
    for (std::int64_t l0 = 0; l0 < k; l0 += block_k) {
      const std::int64_t kb = std::min(block_k, k - l0);
      for (std::int64_t j = 0; j < nb; j += width) {
        const T* from = b + l0 * row_b + (j0 + j) * col_b;
        if (nb - j > lanes) {
          copy_panel<2>(kb, std::min(width, nb - j), from, row_b, col_b, packed + j * kb);
        } else {
          copy_panel<1>(kb, nb - j, from, row_b, col_b, packed + j * kb);
        }
      }
      const T factor = l0 == 0 ? beta : T(1);
      for (std::int64_t i = 0; i < m; i += rows) {
        const Rows<T> from{a + i * row_a + l0 * col_a, row_a, col_a};
        const std::int64_t high = std::min(rows, m - i);
        for (std::int64_t j = 0; j < nb; j += width) {
          T* to = c + i * ldc + j0 + j;
          if (nb - j > lanes) {
            tile_of<2>(high, std::make_index_sequence<tile_rows>(), kb, alpha, from,
                       packed + j * kb, factor, to, ldc, std::min(width, nb - j));
          } else {
            tile_of<1>(high, std::make_index_sequence<narrow_tile_rows>(), kb, alpha, from,
                       packed + j * kb, factor, to, ldc, nb - j);
          }
        }
      }
    }
  }
}

void direct_f32(std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const float* a,
                std::int64_t row_a, std::int64_t col_a, const float* b, std::int64_t row_b,
                std::int64_t col_b, float beta, float* c, std::int64_t ldc) {
  direct(m, n, k, alpha, a, row_a, col_a, b, row_b, col_b, beta, c, ldc);
}

void direct_f64(std::int64_t m, std::int64_t n, std::int64_t k, double alpha, const double* a,
                std::int64_t row_a, std::int64_t col_a, const double* b, std::int64_t row_b,
                std::int64_t col_b, double beta, double* c, std::int64_t ldc) {
  direct(m, n, k, alpha, a, row_a, col_a, b, row_b, col_b, beta, c, ldc);
}

}  // namespace lipgrad::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lipgrad::cpu {

HWY_EXPORT(direct_f32);
HWY_EXPORT(direct_f64);

template <>
void direct_gemm(std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const float* a,
                 std::int64_t row_a, std::int64_t col_a, const float* b, std::int64_t row_b,
                 std::int64_t col_b, float beta, float* c, std::int64_t ldc) {
  HWY_DYNAMIC_DISPATCH(direct_f32)(m, n, k, alpha, a, row_a, col_a, b, row_b, col_b, beta, c, ldc);
}

template <>
void direct_gemm(std::int64_t m, std::int64_t n, std::int64_t k, double alpha, const double* a,
                 std::int64_t row_a, std::int64_t col_a, const double* b, std::int64_t row_b,
                 std::int64_t col_b, double beta, double* c, std::int64_t ldc) {
  HWY_DYNAMIC_DISPATCH(direct_f64)(m, n, k, alpha, a, row_a, col_a, b, row_b, col_b, beta, c, ldc);
}

}  // namespace lipgrad::cpu
#endif
