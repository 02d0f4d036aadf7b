#pragma once

#include <lipgrad/core/csr_matrix.h>
#include <lipgrad/core/tensor.h>

namespace lipgrad {

// y(rows, features) = a(rows, cols) x(cols, features) for a sparse a. x has a gradient, and so have
// the values of a where they are watched or computed on a tape. A row's terms are added in the
// order of its entries, in backward in that of the reverse pattern: results do not depend on
// threads. Error when x is not of (cols, features) or dtypes or devices differ.
Tensor spmm(const CsrMatrix& a, const Tensor& x);

}  // namespace lipgrad
