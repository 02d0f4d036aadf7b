#pragma once

#include <lipgrad/core/tensor.h>

namespace lipgrad {

// Rows (slices of the first dimension) picked and added by index. Indices are i32 or i64 tensors;
// one outside the range is an error that names its place and value: at once on the CPU; a CUDA
// device leaves it out (a zero row, nothing added), and the next synchronisation tells its place.

// y[i...] = x[index[i...]]: x is (R, ...) of any dtype, the result has the shape of index followed
// by that of a row. The gradient adds up rows picked more than once, in the order of i.
Tensor gather(const Tensor& x, const Tensor& index);

// y(rows, ...) with y[r] = the sum of x[i] over the i with index[i] = r, in the order of i; 0 where
// there is none. index has the shape of the leading dimensions of x.
Tensor scatter_add(const Tensor& x, const Tensor& index, std::int64_t rows);

// The rows of a table (V, C) that the index names: gather() under the name under which models know
// it.
Tensor embedding(const Tensor& table, const Tensor& index);

}  // namespace lipgrad
