#pragma once

// Kernel launches.

#include <array>
#include <cstddef>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

#include <lipgrad_emulation/runtime_api.h>

struct cudaLaunchAttribute {
  int id;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};

namespace lipgrad_emulation {

// Queues a kernel. `pointers`: its arguments that are pointers (null for the others), which must be
// memory of the stream's device, now and when it runs.
cudaError_t enqueue_launch(const cudaLaunchConfig_t& config, const void* kernel,
                           const void* const* pointers, int count, std::function<void()> run);
// Queues the work of a library call.
cudaError_t enqueue_host(cudaStream_t stream, const char* what, std::function<void()> run);
int stream_device(cudaStream_t stream);
cudaError_t set_dynamic_shared_limit(const void* kernel, int bytes);

template <class T>
const void* as_pointer(const T& value) {
  if constexpr (std::is_pointer_v<T>) {
    if constexpr (!std::is_function_v<std::remove_pointer_t<T>>) return value;
  }
  return nullptr;
}

}  // namespace lipgrad_emulation

template <class... P, class... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(P...), A&&... a) {
  std::tuple<std::decay_t<P>...> args(std::forward<A>(a)...);
  const auto pointers = std::apply(
      [](const auto&... v) {
        return std::array<const void*, sizeof...(P) + 1>{lipgrad_emulation::as_pointer(v)...};
      },
      args);
  return lipgrad_emulation::enqueue_launch(
      *config, reinterpret_cast<const void*>(kernel), pointers.data(), sizeof...(P),
      [kernel, args = std::move(args)] { std::apply(kernel, args); });
}

template <class T>
cudaError_t cudaFuncSetAttribute(T* function, cudaFuncAttribute attribute, int value) {
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  return lipgrad_emulation::set_dynamic_shared_limit(reinterpret_cast<const void*>(function),
                                                     value);
}
