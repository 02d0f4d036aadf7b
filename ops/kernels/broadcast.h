#pragma once

// C++17, for host and device compilers alike. How up to three row-major operands are read as one
// shape.

#include <cstdint>

namespace lipgrad {

// The index space of a broadcast op with its dimensions of size 1 dropped and neighbours merged
// where every operand allows it. Element (i_0, ..., i_r-1) of operand k is at offset sum_d i_d
// stride[k][d]; the result is contiguous. The innermost stride of an operand is 0 or 1. rank 0 is a
// single element.
struct Broadcast {
  static constexpr int max_rank = 8;
  static constexpr int max_operands = 3;

  // Not cleared first, for the sake of tensors of one element: constructors set what rank makes
  // part of the value.
  int rank;
  std::int64_t numel;
  std::int64_t size[max_rank];
  std::int64_t stride[max_operands][max_rank];

  // `size` has `rank` dimensions. Operands are added one by one, aligned at the last dimension:
  // each of their sizes must be that of the result or 1.
  Broadcast(int result_rank, const std::int64_t* result_size) : rank(result_rank), numel(1) {
    for (int d = 0; d < rank; ++d) {
      size[d] = result_size[d];
      numel *= size[d];
    }
  }

  // All operands have the shape of the result.
  explicit Broadcast(std::int64_t n) : rank(1), numel(n) {
    size[0] = n;
    for (int k = 0; k < max_operands; ++k) stride[k][0] = 1;
  }

  void set_operand(int k, int operand_rank, const std::int64_t* operand_size) {
    std::int64_t step = 1;
    for (int d = rank - 1, o = operand_rank - 1; d >= 0; --d, --o) {
      const std::int64_t extent = o >= 0 ? operand_size[o] : 1;
      stride[k][d] = extent == 1 ? 0 : step;
      step *= extent;
    }
  }

  // Merges dimensions; to be called once all `operands` are set.
  void collapse(int operands) {
    int kept = 0;
    for (int d = 0; d < rank; ++d) {
      if (size[d] == 1) continue;
      bool merge = kept > 0;
      for (int k = 0; merge && k < operands; ++k)
        merge = stride[k][kept - 1] == stride[k][d] * size[d];
      const int to = merge ? kept - 1 : kept++;
      size[to] = merge ? size[to] * size[d] : size[d];
      for (int k = 0; k < operands; ++k) stride[k][to] = stride[k][d];
    }
    rank = kept;
  }
};

}  // namespace lipgrad
