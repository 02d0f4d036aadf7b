#pragma once

#include <cstdint>

#include <lipgrad/core/shape.h>

namespace lipgrad::cpu {

// to += from, summed over the dimensions in which `to_shape` is 1 or absent and `from_shape` is
// not; to_shape broadcasts to from_shape (the caller checks). Blocks and the order in which they
// are combined depend on the shapes alone.
template <class T>
void accumulate(T* to, const Shape& to_shape, const T* from, const Shape& from_shape);

}  // namespace lipgrad::cpu
