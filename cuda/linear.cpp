// The linear layer: bias and activation behind the product where cuBLASLt has them.

#include <lipgrad/ops/kernels/linear.h>

#include <limits>

#include <lipgrad/core/cuda_status.h>
#include <lipgrad/ops/kernels/matmul.h>

#include "libraries.h"

namespace lipgrad::cuda {
namespace {

constexpr std::size_t most_algorithms = 1024;  // kept; sampled graphs have ever new row counts

template <class H, cublasStatus_t (*destroy)(H)>
struct Descriptor {
  H handle = nullptr;
  Descriptor() = default;
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (handle) destroy(handle);
  }
};
using Operation = Descriptor<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Preference = Descriptor<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;
struct Layout : Descriptor<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy> {
  // Of a row-major (rows, cols) matrix, for cuBLASLt a column-major (cols, rows) one.
  Layout(std::int64_t rows, std::int64_t cols) {
    check(cublasLtMatrixLayoutCreate(&handle, CUDA_R_32F, static_cast<std::uint64_t>(cols),
                                     static_cast<std::uint64_t>(rows), cols),
          "cublasLtMatrixLayoutCreate");
  }
};

template <class V>
void set(const Operation& operation, cublasLtMatmulDescAttributes_t attribute, const V& value) {
  check(cublasLtMatmulDescSetAttribute(operation.handle, attribute, &value, sizeof value),
        "cublasLtMatmulDescSetAttribute");
}
template <class V>
void set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute,
         const V& value) {
  check(cublasLtMatmulPreferenceSetAttribute(preference.handle, attribute, &value, sizeof value),
        "cublasLtMatmulPreferenceSetAttribute");
}

// The largest power of two up to 256 that divides the address.
std::uint32_t alignment_of(const void* p) {
  const auto address = reinterpret_cast<std::uintptr_t>(p) | 256;
  return static_cast<std::uint32_t>(address & (~address + 1));
}

// y(rows, out) = epilogue(x(rows, in) weight(out, in)^T + bias(out)); aux gets what the activation
// is applied to, where the epilogue writes it. False, and nothing done, where cuBLASLt cannot.
bool fused(cublasLtEpilogue_t epilogue, std::int64_t rows, std::int64_t in, std::int64_t out,
           const float* x, const float* weight, const float* bias, float* aux, float* y) {
  constexpr std::int64_t most = std::numeric_limits<int>::max();
  if (rows > most || in > most || out > most) return false;
  Context& device = context();
  const std::lock_guard lock(device.mutex);
  Libraries& library = libraries(device);
  const bool tf32 = matmul_precision() == MatmulPrecision::tf32;

  Operation operation;
  check(
      cublasLtMatmulDescCreate(
          &operation.handle, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F),
      "cublasLtMatmulDescCreate");
  set(operation, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
  set(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  if (aux) {
    set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux);
    set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, out);
  }
  const Layout a(out, in), b(rows, in), d(rows, out);

  LinearProduct product{rows, in, out, static_cast<int>(epilogue), tf32, 0};
  for (const void* p :
       {static_cast<const void*>(x), static_cast<const void*>(weight),
        static_cast<const void*>(bias), static_cast<const void*>(aux), static_cast<const void*>(y)})
    product.alignment = product.alignment * 512 + alignment_of(p);
  auto known = library.linear_algorithms.find(product);
  if (known == library.linear_algorithms.end()) {
    Preference preference;
    check(cublasLtMatmulPreferenceCreate(&preference.handle), "cublasLtMatmulPreferenceCreate");
    set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, Libraries::workspace_bytes);
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(weight));
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(x));
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(y));
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(y));
    cublasLtMatmulHeuristicResult_t result{};
    int found = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(library.blas_lt, operation.handle, a.handle, b.handle,
                                       d.handle, d.handle, preference.handle, 1, &result, &found);
    std::optional<cublasLtMatmulAlgo_t> algorithm;
    if (status == CUBLAS_STATUS_SUCCESS && found > 0 && result.state == CUBLAS_STATUS_SUCCESS)
      algorithm = result.algo;
    if (library.linear_algorithms.size() >= most_algorithms) library.linear_algorithms.clear();
    known = library.linear_algorithms.emplace(product, algorithm).first;
  }
  if (!known->second) return false;
  const float one = 1, zero = 0;
  const cublasStatus_t status = cublasLtMatmul(
      library.blas_lt, operation.handle, &one, weight, a.handle, x, b.handle, &zero, y, d.handle, y,
      d.handle, &*known->second, library.workspace, Libraries::workspace_bytes, device.stream);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) {
    known->second.reset();
    return false;
  }
  check(status, "cublasLtMatmul");
  return true;
}
// cuBLASLt has no bias for f64.
bool fused(cublasLtEpilogue_t, std::int64_t, std::int64_t, std::int64_t, const double*,
           const double*, const double*, double*, double*) {
  return false;
}

}  // namespace

// cuBLASLt's relu need not pass NaN on, and its gelu may round tanh to as few bits as TF32 has: in
// exact arithmetic only the bias is left to it. Where an activation follows in place, a kernel of
// our own adds the bias in the same pass.
template <class T>
void linear(Activation f, double a, std::int64_t rows, std::int64_t in, std::int64_t out,
            const T* x, const T* weight, const T* bias, T* pre, T* y) {
  if (rows == 0 || out == 0) return;
  if (bias && in > 0) {
    if (f == Activation::gelu_tanh && matmul_precision() == MatmulPrecision::tf32 &&
        (!pre || (out % 8 == 0 && alignment_of(pre) >= 16)) &&
        fused(pre ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_BIAS, rows, in, out, x,
              weight, bias, pre, y))
      return;
    if ((pre || f == Activation::identity) &&
        fused(CUBLASLT_EPILOGUE_BIAS, rows, in, out, x, weight, bias, static_cast<T*>(nullptr),
              pre ? pre : y)) {
      if (pre) activation(f, a, rows * out, pre, y);
      return;
    }
  }
  T* const z = pre ? pre : y;
  matmul(1, false, true, rows, out, in, x, 0, weight, 0, z);
  if (pre && bias) bias_activation(Activation::identity, a, rows, out, z, bias, z);
  if (pre) return activation(f, a, rows * out, pre, y);
  if (bias || f != Activation::identity) bias_activation(f, a, rows, out, z, bias, y);
}

#define INSTANTIATE(T)                                                                         \
  template void linear(Activation, double, std::int64_t, std::int64_t, std::int64_t, const T*, \
                       const T*, const T*, T*, T*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace lipgrad::cuda
