#pragma once

#include <cstdint>
#include <string>

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

}  // namespace lipgrad
