#pragma once

#include <string>
#include <vector>

// How this copy of lipgrad was built and what it runs on, for logs and reports. Its version is
// kVersion, and whether it has a CUDA backend kWithCuda, both in <lipgrad/config.h>.
namespace lipgrad {

// The compiler of the library, "GCC 12.2.0" or "Clang 14.0.6".
std::string compiler();
// Whether the compiler optimised the library; without, everything is many times slower.
bool is_optimized();
// The sanitizer compiled in, "address" or "thread"; empty if there is none.
std::string sanitizer();

// The instruction sets that lipgrad's own kernels are compiled for, widest first: names of Google
// Highway's targets, such as "AVX3" (AVX-512), "AVX2", "SCALAR" (no vectors).
std::vector<std::string> simd_targets();
// The one of them that runs here: the widest that this processor has.
std::string simd_target();

}  // namespace lipgrad
