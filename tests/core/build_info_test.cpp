#include <lipgrad/core/build_info.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include <lipgrad/core/blas.h>

namespace lipgrad {
namespace {

TEST_CASE("build_info: the SIMD target is one of those compiled in, and the widest there is") {
  const auto targets = simd_targets();
  REQUIRE(!targets.empty());
  const auto used = std::find(targets.begin(), targets.end(), simd_target());
  REQUIRE(used != targets.end());
#ifdef __x86_64__
  CHECK(simd_target().starts_with("AVX") == (__builtin_cpu_supports("avx2") != 0));
#endif
}

TEST_CASE("build_info: compiler and BLAS name themselves") {
  CHECK(compiler().find_first_of("0123456789") != std::string::npos);
  CHECK(std::string(blas_description()).find("OpenBLAS") != std::string::npos);
  CHECK(!std::string(blas_core()).empty());
#ifdef NDEBUG
  CHECK(is_optimized());
#endif
}

}  // namespace
}  // namespace lipgrad
