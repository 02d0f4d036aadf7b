#include <lipgrad/core/dtype.h>

#include <lipgrad/core/check.h>

namespace lipgrad {

const char* name_of(DType dtype) {
  switch (dtype) {
    case f32:
      return "f32";
    case f64:
      return "f64";
    case i32:
      return "i32";
    case i64:
      return "i64";
    case u8:
      return "u8";
  }
  return "?";
}

void throw_not_floating(const char* op, DType dtype) {
  fail("{}: expects f32 or f64, got {}", op, dtype);
}

std::string Device::str() const { return is_cpu() ? "cpu" : "cuda:" + std::to_string(index); }

}  // namespace lipgrad
