#pragma once

// Private to the CPU kernels: sums over the rows of (rows, cols) arrays. Fixed blocks of rows are
// summed on the threads, and the blocks' sums added in double, in order: the same bits on any
// number of threads.

#include <algorithm>
#include <cstdint>
#include <vector>

#include <lipgrad/ops/kernels/rows_cpu.h>

namespace lipgrad::cpu {

class ColumnBlocks {
 public:
  // At least 64 rows a block, so that the blocks' sums are small beside the array.
  ColumnBlocks(std::int64_t rows, std::int64_t cols)
      : rows_(rows),
        cols_(cols),
        grain_(std::max<std::int64_t>(64, rows_per_block(cheap_grain, cols))) {}

  std::int64_t blocks() const { return (rows_ + grain_ - 1) / grain_; }
  std::int64_t rows_of(std::int64_t block) const {
    return std::min(grain_, rows_ - block * grain_);
  }

  // Calls f(block, first row, number of rows) for every block, on the threads.
  template <class F>
  void run(F&& f) const {
    parallel_for(rows_, grain_, [&](std::int64_t begin, std::int64_t end) {
      f(begin / grain_, begin, end - begin);
    });
  }

  // Zeros for one row of sums a block.
  template <class T>
  std::vector<T> partial_sums() const {
    return std::vector<T>(blocks() * cols_);
  }

  // total(cols): the blocks' sums added.
  template <class T>
  std::vector<double> total(const std::vector<T>& partial) const {
    std::vector<double> sum(cols_);
    for (std::int64_t b = 0; b < blocks(); ++b)
      for (std::int64_t c = 0; c < cols_; ++c) sum[c] += partial[b * cols_ + c];
    return sum;
  }

  // out(cols) = scale * total.
  template <class T>
  void add_up(const std::vector<T>& partial, double scale, T* out) const {
    const std::vector<double> sum = total(partial);
    for (std::int64_t c = 0; c < cols_; ++c) out[c] = static_cast<T>(scale * sum[c]);
  }

 private:
  std::int64_t rows_, cols_, grain_;
};

}  // namespace lipgrad::cpu
