#pragma once

// Products of dense row-major matrices, and the largest singular value: the one place that calls
// OpenBLAS and the LAPACK within it.
//
// OpenBLAS always runs with one thread; the products are cut here into blocks that depend on the
// sizes alone and spread over the threads of parallel_for. So results are bitwise equal for every
// number of threads and whichever OpenBLAS flavour (pthread, OpenMP, serial) is installed, and
// nothing has to be set in the environment. A program that calls OpenBLAS itself shares its thread
// setting, which lipgrad puts to one. T is float or double throughout.

#include <cstdint>
#include <type_traits>

namespace lipgrad {

// What is still to be done to a block of C once its values are final, by the thread that computed
// it, while it is in the cache: f(row_begin, row_end, column_begin, column_end). Refers to f, which
// must outlive the call.
class GemmEpilogue {
 public:
  GemmEpilogue() = default;
  template <class F, std::enable_if_t<!std::is_same_v<std::remove_cv_t<F>, GemmEpilogue>, int> = 0>
  GemmEpilogue(F& f)  // NOLINT: implicit, so that a lambda can be passed
      : context_(const_cast<std::remove_cv_t<F>*>(&f)),
        call_([](void* p, std::int64_t i0, std::int64_t i1, std::int64_t j0, std::int64_t j1) {
          (*static_cast<F*>(p))(i0, i1, j0, j1);
        }) {}

  explicit operator bool() const { return call_ != nullptr; }
  void operator()(std::int64_t i0, std::int64_t i1, std::int64_t j0, std::int64_t j1) const {
    call_(context_, i0, i1, j0, j1);
  }

 private:
  void* context_ = nullptr;
  void (*call_)(void*, std::int64_t, std::int64_t, std::int64_t, std::int64_t) = nullptr;
};

// C = alpha op(A) op(B) + beta C, where op(A) is (m, k), op(B) is (k, n), C is (m, n). trans_a says
// that A is stored as (k, m), trans_b that B is stored as (n, k). lda, ldb, ldc are the distances
// between the starts of stored rows, at least the stored row length. With beta = 0 C is not read
// (and may hold anything); with k = 0 the product is zero. C must not overlap A or B.
// Error when a size is negative, a leading dimension is too small or exceeds 2^31 - 1.
template <class T>
void gemm(bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k, T alpha,
          const T* a, std::int64_t lda, const T* b, std::int64_t ldb, T beta, T* c,
          std::int64_t ldc, GemmEpilogue epilogue = {});

// The same for `batch` products whose operands start stride_a, stride_b, stride_c elements after
// one another; a stride of 0 for A or B shares that operand. The results C must not overlap. Many
// small products run one a thread, few large ones are cut as gemm() does.
template <class T>
void gemm_batched(std::int64_t batch, bool trans_a, bool trans_b, std::int64_t m, std::int64_t n,
                  std::int64_t k, T alpha, const T* a, std::int64_t lda, std::int64_t stride_a,
                  const T* b, std::int64_t ldb, std::int64_t stride_b, T beta, T* c,
                  std::int64_t ldc, std::int64_t stride_c);

// The largest singular value of A(rows, cols), the rows one after another; 0 when A is empty. It is
// the root of the largest eigenvalue of the smaller Gram matrix (A A^T or A^T A, all eigenvalues by
// LAPACK's dsyev), which squares the condition of the small singular values but not of this one:
// within some 1e-15 of that of a singular value decomposition, relative, at an eighth of the time.
// Neither overflows nor underflows. Error when an element is not finite.
double largest_singular_value(std::int64_t rows, std::int64_t cols, const double* a);
// The same with its vectors: left (rows) and right (cols) of length 1 with A right = value left, of
// either sign, and any of those in question where the value repeats; zeros when the value is 0.
double largest_singular_value(std::int64_t rows, std::int64_t cols, const double* a, double* left,
                              double* right);

// The installed OpenBLAS in words, for logs: version, kernels, flavour.
const char* blas_description();
// The processor family whose kernels OpenBLAS uses here, in its own words: "Haswell", "SkylakeX",
// "Zen". The environment variable OPENBLAS_CORETYPE overrides its choice.
const char* blas_core();

}  // namespace lipgrad
