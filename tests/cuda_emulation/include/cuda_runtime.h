// cuemu: a host stand-in for <cuda_runtime.h>. It is found first on the include path when the backend is
// built with CUDA=EMULATED, so kernels (.cu) and backend host code compile unchanged with g++/clang++.
// Device memory is a protected host arena, a block's threads are fibers, sanitizers see every access.
#pragma once
#define LIPGRAD_CUDA_EMULATED 1
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

// ------------------------------------------------------------------ qualifiers
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __grid_constant__

// ------------------------------------------------------------------ vector types
struct uint3 { unsigned x, y, z; };
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
};
#define CUEMU_VEC(T, N, A2, A4) \
  struct alignas(A2) N##2 { T x, y; }; struct N##3 { T x, y, z; }; struct alignas(A4) N##4 { T x, y, z, w; }; \
  inline N##2 make_##N##2(T x, T y) { return {x, y}; } inline N##3 make_##N##3(T x, T y, T z) { return {x, y, z}; } \
  inline N##4 make_##N##4(T x, T y, T z, T w) { return {x, y, z, w}; }
CUEMU_VEC(float, float, 8, 16) CUEMU_VEC(int, int, 8, 16) CUEMU_VEC(double, double, 16, 16)
#undef CUEMU_VEC

// ------------------------------------------------------------------ runtime API: types and errors
enum cudaError { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorMemoryAllocation = 2, cudaErrorInvalidConfiguration = 9,
  cudaErrorInvalidMemcpyDirection = 21, cudaErrorInvalidDevice = 101, cudaErrorInvalidResourceHandle = 400, cudaErrorNotReady = 600,
  cudaErrorIllegalAddress = 700, cudaErrorLaunchOutOfResources = 701, cudaErrorLaunchFailure = 719 };
using cudaError_t = cudaError;
const char* cudaGetErrorString(cudaError_t); const char* cudaGetErrorName(cudaError_t);
cudaError_t cudaGetLastError(); cudaError_t cudaPeekAtLastError(); cudaError_t cudaDeviceReset();
enum cudaMemcpyKind { cudaMemcpyHostToHost, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice, cudaMemcpyDefault };
typedef struct CUstream_st* cudaStream_t; typedef struct CUevent_st* cudaEvent_t;
#define cudaStreamLegacy ((cudaStream_t)0x1)
enum { cudaStreamDefault = 0, cudaStreamNonBlocking = 1, cudaEventDefault = 0, cudaEventDisableTiming = 2, cudaHostAllocDefault = 0 };
enum cudaDeviceAttr { cudaDevAttrMaxThreadsPerBlock = 1, cudaDevAttrMultiProcessorCount = 16, cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76, cudaDevAttrMaxSharedMemoryPerBlockOptin = 97 };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8, cudaFuncAttributePreferredSharedMemoryCarveout = 9 };
struct cudaDeviceProp { char name[256]; size_t totalGlobalMem, sharedMemPerBlock, sharedMemPerBlockOptin; int warpSize, maxThreadsPerBlock, major, minor, multiProcessorCount, l2CacheSize; };
struct cudaLaunchAttribute { int id; };
struct cudaLaunchConfig_t { dim3 gridDim, blockDim; size_t dynamicSmemBytes; cudaStream_t stream; cudaLaunchAttribute* attrs; unsigned numAttrs; };
typedef enum cudaDataType_t { CUDA_R_32F = 0, CUDA_R_64F = 1, CUDA_R_16F = 2, CUDA_R_16BF = 14 } cudaDataType;

cudaError_t cudaMalloc(void**, size_t); cudaError_t cudaFree(void*);
cudaError_t cudaMallocAsync(void**, size_t, cudaStream_t); cudaError_t cudaFreeAsync(void*, cudaStream_t);
template <class T> cudaError_t cudaMalloc(T** p, size_t n) { return cudaMalloc((void**)p, n); }
template <class T> cudaError_t cudaMallocAsync(T** p, size_t n, cudaStream_t s) { return cudaMallocAsync((void**)p, n, s); }
cudaError_t cudaMallocHost(void**, size_t); cudaError_t cudaFreeHost(void*);
template <class T> cudaError_t cudaMallocHost(T** p, size_t n) { return cudaMallocHost((void**)p, n); }
cudaError_t cudaMemcpy(void*, const void*, size_t, cudaMemcpyKind);
cudaError_t cudaMemcpyAsync(void*, const void*, size_t, cudaMemcpyKind, cudaStream_t = 0);
cudaError_t cudaMemset(void*, int, size_t); cudaError_t cudaMemsetAsync(void*, int, size_t, cudaStream_t = 0);
cudaError_t cudaMemGetInfo(size_t*, size_t*);
cudaError_t cudaStreamCreate(cudaStream_t*); cudaError_t cudaStreamCreateWithFlags(cudaStream_t*, unsigned);
cudaError_t cudaStreamDestroy(cudaStream_t); cudaError_t cudaStreamSynchronize(cudaStream_t); cudaError_t cudaStreamQuery(cudaStream_t);
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned = 0); cudaError_t cudaDeviceSynchronize();
cudaError_t cudaEventCreate(cudaEvent_t*); cudaError_t cudaEventCreateWithFlags(cudaEvent_t*, unsigned); cudaError_t cudaEventDestroy(cudaEvent_t);
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t = 0); cudaError_t cudaEventSynchronize(cudaEvent_t); cudaError_t cudaEventQuery(cudaEvent_t);
cudaError_t cudaEventElapsedTime(float*, cudaEvent_t, cudaEvent_t);
cudaError_t cudaGetDeviceCount(int*); cudaError_t cudaGetDevice(int*); cudaError_t cudaSetDevice(int);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp*, int); cudaError_t cudaDeviceGetAttribute(int*, cudaDeviceAttr, int);
cudaError_t cudaRuntimeGetVersion(int*); cudaError_t cudaDriverGetVersion(int*);

// ------------------------------------------------------------------ executor hooks
// Plain globals: one kernel runs at a time (a mutex), the scheduler rewrites threadIdx on every fiber switch.
extern uint3 threadIdx, blockIdx; extern dim3 blockDim, gridDim; constexpr int warpSize = 32;

namespace lipgrad_emulation {
enum class Op : uint8_t { none, syncthreads, sync_count, sync_and, sync_or, syncwarp, shfl, shfl_up, shfl_down, shfl_xor, ballot, any, all, match_any, red_add, red_min, red_max };
struct Config {            // environment variables of the same names, upper case, with CUEMU_ in front
  int order = 0;           // 0 forward, 1 reverse, >=2 seeded random order of threads and blocks
  bool lazy = false;       // stream work is queued and only runs when something waits for it
  bool protect = true;     // host code touching device memory faults (mprotect)
  bool strict_exit = true; // a thread that returned while others wait at __syncthreads is an error
  bool poison = true;      // fresh device and shared memory is filled with 0xFF (NaN)
  bool abort_on_error = false;
};
Config& config();
struct Stats { uint64_t launches, blocks, threads, switches, collectives; };
Stats& stats();
const char* last_message();                       // text of the last device-side diagnosis
int block_op(Op, int pred, const char* file, int line);
uint64_t warp_op(Op, unsigned mask, uint64_t val, int param, int width, const char* file, int line);
void* shared_mem(const void* site, size_t bytes, size_t align);
void* dynamic_shared(size_t align);
void fence();
cudaError_t enqueue_launch(const cudaLaunchConfig_t&, const void* kernel, std::function<void()>);
cudaError_t enqueue_host(cudaStream_t, const char* what, std::function<void()>);      // used by the library shims
bool check_range(const void* p, size_t bytes, const char* what);                      // device-accessible?
bool is_device_ptr(const void* p);
cudaError_t set_max_dyn_smem(const void* kernel, int bytes);
template <class T> inline bool check_arg(const T& v, int i) {
  if constexpr (std::is_pointer_v<T>) { if (v && !std::is_function_v<std::remove_pointer_t<T>>) { char b[48]; snprintf(b, sizeof b, "kernel argument %d", i); return check_range((const void*)v, 0, b); } }
  return true;
}
template <class T, class... Tag> T& shared_variable(const void* site) { return *reinterpret_cast<T*>(shared_mem(site, sizeof(T), alignof(T) < 16 ? 16 : alignof(T))); }
template <class T> inline uint64_t to_bits(T v) { static_assert(sizeof(T) <= 8, "shuffle of a type over 8 bytes"); uint64_t b = 0; std::memcpy(&b, &v, sizeof(T)); return b; }
template <class T> inline T from_bits(uint64_t b) { T v; std::memcpy(&v, &b, sizeof(T)); return v; }
}  // namespace lipgrad_emulation

template <class... P, class... A> cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* c, void (*k)(P...), A&&... a) {
  std::tuple<std::decay_t<P>...> args(std::forward<A>(a)...);
  bool ok = true; int i = 0;
  std::apply([&](auto&... v) { ((ok = lipgrad_emulation::check_arg(v, i++) && ok), ...); }, args);
  if (!ok) return cudaErrorIllegalAddress;
  return lipgrad_emulation::enqueue_launch(*c, (const void*)k, [k, args = std::move(args)] { std::apply(k, args); });
}
template <class F> cudaError_t cudaFuncSetAttribute(F* f, cudaFuncAttribute a, int v) { return a == cudaFuncAttributeMaxDynamicSharedMemorySize ? lipgrad_emulation::set_max_dyn_smem((const void*)f, v) : cudaSuccess; }

// ------------------------------------------------------------------ device built-ins
#define CUEMU_SITE const char* f_ = __builtin_FILE(), int l_ = __builtin_LINE()
inline void __syncthreads(CUEMU_SITE) { lipgrad_emulation::block_op(lipgrad_emulation::Op::syncthreads, 0, f_, l_); }
inline int __syncthreads_count(int p, CUEMU_SITE) { return lipgrad_emulation::block_op(lipgrad_emulation::Op::sync_count, p, f_, l_); }
inline int __syncthreads_and(int p, CUEMU_SITE) { return lipgrad_emulation::block_op(lipgrad_emulation::Op::sync_and, p, f_, l_); }
inline int __syncthreads_or(int p, CUEMU_SITE) { return lipgrad_emulation::block_op(lipgrad_emulation::Op::sync_or, p, f_, l_); }
inline void __syncwarp(unsigned m = 0xffffffffu, CUEMU_SITE) { lipgrad_emulation::warp_op(lipgrad_emulation::Op::syncwarp, m, 0, 0, 32, f_, l_); }
template <class T> inline T __shfl_sync(unsigned m, T v, int src, int w = 32, CUEMU_SITE) { return lipgrad_emulation::from_bits<T>(lipgrad_emulation::warp_op(lipgrad_emulation::Op::shfl, m, lipgrad_emulation::to_bits(v), src, w, f_, l_)); }
template <class T> inline T __shfl_up_sync(unsigned m, T v, unsigned d, int w = 32, CUEMU_SITE) { return lipgrad_emulation::from_bits<T>(lipgrad_emulation::warp_op(lipgrad_emulation::Op::shfl_up, m, lipgrad_emulation::to_bits(v), (int)d, w, f_, l_)); }
template <class T> inline T __shfl_down_sync(unsigned m, T v, unsigned d, int w = 32, CUEMU_SITE) { return lipgrad_emulation::from_bits<T>(lipgrad_emulation::warp_op(lipgrad_emulation::Op::shfl_down, m, lipgrad_emulation::to_bits(v), (int)d, w, f_, l_)); }
template <class T> inline T __shfl_xor_sync(unsigned m, T v, int x, int w = 32, CUEMU_SITE) { return lipgrad_emulation::from_bits<T>(lipgrad_emulation::warp_op(lipgrad_emulation::Op::shfl_xor, m, lipgrad_emulation::to_bits(v), x, w, f_, l_)); }
inline unsigned __ballot_sync(unsigned m, int p, CUEMU_SITE) { return (unsigned)lipgrad_emulation::warp_op(lipgrad_emulation::Op::ballot, m, p != 0, 0, 32, f_, l_); }
inline int __any_sync(unsigned m, int p, CUEMU_SITE) { return (int)lipgrad_emulation::warp_op(lipgrad_emulation::Op::any, m, p != 0, 0, 32, f_, l_); }
inline int __all_sync(unsigned m, int p, CUEMU_SITE) { return (int)lipgrad_emulation::warp_op(lipgrad_emulation::Op::all, m, p != 0, 0, 32, f_, l_); }
template <class T> inline unsigned __match_any_sync(unsigned m, T v, CUEMU_SITE) { return (unsigned)lipgrad_emulation::warp_op(lipgrad_emulation::Op::match_any, m, lipgrad_emulation::to_bits(v), 0, 32, f_, l_); }
inline int __reduce_add_sync(unsigned m, int v, CUEMU_SITE) { return (int)lipgrad_emulation::warp_op(lipgrad_emulation::Op::red_add, m, (uint64_t)(int64_t)v, 0, 32, f_, l_); }
inline int __reduce_min_sync(unsigned m, int v, CUEMU_SITE) { return (int)lipgrad_emulation::warp_op(lipgrad_emulation::Op::red_min, m, (uint64_t)(int64_t)v, 0, 32, f_, l_); }
inline int __reduce_max_sync(unsigned m, int v, CUEMU_SITE) { return (int)lipgrad_emulation::warp_op(lipgrad_emulation::Op::red_max, m, (uint64_t)(int64_t)v, 0, 32, f_, l_); }
inline void __threadfence() { lipgrad_emulation::fence(); }
inline void __threadfence_block() { lipgrad_emulation::fence(); }

template <class T> inline T cuemu_rmw(T* p, T v, T (*f)(T, T)) {
  if constexpr (std::is_integral_v<T>) { T o = __atomic_load_n(p, __ATOMIC_RELAXED); while (!__atomic_compare_exchange_n(p, &o, f(o, v), true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {} return o; }
  else { using U = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>; U* q = (U*)p; U o = __atomic_load_n(q, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(q, &o, (U)lipgrad_emulation::to_bits(f(lipgrad_emulation::from_bits<T>(o), v)), true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {} return lipgrad_emulation::from_bits<T>(o); }
}
#define CUEMU_ATOM(N, E) template <class T, class V> inline T atomic##N(T* p, V v_) { return cuemu_rmw<T>(p, (T)v_, [](T a, T b) -> T { return E; }); }
CUEMU_ATOM(Add, a + b) CUEMU_ATOM(Sub, a - b) CUEMU_ATOM(Min, b < a ? b : a) CUEMU_ATOM(Max, a < b ? b : a) CUEMU_ATOM(Exch, ((void)a, b))
CUEMU_ATOM(Or, a | b) CUEMU_ATOM(And, a & b) CUEMU_ATOM(Xor, a ^ b) CUEMU_ATOM(Inc, a >= b ? T(0) : T(a + 1))
#undef CUEMU_ATOM
template <class T> inline T atomicCAS(T* p, T cmp, T v) { __atomic_compare_exchange_n(p, &cmp, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED); return cmp; }

template <class T> inline T __ldg(const T* p) { return *p; }
inline float __expf(float x) { return expf(x); } inline float __logf(float x) { return logf(x); } inline float __fdividef(float a, float b) { return a / b; }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); } inline double rsqrt(double x) { return 1.0 / sqrt(x); } inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fmul_rn(float a, float b) { return a * b; } inline float __fadd_rn(float a, float b) { return a + b; } inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline int __float_as_int(float f) { return lipgrad_emulation::from_bits<int>(lipgrad_emulation::to_bits(f)); } inline float __int_as_float(int i) { return lipgrad_emulation::from_bits<float>(lipgrad_emulation::to_bits(i)); }
inline int __popc(unsigned x) { return __builtin_popcount(x); } inline int __ffs(int x) { return __builtin_ffs(x); } inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
template <class A, class B, class C = std::common_type_t<A, B>> constexpr std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>, C> min(A a, B b) { return (C)b < (C)a ? (C)b : (C)a; }
template <class A, class B, class C = std::common_type_t<A, B>> constexpr std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>, C> max(A a, B b) { return (C)a < (C)b ? (C)b : (C)a; }
