// Launches: what is checked before a kernel is queued, and the blocks of the grid when it runs.

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "block.h"
#include "memory.h"
#include "state.h"
#include "streams.h"

namespace lipgrad_emulation {
namespace {

// What cudaFuncSetAttribute allowed a kernel on a device.
std::map<std::pair<const void*, int>, std::size_t>& dynamic_limits() {
  static auto& limits = *new std::map<std::pair<const void*, int>, std::size_t>;
  return limits;
}

std::string text(dim3 d) {
  return "(" + std::to_string(d.x) + "," + std::to_string(d.y) + "," + std::to_string(d.z) + ")";
}

bool valid(dim3 grid, dim3 threads) {
  return grid.x > 0 && grid.y > 0 && grid.z > 0 && threads.x > 0 && threads.y > 0 &&
         threads.z > 0 && grid.x <= 0x7fffffffu && grid.y <= 65535 && grid.z <= 65535 &&
         threads.x <= 1024 && threads.y <= 1024 && threads.z <= 64 &&
         static_cast<std::uint64_t>(threads.x) * threads.y * threads.z <= kMaxThreads;
}

void run_block(std::uint64_t number) {
  blockIdx = {static_cast<unsigned>(number % gridDim.x),
              static_cast<unsigned>(number / gridDim.x % gridDim.y),
              static_cast<unsigned>(number / (static_cast<std::uint64_t>(gridDim.x) * gridDim.y))};
  block.run();
}

struct Launch {
  dim3 grid, threads;
  std::size_t dynamic_bytes, shared_limit;
  int device;
  std::vector<const void*> pointers;
  std::function<void()> kernel;

  bool pointers_usable() const {
    for (std::size_t i = 0; i < pointers.size(); ++i)
      if (pointers[i] &&
          !check_range(pointers[i], 0, ("kernel argument " + std::to_string(i)).c_str(), device))
        return false;
    return true;
  }

  void run() const {
    if (sticky_error() != cudaSuccess) return;
    if (!pointers_usable()) {
      report_sticky(cudaErrorIllegalAddress, "launch: an argument was freed before the kernel ran");
      return;
    }
    const DeviceAccess access;
    ++counters.launches;
    gridDim = grid;
    blockDim = threads;
    block.prepare(threads, dynamic_bytes, shared_limit, kernel);
    const int order = config().order;
    const std::uint64_t blocks = static_cast<std::uint64_t>(grid.x) * grid.y * grid.z;
    block.seed(0x9e3779b97f4a7c15 * (static_cast<unsigned>(order) + 7919 * counters.launches + 1));
    if (order < 2) {
      for (std::uint64_t i = 0; i < blocks && !block.aborted(); ++i)
        run_block(order == 1 ? blocks - 1 - i : i);
    } else {
      std::vector<unsigned> shuffled(blocks);
      std::iota(shuffled.begin(), shuffled.end(), 0u);
      for (std::size_t i = blocks; i > 1; --i)
        std::swap(shuffled[i - 1], shuffled[block.random(static_cast<unsigned>(i))]);
      for (std::size_t i = 0; i < blocks && !block.aborted(); ++i) run_block(shuffled[i]);
    }
    block.finish();
    if (block.aborted()) report_sticky(cudaErrorLaunchFailure, block.error());
  }
};

}  // namespace

cudaError_t set_dynamic_shared_limit(const void* kernel, int bytes) {
  LIPGRAD_EMULATION_ENTRY;
  if (bytes < 0 || static_cast<std::size_t>(bytes) > kSharedOptIn)
    return report(cudaErrorInvalidValue, "cudaFuncSetAttribute: " + std::to_string(bytes) +
                                             " bytes of dynamic shared memory");
  dynamic_limits()[{kernel, current_device()}] = static_cast<std::size_t>(bytes);
  return cudaSuccess;
}

cudaError_t enqueue_launch(const cudaLaunchConfig_t& c, const void* kernel,
                           const void* const* pointers, int count, std::function<void()> run) {
  LIPGRAD_EMULATION_ENTRY;
  const auto stream = state_of(c.stream);
  const int device = stream->device;
  if (device != current_device())
    return report(cudaErrorInvalidResourceHandle,
                  "launch: the stream is of device " + std::to_string(device) +
                      ", the current device is " + std::to_string(current_device()));
  if (!valid(c.gridDim, c.blockDim))
    return report(cudaErrorInvalidConfiguration,
                  "launch: grid " + text(c.gridDim) + " of blocks " + text(c.blockDim));
  const auto found = dynamic_limits().find({kernel, device});
  const std::size_t asked = found == dynamic_limits().end() ? 0 : found->second;
  if (c.dynamicSmemBytes > std::max(asked, kSharedDefault))
    return report(cudaErrorInvalidValue,
                  "launch: " + std::to_string(c.dynamicSmemBytes) +
                      " bytes of dynamic shared memory, the kernel may have " +
                      std::to_string(std::max(asked, kSharedDefault)));
  Launch launch{c.gridDim,
                c.blockDim,
                c.dynamicSmemBytes,
                asked > 0 ? kSharedOptIn : kSharedDefault,
                device,
                std::vector<const void*>(pointers, pointers + count),
                std::move(run)};
  if (!launch.pointers_usable()) return fail(cudaErrorIllegalAddress);
  return push(stream, {NodeKind::kernel, "kernel", [launch = std::move(launch)] { launch.run(); }});
}

}  // namespace lipgrad_emulation
