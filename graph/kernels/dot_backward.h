#pragma once

// Private to the CPU kernels of dot-product attention.

#include <lipgrad/graph/kernels/dot_attention.h>

namespace lipgrad::cpu {

// What a pass of backward knows.
template <class T>
struct DotBackward {
  const GatGraph& graph;
  const DotForm& form;
  const DotInput<T>& in;
  const T* stats;
  const DotCotangents<T>& grad;
};

}  // namespace lipgrad::cpu
