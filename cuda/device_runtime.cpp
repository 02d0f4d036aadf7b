// What core needs of CUDA devices: memory of tensors, and the Runtime.

#include <array>
#include <memory>
#include <mutex>

#include <lipgrad/core/check.h>
#include <lipgrad/core/kernels/accumulate.h>
#include <lipgrad/core/runtime.h>

#include "context.h"
#include "pool.h"
#include "staging.h"

namespace lipgrad::cuda {
namespace {

class CudaRuntime final : public Runtime {
 public:
  explicit CudaRuntime(int index) : index_(index) {}

  void fill(Tensor& x, double value) override {
    use_device(index_);
    visit_dtype(x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      cuda::fill(x.mutable_data<T>(), x.numel(), static_cast<T>(value));
    });
  }

  void copy(Tensor& to, const Tensor& from) override {
    void* target = to.mutable_raw_data();
    const void* source = from.raw_data();
    const std::int64_t bytes = to.nbytes();
    if (from.device().is_cpu()) {
      use_device(index_);
      upload(target, source, bytes);
    } else if (to.device().is_cpu()) {
      use_device(index_);
      download(target, source, bytes);
    } else {
      // Between devices the host waits for both: their streams know nothing of each other.
      Context& origin = context(from.device().index);
      if (to.device().index != from.device().index) cuda::synchronize(origin);
      Context& goal = context(to.device().index);
      if (bytes > 0)
        check(cudaMemcpyAsync(target, source, static_cast<std::size_t>(bytes),
                              cudaMemcpyDeviceToDevice, goal.stream),
              "cudaMemcpyAsync");
      if (to.device().index != from.device().index) cuda::synchronize(goal);
    }
  }

  void accumulate(Tensor& to, const Tensor& from) override {
    LIPGRAD_CHECK(to.dtype() == from.dtype() && broadcasts_to(to.shape(), from.shape()),
                  "accumulate: cannot add {} to {}", from.str(), to.str());
    use_device(index_);
    const ReducedBox box = reduced_box(to.shape(), from.shape());
    visit_float("accumulate", to.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      cuda::accumulate(box, to.mutable_data<T>(), from.data<T>());
    });
  }

  bool has_nonfinite(const Tensor& x) override {
    use_device(index_);
    Scratch<int> found(1);
    visit_float("has_nonfinite", x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      cuda::has_nonfinite(x.data<T>(), x.numel(), found.get());
    });
    int result = 0;
    download(&result, found.get(), sizeof result);
    return result != 0;
  }

  void synchronize() override { cuda::synchronize(context(index_)); }

 private:
  int index_;
};

}  // namespace

Runtime& runtime(int index) {
  static std::mutex mutex;
  static std::array<std::unique_ptr<CudaRuntime>, 64> runtimes;
  context(index);  // an Error unless there is such a device
  const std::lock_guard lock(mutex);
  std::unique_ptr<CudaRuntime>& slot = runtimes[index];
  if (!slot) slot = std::make_unique<CudaRuntime>(index);
  return *slot;
}

void* allocate(int index, std::int64_t bytes) { return context(index).pool->take(bytes); }
void free(int index, void* data, std::int64_t bytes) noexcept {
  context(index).pool->give(data, bytes);
}
memory::Counters memory_counters(int index) { return context(index).pool->counters(); }
void reset_memory_peak(int index) { context(index).pool->reset_peak(); }
void release_memory(int index) { context(index).pool->release(); }

}  // namespace lipgrad::cuda
