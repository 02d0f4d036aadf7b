#pragma once

// Private: used by .cpp files only, so that fmt stays out of the public headers.

#include <fmt/format.h>

#include <string_view>

#include <lipgrad/core/device.h>
#include <lipgrad/core/dtype.h>
#include <lipgrad/core/error.h>
#include <lipgrad/core/shape.h>

namespace lipgrad {

// Throws Error with a formatted message: fail("softmax: dim {} out of range for {}", dim, shape).
template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace lipgrad

// Throws unless `condition` holds; the arguments after it are those of fail().
#define LIPGRAD_CHECK(condition, ...) \
  do {                                \
    if (!(condition)) [[unlikely]]    \
      ::lipgrad::fail(__VA_ARGS__);   \
  } while (false)

template <>
struct fmt::formatter<lipgrad::Shape> : fmt::formatter<std::string_view> {
  auto format(const lipgrad::Shape& shape, fmt::format_context& context) const {
    return fmt::formatter<std::string_view>::format(shape.str(), context);
  }
};

template <>
struct fmt::formatter<lipgrad::DType> : fmt::formatter<std::string_view> {
  auto format(lipgrad::DType dtype, fmt::format_context& context) const {
    return fmt::formatter<std::string_view>::format(lipgrad::name_of(dtype), context);
  }
};

template <>
struct fmt::formatter<lipgrad::Device> : fmt::formatter<std::string_view> {
  auto format(lipgrad::Device device, fmt::format_context& context) const {
    return fmt::formatter<std::string_view>::format(device.str(), context);
  }
};
