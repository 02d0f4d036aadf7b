#pragma once

// Private to gru_cell_cpu.cpp: what each vector width provides.

#include <cstdint>

namespace lipgrad::cpu {

template <class T>
struct GruRows {
  void (*forward)(std::int64_t rows, std::int64_t cols, const T* x, const T* hidden, const T* h,
                  T* y);
  void (*backward)(std::int64_t rows, std::int64_t cols, const T* x, const T* hidden, const T* h,
                   const T* gy, T* gx, T* ghidden, T* gh);
};

}  // namespace lipgrad::cpu
