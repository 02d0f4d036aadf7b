#pragma once

// Device memory: one range of addresses a device, of which pages are taken as they are used.

#include <cstddef>
#include <string>

namespace lipgrad_emulation {

struct Allocation {
  char* begin = nullptr;  // null: no such block
  std::size_t bytes = 0;
  int device = 0;
};

// Null when the device is full. Fresh memory up to 64 MiB holds NaN; more is left untouched, so
// that a test may have a huge array of which it uses little.
void* allocate_device(int device, std::size_t bytes);
// False unless allocate_device() gave it and it was not freed.
bool free_device(void* p);
// The block that p points into (or just behind).
Allocation find_device_block(const void* p);
Allocation find_pinned_block(const void* p);
std::size_t device_memory_total();
std::size_t device_memory_free(int device);

// Device memory can be reached only while one of these is alive: host code that follows a device
// pointer faults.
class DeviceAccess {
 public:
  DeviceAccess();
  ~DeviceAccess();
  DeviceAccess(const DeviceAccess&) = delete;
  DeviceAccess& operator=(const DeviceAccess&) = delete;
};

}  // namespace lipgrad_emulation
