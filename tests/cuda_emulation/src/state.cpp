#include "state.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "memory.h"
#include "streams.h"

namespace lipgrad_emulation {
namespace {

thread_local int device = 0;
thread_local cudaError_t last = cudaSuccess;
cudaError_t sticky = cudaSuccess;
std::string message;

}  // namespace

int environment(const char* name, int otherwise) {
  const char* text = std::getenv((std::string("LIPGRAD_EMULATION_") + name).c_str());
  return text && *text ? std::atoi(text) : otherwise;
}

Config& config() {
  static Config all = [] {
    Config c;
    c.order = environment("ORDER", c.order);
    c.lazy = environment("LAZY", c.lazy);
    c.protect = environment("PROTECT", c.protect);
    c.strict_exit = environment("STRICT_EXIT", c.strict_exit);
    c.poison = environment("POISON", c.poison);
    c.abort_on_error = environment("ABORT", c.abort_on_error);
    c.devices = std::clamp(environment("DEVICES", c.devices), 0, kMaxDevices);
    c.multiprocessors = std::max(environment("MULTIPROCESSORS", c.multiprocessors), 1);
    return c;
  }();
  return all;
}

std::recursive_mutex& mutex() {
  static auto& one = *new std::recursive_mutex;
  return one;
}

int current_device() { return device; }

cudaError_t fail(cudaError_t error) {
  if (error != cudaSuccess) last = error;
  return error;
}

cudaError_t report(cudaError_t error, const std::string& what) {
  message = what;
  std::fprintf(stderr, "emulation: %s\n", what.c_str());
  if (config().abort_on_error) std::abort();
  return fail(error);
}

cudaError_t report_sticky(cudaError_t error, const std::string& what) {
  sticky = error;
  return report(error, what);
}

cudaError_t sticky_error() { return sticky; }
const char* last_message() { return message.c_str(); }

}  // namespace lipgrad_emulation

using namespace lipgrad_emulation;

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
#define LIPGRAD_EMULATION_NAME(name) \
  case name:                         \
    return #name;
    LIPGRAD_EMULATION_NAME(cudaSuccess)
    LIPGRAD_EMULATION_NAME(cudaErrorInvalidValue)
    LIPGRAD_EMULATION_NAME(cudaErrorMemoryAllocation)
    LIPGRAD_EMULATION_NAME(cudaErrorInvalidConfiguration)
    LIPGRAD_EMULATION_NAME(cudaErrorInvalidPitchValue)
    LIPGRAD_EMULATION_NAME(cudaErrorInvalidDevicePointer)
    LIPGRAD_EMULATION_NAME(cudaErrorInvalidMemcpyDirection)
    LIPGRAD_EMULATION_NAME(cudaErrorInsufficientDriver)
    LIPGRAD_EMULATION_NAME(cudaErrorNoDevice)
    LIPGRAD_EMULATION_NAME(cudaErrorInvalidDevice)
    LIPGRAD_EMULATION_NAME(cudaErrorInvalidResourceHandle)
    LIPGRAD_EMULATION_NAME(cudaErrorIllegalState)
    LIPGRAD_EMULATION_NAME(cudaErrorNotReady)
    LIPGRAD_EMULATION_NAME(cudaErrorIllegalAddress)
    LIPGRAD_EMULATION_NAME(cudaErrorLaunchOutOfResources)
    LIPGRAD_EMULATION_NAME(cudaErrorLaunchFailure)
    LIPGRAD_EMULATION_NAME(cudaErrorNotSupported)
    LIPGRAD_EMULATION_NAME(cudaErrorStreamCaptureUnsupported)
    LIPGRAD_EMULATION_NAME(cudaErrorStreamCaptureInvalidated)
    LIPGRAD_EMULATION_NAME(cudaErrorStreamCaptureMerge)
    LIPGRAD_EMULATION_NAME(cudaErrorStreamCaptureUnmatched)
    LIPGRAD_EMULATION_NAME(cudaErrorStreamCaptureUnjoined)
    LIPGRAD_EMULATION_NAME(cudaErrorStreamCaptureIsolation)
    LIPGRAD_EMULATION_NAME(cudaErrorStreamCaptureImplicit)
    LIPGRAD_EMULATION_NAME(cudaErrorCapturedEvent)
    LIPGRAD_EMULATION_NAME(cudaErrorStreamCaptureWrongThread)
    LIPGRAD_EMULATION_NAME(cudaErrorGraphExecUpdateFailure)
    LIPGRAD_EMULATION_NAME(cudaErrorUnknown)
#undef LIPGRAD_EMULATION_NAME
  }
  return "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInvalidConfiguration:
      return "invalid configuration argument";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorInvalidResourceHandle:
      return "invalid resource handle";
    case cudaErrorNotReady:
      return "device not ready";
    case cudaErrorIllegalAddress:
      return "an illegal memory access was encountered";
    case cudaErrorLaunchFailure:
      return "unspecified launch failure";
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated:
      return "operation failed due to a previous error during capture";
    default:
      return cudaGetErrorName(error);
  }
}

cudaError_t cudaGetLastError() {
  const Lock lock(mutex());
  const cudaError_t error = cudaPeekAtLastError();
  last = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError() {
  const Lock lock(mutex());
  return sticky != cudaSuccess ? sticky : last;
}

cudaError_t cudaDeviceReset() {
  const Lock lock(mutex());
  sticky = last = cudaSuccess;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = config().devices;
  return *count > 0 ? cudaSuccess : fail(cudaErrorNoDevice);
}

cudaError_t cudaGetDevice(int* index) {
  *index = device;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int index) {
  if (index < 0 || index >= config().devices) return fail(cudaErrorInvalidDevice);
  device = index;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int index) {
  if (index < 0 || index >= config().devices) return fail(cudaErrorInvalidDevice);
  *p = {};
  std::snprintf(p->name, sizeof p->name, "emulated device %d", index);
  p->totalGlobalMem = device_memory_total();
  p->sharedMemPerBlock = kSharedDefault;
  p->sharedMemPerBlockOptin = kSharedOptIn;
  p->sharedMemPerMultiprocessor = kSharedOptIn + 1024;
  p->regsPerBlock = p->regsPerMultiprocessor = 65536;
  p->warpSize = 32;
  p->maxThreadsPerBlock = p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
  p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 0x7fffffff;
  p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->maxThreadsPerMultiProcessor = 2048;
  p->major = 9;
  p->multiProcessorCount = config().multiprocessors;
  p->memoryBusWidth = 64;
  p->l2CacheSize = 1 << 20;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int index) {
  cudaDeviceProp p;
  if (const cudaError_t error = cudaGetDeviceProperties(&p, index)) return error;
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
      *value = p.maxThreadsPerBlock;
      return cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
      *value = p.multiProcessorCount;
      return cudaSuccess;
    case cudaDevAttrMemoryClockRate:
      *value = 1000000;
      return cudaSuccess;
    case cudaDevAttrGlobalMemoryBusWidth:
      *value = p.memoryBusWidth;
      return cudaSuccess;
    case cudaDevAttrL2CacheSize:
      *value = p.l2CacheSize;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      *value = p.major;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = p.minor;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(kSharedOptIn);
      return cudaSuccess;
  }
  return fail(cudaErrorInvalidValue);
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
