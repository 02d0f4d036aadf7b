#pragma once

// The vector types, aligned as nvcc aligns them (UBSan tells of a misaligned float4), and dim3.

struct dim3;

#define LIPGRAD_EMULATION_VECTORS(T, name, align2, align4)           \
  struct name##1 {                                                   \
    T x;                                                             \
  };                                                                 \
  struct alignas(align2) name##2 {                                   \
    T x, y;                                                          \
  };                                                                 \
  struct name##3 {                                                   \
    T x, y, z;                                                       \
  };                                                                 \
  struct alignas(align4) name##4 {                                   \
    T x, y, z, w;                                                    \
  };                                                                 \
  inline name##1 make_##name##1(T x) { return {x}; }                 \
  inline name##2 make_##name##2(T x, T y) { return {x, y}; }         \
  inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; } \
  inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
LIPGRAD_EMULATION_VECTORS(signed char, char, 2, 4)
LIPGRAD_EMULATION_VECTORS(unsigned char, uchar, 2, 4)
LIPGRAD_EMULATION_VECTORS(short, short, 4, 8)
LIPGRAD_EMULATION_VECTORS(unsigned short, ushort, 4, 8)
LIPGRAD_EMULATION_VECTORS(int, int, 8, 16)
LIPGRAD_EMULATION_VECTORS(unsigned, uint, 8, 16)
LIPGRAD_EMULATION_VECTORS(long, long, 16, 16)
LIPGRAD_EMULATION_VECTORS(unsigned long, ulong, 16, 16)
LIPGRAD_EMULATION_VECTORS(long long, longlong, 16, 16)
LIPGRAD_EMULATION_VECTORS(unsigned long long, ulonglong, 16, 16)
LIPGRAD_EMULATION_VECTORS(float, float, 8, 16)
LIPGRAD_EMULATION_VECTORS(double, double, 16, 16)
#undef LIPGRAD_EMULATION_VECTORS

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};

// The thread that runs now. Plain variables: one kernel runs at a time, and the executor rewrites
// them when it switches to another thread.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
constexpr int warpSize = 32;
