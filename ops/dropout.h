#pragma once

#include <lipgrad/core/csr_matrix.h>
#include <lipgrad/core/random.h>
#include <lipgrad/core/tensor.h>

namespace lipgrad {

// In training, each element is 0 with probability p and divided by 1 - p otherwise (Srivastava et
// al., JMLR 15, 2014); in evaluation, x itself. Takes one draw of the generator unless p is 0. The
// mask is not stored: backward computes it again from the draw. Error unless 0 <= p <= 1.
Tensor dropout(const Tensor& x, double p, Mode mode);
// The same on the stored values of a sparse matrix.
CsrMatrix dropout(const CsrMatrix& x, double p, Mode mode);

// In training, each sample x[b, ...] of x(B, ...) as a whole is 0 with probability p and divided by
// 1 - p otherwise: stochastic depth, for the branch of a residual connection (Huang et al.,
// arXiv:1603.09382; timm's DropPath). In evaluation, x itself. Takes one draw unless p is 0; the
// mask is not stored. Error unless 0 <= p <= 1 and x has a dimension.
Tensor drop_path(const Tensor& x, double p, Mode mode);

}  // namespace lipgrad
