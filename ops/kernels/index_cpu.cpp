#include <lipgrad/ops/kernels/index.h>

#include <algorithm>
#include <vector>

#include <lipgrad/ops/kernels/rows_cpu.h>

namespace lipgrad::cpu {

template <class T, class Index>
void gather_rows(std::int64_t, std::int64_t count, std::int64_t cols, const T* x,
                 const Index* index, T* y) {
  parallel_for(count, rows_per_block(cheap_grain, cols), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      std::copy_n(x + static_cast<std::int64_t>(index[i]) * cols, cols, y + i * cols);
  });
}

template <class T, class Index>
void scatter_add_rows(std::int64_t rows, std::int64_t count, std::int64_t cols, const T* x,
                      const Index* index, T* y) {
  // A counting sort of the indices: then every row of y has one owner, and its terms are in order.
  std::vector<std::int64_t> first(rows + 1), order(count);
  for (std::int64_t i = 0; i < count; ++i) ++first[static_cast<std::int64_t>(index[i]) + 1];
  for (std::int64_t r = 0; r < rows; ++r) first[r + 1] += first[r];
  for (std::int64_t i = 0; i < count; ++i)
    order[first[index[i]]++] = i;  // first[r] becomes the end of r
  const std::int64_t terms = rows > 0 ? count / rows + 1 : 1;
  parallel_for(rows, rows_per_block(cheap_grain, cols * terms),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t r = begin; r < end; ++r) {
                   T* to = y + r * cols;
                   const std::int64_t start = r > 0 ? first[r - 1] : 0;
                   if (start == first[r]) {
                     std::fill_n(to, cols, T(0));
                     continue;
                   }
                   std::copy_n(x + order[start] * cols, cols, to);
                   for (std::int64_t k = start + 1; k < first[r]; ++k) {
                     const T* from = x + order[k] * cols;
                     for (std::int64_t c = 0; c < cols; ++c) to[c] += from[c];
                   }
                 }
               });
}

template <class Index>
std::int64_t find_out_of_range(std::int64_t count, std::int64_t rows, const Index* index) {
  for (std::int64_t i = 0; i < count; ++i)
    if (index[i] < 0 || static_cast<std::int64_t>(index[i]) >= rows) return i;
  return -1;
}

#define INSTANTIATE_GATHER(T, Index) \
  template void gather_rows(std::int64_t, std::int64_t, std::int64_t, const T*, const Index*, T*);
#define INSTANTIATE(T, Index)                                                                      \
  INSTANTIATE_GATHER(T, Index)                                                                     \
  template void scatter_add_rows(std::int64_t, std::int64_t, std::int64_t, const T*, const Index*, \
                                 T*);
#define INSTANTIATE_ALL(Index)            \
  INSTANTIATE(float, Index)               \
  INSTANTIATE(double, Index)              \
  INSTANTIATE_GATHER(std::int32_t, Index) \
  INSTANTIATE_GATHER(std::int64_t, Index) \
  INSTANTIATE_GATHER(std::uint8_t, Index) \
  template std::int64_t find_out_of_range(std::int64_t, std::int64_t, const Index*);
INSTANTIATE_ALL(std::int32_t)
INSTANTIATE_ALL(std::int64_t)
#undef INSTANTIATE_ALL
#undef INSTANTIATE
#undef INSTANTIATE_GATHER

}  // namespace lipgrad::cpu
