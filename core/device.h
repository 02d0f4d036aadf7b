#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lipgrad {

enum class DeviceKind : std::uint8_t { cpu, cuda };

// Where a tensor lives: the CPU or the CUDA device of a number.
struct Device {
  DeviceKind kind = DeviceKind::cpu;
  std::int16_t index = 0;

  constexpr bool is_cpu() const { return kind == DeviceKind::cpu; }
  constexpr bool is_cuda() const { return kind == DeviceKind::cuda; }
  // "cpu" or "cuda:0".
  std::string str() const;

  friend constexpr bool operator==(Device, Device) = default;
};

inline constexpr Device cpu_device{};
constexpr Device cuda_device(int index = 0) {
  return {DeviceKind::cuda, static_cast<std::int16_t>(index)};
}

// From "cpu", "cuda" (the first one) or "cuda:1". Error when it is written otherwise, or this build
// or machine has no such device.
Device parse_device(std::string_view text);
// Waits until everything queued on the device has run. Error, late, for what kernels found wrong
// with their input (an index out of range).
void synchronize(Device device);

}  // namespace lipgrad
