#include <lipgrad/ops/kernels/shape.h>

#include <lipgrad/core/kernels/accumulate.h>
#include <lipgrad/ops/kernels/linear.h>

#include "cuda/kernel_test.h"

namespace lipgrad {
namespace {

using test::DeviceVector;

// Copies a box between arrays of the given sizes on the CPU and on the device: every element, and
// what lies between them.
template <class T>
void check_copy(const StridedBox& box, std::int64_t to_size, std::int64_t from_size,
                std::int64_t shift) {
  CAPTURE(box.rank);
  CAPTURE(sizeof(T));
  CAPTURE(shift);
  std::vector<T> from(from_size), to(to_size, T(77));
  for (std::int64_t i = 0; i < from_size; ++i) from[i] = static_cast<T>(i * 31 + i / 256);
  const DeviceVector<T> dfrom(from, shift);
  DeviceVector<T> dto(to, shift);
  cpu::copy_strided(box, sizeof(T), to.data(), from.data());
  cuda::copy_strided(box, sizeof(T), dto.data(), dfrom.read());
  CHECK(dto.host() == to);
}

void check_box(const StridedBox& box) {
  std::int64_t to_size = 1, from_size = 1;
  for (int i = 0; i < box.rank; ++i) {
    to_size += (box.size[i] - 1) * box.to[i];
    from_size += (box.size[i] - 1) * box.from[i];
  }
  for (std::int64_t shift : {0, 1}) {
    check_copy<std::uint8_t>(box, to_size, from_size, shift);
    check_copy<std::int32_t>(box, to_size, from_size, shift);
    check_copy<std::int64_t>(box, to_size, from_size, shift);
  }
}

StridedBox box_of(std::initializer_list<std::int64_t> size, std::initializer_list<std::int64_t> to,
                  std::initializer_list<std::int64_t> from) {
  StridedBox box;
  box.rank = static_cast<int>(size.size());
  std::copy(size.begin(), size.end(), box.size);
  std::copy(to.begin(), to.end(), box.to);
  std::copy(from.begin(), from.end(), box.from);
  return box;
}

}  // namespace

TEST_CASE("shape: strided copies equal the CPU's") {
  if (!test::with_cuda()) return;
  const StridedBox boxes[] = {
      StridedBox{},                         // one element
      box_of({5000}, {1}, {1}),             // contiguous
      box_of({300}, {2}, {3}),              // every other
      box_of({40, 70}, {70, 1}, {0, 1}),    // rows repeated
      box_of({40, 70}, {70, 1}, {1, 0}),    // columns repeated
      box_of({40, 64}, {64, 1}, {128, 1}),  // a slice, in packs
      box_of({40, 30}, {50, 1}, {30, 1}),   // into a part of a larger array
      box_of({70, 33}, {1, 70}, {33, 1}),   // a transposition
      box_of({70, 33}, {33, 1}, {1, 70}),   // and from the other side
      box_of({3, 20, 5, 40}, {4000, 40, 800, 1}, {4000, 200, 40, 1}),  // heads to the front
      box_of({6, 50, 40}, {2000, 1, 50}, {2000, 40, 1}),               // transposed planes
      box_of({34, 5, 40}, {1, 1360, 34}, {200, 40, 1}),                // the first goes last
      box_of({40, 4}, {1, 40}, {4, 1}),                                // too narrow for tiles
      box_of({2, 3, 2, 3, 2, 3, 2, 3}, {1, 2, 6, 12, 36, 72, 216, 432},
             {648, 216, 108, 36, 18, 6, 3, 1}),
  };
  for (const StridedBox& box : boxes) check_box(box);
  cuda::copy_strided(box_of({0, 5}, {5, 1}, {5, 1}), 4, nullptr, nullptr);
}

TEST_CASE("shape: offsets beyond 2^31") {
  if (!test::with_cuda()) return;
  const std::int64_t far = (std::int64_t{1} << 31) + 4096, n = far + 4096;
  Tensor whole = empty({n}, u8, cuda_device());
  const auto at = [&](std::int64_t i) {
    return static_cast<int>(whole.alias({1}, i).to(cpu_device).data<std::uint8_t>()[0]);
  };
  std::uint8_t* data = whole.mutable_data<std::uint8_t>();
  cuda::fill<std::uint8_t>(data, 4096, 1);
  cuda::fill<std::uint8_t>(data + far, 4096, 2);
  // The two ends, row by row in packs and byte by byte, and from the far one to the near one.
  DeviceVector<std::uint8_t> ends(2 * 4096);
  cuda::copy_strided(box_of({2, 4096}, {4096, 1}, {far, 1}), 1, ends.data(), data);
  std::vector<std::uint8_t> expected(2 * 4096, 1);
  std::fill(expected.begin() + 4096, expected.end(), std::uint8_t{2});
  CHECK(ends.host() == expected);
  cuda::copy_strided(box_of({2, 5}, {5, 1}, {far, 1}), 1, ends.data(), data);
  CHECK(ends.host()[4] == 1);
  CHECK(ends.host()[5] == 2);
  cuda::copy_strided(box_of({2, 7}, {far, 1}, {7, 1}), 1, data, ends.read());
  CHECK(at(far) == 2);
  CHECK(at(far + 6) == 1);
  if (cuda_status().emulated) return;  // what follows takes 2^27 threads
  cuda::fill<std::uint8_t>(data, n, 3);
  CHECK(at(0) == 3);
  CHECK(at(far - 4096) == 3);
  CHECK(at(n - 1) == 3);
  const std::int64_t rows = n / 4096;
  std::vector<std::uint8_t> row(4096);
  for (std::size_t i = 0; i < row.size(); ++i) row[i] = static_cast<std::uint8_t>(i * 7);
  const DeviceVector<std::uint8_t> drow(row);
  cuda::copy_strided(box_of({rows, 4096}, {4096, 1}, {0, 1}), 1, data, drow.read());
  for (std::int64_t i : {std::int64_t{0}, far - 1, far + 77, n - 1})
    CHECK(at(i) == static_cast<std::uint8_t>(i * 7));
}

TEST_CASE("shape: transpose") {
  if (!test::with_cuda()) return;
  const std::pair<std::int64_t, std::int64_t> sizes[] = {{1, 9}, {33, 64}, {100, 31}, {7, 3}};
  for (const auto& [rows, cols] : sizes) {
    const std::vector<float> x = random_values<float>(rows * cols, 1);
    std::vector<float> y(rows * cols);
    const DeviceVector<float> dx(x);
    DeviceVector<float> dy(rows * cols);
    cpu::transpose(rows, cols, x.data(), y.data());
    cuda::transpose(rows, cols, dx.read(), dy.data());
    CHECK(dy.host() == y);
  }
  cuda::transpose<double>(0, 4, nullptr, nullptr);
}

}  // namespace lipgrad
