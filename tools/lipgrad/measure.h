#pragma once

#include <cstdint>

// What doctor measures.
namespace lipgrad::cli {

// Rate of C = A B for square matrices on lipgrad's threads as they are set, in GFLOP/s: the median,
// and the best, of as many products as fit into `seconds` (3 at least).
struct Rate {
  double median = 0, best = 0;
};
template <class T>
Rate gemm_rate(std::int64_t size, double seconds);

// Memory bandwidth in GB/s (10^9 bytes) of a = b + s c over three arrays of `count` doubles on
// lipgrad's threads; 24 bytes an element count, as in McCalpin's STREAM.
Rate triad_rate(std::int64_t count, double seconds);

// The largest error of products of a few shapes, f32 and f64, against plain loops, relative to the
// sum of the absolute terms; infinite where a NaN comes out.
double gemm_error();

}  // namespace lipgrad::cli
