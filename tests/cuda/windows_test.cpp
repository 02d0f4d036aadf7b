#include <lipgrad/vision/kernels/windows.h>

#include "cuda/kernel_test.h"

namespace lipgrad {

TEST_CASE_TEMPLATE("windows: whole packs, single numbers and unaligned ones as on the CPU", T,
                   float, double) {
  if (!test::with_cuda()) return;
  const WindowCut cuts[] = {{4, 6, 2, 3, 1, 2}, {7, 7, 7, 7, 3, 3}, {9, 2, 3, 1, 0, 0}};
  for (const WindowCut& cut : cuts) {
    for (const std::int64_t channels : {1, 3, 4, 8}) {
      for (const std::int64_t shift : {0, 1}) {
        CAPTURE(cut.height);
        CAPTURE(channels);
        CAPTURE(shift);
        const std::int64_t n = 3 * cut.height * cut.width * channels;
        const std::vector<T> image = random_values<T>(n, 1);
        std::vector<T> windows(n), back(n);
        cpu::to_windows(cut, 3, channels, image.data(), windows.data());
        const test::DeviceVector<T> from(image, shift);
        test::DeviceVector<T> there(n, shift), again(n, shift);
        cuda::to_windows(cut, 3, channels, from.read(), there.data());
        CHECK(there.host() == windows);
        cuda::from_windows(cut, 3, channels, there.read(), again.data());
        CHECK(again.host() == image);
      }
    }
  }
}

}  // namespace lipgrad
