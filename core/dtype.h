#pragma once

#include <cstdint>
#include <type_traits>

namespace lipgrad {

// The element types. There is no implicit promotion between them.
enum class DType : std::uint8_t { f32, f64, i32, i64, u8 };

inline constexpr DType f32 = DType::f32;
inline constexpr DType f64 = DType::f64;
inline constexpr DType i32 = DType::i32;
inline constexpr DType i64 = DType::i64;
inline constexpr DType u8 = DType::u8;

constexpr bool is_floating(DType dtype) { return dtype == f32 || dtype == f64; }

// Bytes of one element.
constexpr std::int64_t size_of(DType dtype) {
  switch (dtype) {
    case f32:
    case i32:
      return 4;
    case f64:
    case i64:
      return 8;
    case u8:
      return 1;
  }
  return 0;
}

// "f32", "f64", "i32", "i64" or "u8".
const char* name_of(DType dtype);

template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, float>) return f32;
  if constexpr (std::is_same_v<T, double>) return f64;
  if constexpr (std::is_same_v<T, std::int32_t>) return i32;
  if constexpr (std::is_same_v<T, std::int64_t>) return i64;
  if constexpr (std::is_same_v<T, std::uint8_t>) return u8;
}

// Throws Error "<op>: expects f32 or f64, got <dtype>".
[[noreturn]] void throw_not_floating(const char* op, DType dtype);

template <class T>
struct TypeTag {
  using type = T;
};

// Calls f(TypeTag<float>{}) or f(TypeTag<double>{}); any other dtype is an error that names `op`.
template <class F>
decltype(auto) visit_float(const char* op, DType dtype, F&& f) {
  if (dtype == f32) return f(TypeTag<float>{});
  if (dtype == f64) return f(TypeTag<double>{});
  throw_not_floating(op, dtype);
}

// The same over all five element types.
template <class F>
decltype(auto) visit_dtype(DType dtype, F&& f) {
  switch (dtype) {
    case f64:
      return f(TypeTag<double>{});
    case i32:
      return f(TypeTag<std::int32_t>{});
    case i64:
      return f(TypeTag<std::int64_t>{});
    case u8:
      return f(TypeTag<std::uint8_t>{});
    case f32:
      break;
  }
  return f(TypeTag<float>{});
}

}  // namespace lipgrad
