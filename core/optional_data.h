#pragma once

// Private: the elements of operands that a kernel may do without.

#include <lipgrad/core/tensor.h>

namespace lipgrad {

// Null for an undefined tensor.
template <class T>
const T* data_or_null(const Tensor& x) {
  return x.defined() ? x.data<T>() : nullptr;
}
template <class T>
T* mutable_data_or_null(Tensor& x) {
  return x.defined() ? x.mutable_data<T>() : nullptr;
}

}  // namespace lipgrad
