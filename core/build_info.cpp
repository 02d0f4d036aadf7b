#include <lipgrad/core/build_info.h>

#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <lipgrad/core/build_info.cpp>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

// Asked in the way that kernels are called, so that the answer holds for them.
HWY_BEFORE_NAMESPACE();
namespace lipgrad::HWY_NAMESPACE {

const char* target_name() { return hwy::TargetName(HWY_TARGET); }

}  // namespace lipgrad::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lipgrad {

HWY_EXPORT(target_name);

std::string compiler() {
#ifdef __clang__
  return "Clang " + std::to_string(__clang_major__) + "." + std::to_string(__clang_minor__) + "." +
         std::to_string(__clang_patchlevel__);
#else
  return "GCC " + std::to_string(__GNUC__) + "." + std::to_string(__GNUC_MINOR__) + "." +
         std::to_string(__GNUC_PATCHLEVEL__);
#endif
}

bool is_optimized() {
#ifdef __OPTIMIZE__
  return true;
#else
  return false;
#endif
}

std::string sanitizer() {
#if defined(__SANITIZE_ADDRESS__)
  return "address";
#elif defined(__SANITIZE_THREAD__)
  return "thread";
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
  return "address";
#elif __has_feature(thread_sanitizer)
  return "thread";
#else
  return {};
#endif
#else
  return {};
#endif
}

std::vector<std::string> simd_targets() {
  std::vector<std::string> names;
  // A bit each; the lower the wider. Narrower ones than the compiler may use anyway are left out.
  constexpr auto narrowest = static_cast<std::uint64_t>(HWY_STATIC_TARGET);
  for (auto left = static_cast<std::uint64_t>(HWY_TARGETS) & (2 * narrowest - 1); left != 0;
       left &= left - 1)
    names.emplace_back(hwy::TargetName(static_cast<std::int64_t>(left & -left)));
  return names;
}

std::string simd_target() { return HWY_DYNAMIC_DISPATCH(target_name)(); }

}  // namespace lipgrad
#endif
