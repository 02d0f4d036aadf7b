#pragma once

// Private to node_norm_cpu.cpp: the functions of one type and vector width.

#include <cmath>
#include <cstdint>

namespace lipgrad::cpu {

template <class T>
struct NodeNormRows {
  void (*forward)(std::int64_t rows, std::int64_t cols, double eps, double power, const T* x, T* y,
                  T* mean, T* scale);
  void (*backward)(std::int64_t rows, std::int64_t cols, double power, const T* x, const T* mean,
                   const T* scale, const T* gy, T* gx);
};

}  // namespace lipgrad::cpu
