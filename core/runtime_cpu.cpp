#include <charconv>
#include <cmath>
#include <cstring>

#include <lipgrad/config.h>
#include <lipgrad/core/check.h>
#include <lipgrad/core/cuda_status.h>
#include <lipgrad/core/kernels/accumulate.h>
#include <lipgrad/core/runtime.h>
#include <lipgrad/core/threads.h>

namespace lipgrad {
namespace {

constexpr std::int64_t grain = 1 << 18;  // bytes a block

class CpuRuntime final : public Runtime {
 public:
  void fill(Tensor& x, double value) override {
    visit_dtype(x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      cpu::fill(x.mutable_data<T>(), x.numel(), static_cast<T>(value));
    });
  }

  void copy(Tensor& to, const Tensor& from) override {
    char* target = static_cast<char*>(to.mutable_raw_data());
    const char* source = static_cast<const char*>(from.raw_data());
    parallel_for(to.nbytes(), grain, [&](std::int64_t begin, std::int64_t end) {
      std::memcpy(target + begin, source + begin, end - begin);
    });
  }

  void accumulate(Tensor& to, const Tensor& from) override {
    LIPGRAD_CHECK(to.dtype() == from.dtype() && broadcasts_to(to.shape(), from.shape()),
                  "accumulate: cannot add {} to {}", from.str(), to.str());
    visit_float("accumulate", to.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      cpu::accumulate(reduced_box(to.shape(), from.shape()), to.mutable_data<T>(), from.data<T>());
    });
  }

  bool has_nonfinite(const Tensor& x) override {
    return visit_float("has_nonfinite", x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T* data = x.data<T>();
      T sum = 0;  // 0 * x is NaN just for NaN and infinities
      for (std::int64_t i = 0; i < x.numel(); ++i) sum += data[i] * T{0};
      return !(sum == 0);
    });
  }

  void synchronize() override {}
};

}  // namespace

Runtime& runtime(Device device) {
  static CpuRuntime cpu;
  if (device.is_cpu()) return cpu;
  if constexpr (kWithCuda) return cuda::runtime(device.index);
  fail("device: {} asked for, but {}", device, cuda_status().problem);
}

void synchronize(Device device) { runtime(device).synchronize(); }

Device parse_device(std::string_view text) {
  if (text == "cpu") return cpu_device;
  int index = 0;
  if (text != "cuda") {
    constexpr std::string_view prefix = "cuda:";
    const char* end = text.data() + text.size();
    const auto [stop, error] =
        text.starts_with(prefix) ? std::from_chars(text.data() + prefix.size(), end, index)
                                 : std::from_chars_result{text.data(), std::errc::invalid_argument};
    LIPGRAD_CHECK(error == std::errc() && stop == end && index >= 0 && index < 1024,
                  "device: '{}'; expected cpu, cuda or cuda:0, cuda:1, ...", text);
  }
  const Device device = cuda_device(index);
  runtime(device);
  return device;
}

ReducedBox reduced_box(const Shape& to, const Shape& from) {
  ReducedBox box;
  for (int i = 0; i < from.rank(); ++i) {
    const int j = i - (from.rank() - to.rank());
    box.add(from[i], j >= 0 && to[j] != 1);
  }
  return box;
}

}  // namespace lipgrad
