#pragma once

// What all parts of the emulation share: one lock, the errors that CUDA remembers, reports.

#include <mutex>
#include <string>

#include <cuda_runtime.h>

namespace lipgrad_emulation {

constexpr int kMaxDevices = 2;
constexpr std::size_t kSharedDefault = 48 << 10;  // bytes a block may have without asking
constexpr std::size_t kSharedOptIn = 227 << 10;   // and with cudaFuncSetAttribute

// Every entry point holds it, so that kernels of several host threads run one after another.
std::recursive_mutex& mutex();
using Lock = std::lock_guard<std::recursive_mutex>;

int current_device();

// An error of one call, which cudaGetLastError tells once.
cudaError_t fail(cudaError_t error);
// The same with a line on stderr that says what is wrong.
cudaError_t report(cudaError_t error, const std::string& message);
// After it every call fails, as on a GPU, until cudaDeviceReset.
cudaError_t report_sticky(cudaError_t error, const std::string& message);
cudaError_t sticky_error();

int environment(const char* name, int otherwise);

// For the start of an entry point.
#define LIPGRAD_EMULATION_ENTRY                                    \
  const lipgrad_emulation::Lock lock_(lipgrad_emulation::mutex()); \
  if (lipgrad_emulation::sticky_error() != cudaSuccess) return lipgrad_emulation::sticky_error()

}  // namespace lipgrad_emulation
