#include <lipgrad/graph/kernels/graph_layer_norm.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <lipgrad/graph/kernels/graph_layer_norm_cpu.cpp>
#include <hwy/foreach_target.h>

#include <lipgrad/graph/kernels/graph_layer_norm_rows.h>
#include <lipgrad/ops/kernels/column_blocks.h>

#include <lipgrad/ops/kernels/column_sums-inl.h>

HWY_BEFORE_NAMESPACE();
namespace lipgrad::cpu::HWY_NAMESPACE {
namespace {

// The sum of value(i, count) over [0, n): four chains over stretches of 1024 elements, whose sums
// are added in double.
template <class T, class F>
HWY_INLINE double sum_of(std::int64_t n, F value) {
  using V = Simd<T>;
  const std::int64_t lanes = V::lanes();
  double sum = 0;
  for (std::int64_t start = 0; start < n; start += 1024) {
    const std::int64_t end = std::min(n, start + 1024);
    std::int64_t i = start;
    V a(0.0), b(0.0), c(0.0), d(0.0);
    for (; i + 4 * lanes <= end; i += 4 * lanes) {
      a = a + value(i, lanes);
      b = b + value(i + lanes, lanes);
      c = c + value(i + 2 * lanes, lanes);
      d = d + value(i + 3 * lanes, lanes);
    }
    for (; i < end; i += lanes) a = a + value(i, std::min(lanes, end - i));
    sum += double(sum_of_lanes((a + b) + (c + d)));
  }
  return sum;
}

template <class T>
double sum(std::int64_t n, const T* x) {
  return sum_of<T>(n,
                   [=](std::int64_t i, std::int64_t count) HWY_ATTR { return get(x + i, count); });
}

template <class T>
double squares(std::int64_t n, const T* x, T mean) {
  return sum_of<T>(n, [=](std::int64_t i, std::int64_t count) HWY_ATTR {
    const Simd<T> centre(mean), d = get(x + i, count, centre) - centre;
    return d * d;
  });
}

template <class T>
void forward(std::int64_t rows, std::int64_t cols, T mean, T rstd, const T* x, const T* weight,
             const T* bias, T* y) {
  using V = Simd<T>;
  const std::int64_t lanes = V::lanes();
  const V centre(mean), scale(rstd);
  for (std::int64_t r = 0; r < rows; ++r, x += cols, y += cols) {
    for (std::int64_t i = 0; i < cols; i += lanes) {
      const std::int64_t count = std::min(lanes, cols - i);
      V v = (get(x + i, count) - centre) * scale;
      if (weight) v = v * get(weight + i, count);
      if (bias) v = v + get(bias + i, count);
      put(v, y + i, count);
    }
  }
}

template <class T>
void add(std::int64_t rows, std::int64_t cols, T mean, T rstd, const T* x, const T* gy,
         T* with_xhat, T* plain) {
  const Simd<T> centre(mean), scale(rstd);
  for_heights(rows, [=](std::int64_t first, std::int64_t height) HWY_ATTR {
    const T *from = x + first * cols, *g = gy + first * cols;
    add_sums(height, cols, with_xhat,
             [=](std::int64_t r, std::int64_t c, std::int64_t count) HWY_ATTR {
               const Simd<T> xhat = (get(from + r * cols + c, count) - centre) * scale;
               return get(g + r * cols + c, count) * xhat;
             });
    add_columns(height, cols, g, plain);
  });
}

template <class T>
void backward(std::int64_t rows, std::int64_t cols, T mean, T rstd, T shift, T along, const T* x,
              const T* weight, const T* gy, T* gx) {
  using V = Simd<T>;
  const std::int64_t lanes = V::lanes();
  const V centre(mean), scale(rstd), down(shift), dot(along);
  for (std::int64_t r = 0; r < rows; ++r, x += cols, gy += cols, gx += cols) {
    for (std::int64_t i = 0; i < cols; i += lanes) {
      const std::int64_t count = std::min(lanes, cols - i);
      V h = get(gy + i, count);
      if (weight) h = h * get(weight + i, count);
      const V xhat = (get(x + i, count) - centre) * scale;
      put(scale * (h - down - xhat * dot), gx + i, count);
    }
  }
}

template <class T>
GraphLayerNormRows<T> table() {
  return {sum<T>, squares<T>, forward<T>, add<T>, backward<T>};
}

}  // namespace

GraphLayerNormRows<float> graph_layer_norm_rows_f32() { return table<float>(); }
GraphLayerNormRows<double> graph_layer_norm_rows_f64() { return table<double>(); }

}  // namespace lipgrad::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lipgrad::cpu {

HWY_EXPORT(graph_layer_norm_rows_f32);
HWY_EXPORT(graph_layer_norm_rows_f64);

namespace {

GraphLayerNormRows<float> rows_of(float) {
  return HWY_DYNAMIC_DISPATCH(graph_layer_norm_rows_f32)();
}
GraphLayerNormRows<double> rows_of(double) {
  return HWY_DYNAMIC_DISPATCH(graph_layer_norm_rows_f64)();
}

}  // namespace

template <class T>
void graph_layer_norm(std::int64_t rows, std::int64_t cols, double eps, const T* x, const T* weight,
                      const T* bias, T* y, T* stats) {
  const GraphLayerNormRows<T> f = rows_of(T());
  const ColumnBlocks cut(rows, cols);
  // Each block, while it is in the cache, gives its own mean m and the squares about it; about the
  // mean of everything they are larger by n (m - mean)^2: one pass over memory, nothing cancels.
  struct Block {
    double mean, squares;
  };
  std::vector<Block> blocks(cut.blocks());
  cut.run([&](std::int64_t block, std::int64_t first, std::int64_t count) {
    const std::int64_t n = count * cols;
    const T mean = static_cast<T>(f.sum(n, x + first * cols) / double(n));
    blocks[block] = {double(mean), f.squares(n, x + first * cols, mean)};
  });
  const double total = double(rows * cols);
  double mean = 0, squares = 0;
  for (std::int64_t b = 0; b < cut.blocks(); ++b)
    mean += double(cut.rows_of(b) * cols) * blocks[b].mean / total;
  for (std::int64_t b = 0; b < cut.blocks(); ++b) {
    const double d = blocks[b].mean - mean;
    squares += blocks[b].squares + double(cut.rows_of(b) * cols) * d * d;
  }
  stats[0] = static_cast<T>(mean);
  stats[1] = static_cast<T>(1 / std::sqrt(squares / total + eps));
  cut.run([&](std::int64_t, std::int64_t first, std::int64_t count) {
    f.forward(count, cols, stats[0], stats[1], x + first * cols, weight, bias, y + first * cols);
  });
}

template <class T>
void graph_layer_norm_backward(std::int64_t rows, std::int64_t cols, const T* x, const T* weight,
                               const T* stats, const T* gy, T* gx, T* gweight, T* gbias) {
  const GraphLayerNormRows<T> f = rows_of(T());
  const ColumnBlocks cut(rows, cols);
  std::vector<T> with_xhat = cut.partial_sums<T>(), plain = cut.partial_sums<T>();
  cut.run([&](std::int64_t block, std::int64_t first, std::int64_t count) {
    const std::int64_t at = first * cols;
    f.add(count, cols, stats[0], stats[1], x + at, gy + at, with_xhat.data() + block * cols,
          plain.data() + block * cols);
  });
  const std::vector<double> of_weight = cut.total(with_xhat), of_bias = cut.total(plain);
  double shift = 0, along = 0;  // of h = gy weight, and h xhat
  for (std::int64_t c = 0; c < cols; ++c) {
    const double w = weight ? double(weight[c]) : 1.0;
    shift += w * of_bias[c];
    along += w * of_weight[c];
    if (gweight) gweight[c] = static_cast<T>(of_weight[c]);
    if (gbias) gbias[c] = static_cast<T>(of_bias[c]);
  }
  if (!gx) return;
  const double total = double(rows * cols);
  cut.run([&](std::int64_t, std::int64_t first, std::int64_t count) {
    const std::int64_t at = first * cols;
    f.backward(count, cols, stats[0], stats[1], static_cast<T>(shift / total),
               static_cast<T>(along / total), x + at, weight, gy + at, gx + at);
  });
}

#define INSTANTIATE(T)                                                                             \
  template void graph_layer_norm(std::int64_t, std::int64_t, double, const T*, const T*, const T*, \
                                 T*, T*);                                                          \
  template void graph_layer_norm_backward(std::int64_t, std::int64_t, const T*, const T*,          \
                                          const T*, const T*, T*, T*, T*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace lipgrad::cpu
#endif
