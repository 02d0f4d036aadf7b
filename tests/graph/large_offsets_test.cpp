#include <sys/mman.h>

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include <lipgrad/graph/kernels/edge_softmax.h>
#include <lipgrad/graph/kernels/message_passing.h>
#include <lipgrad/graph/kernels/segment.h>
#include <lipgrad/ops/kernels/spmm.h>

// ogbn-proteins has 39.6 million edges: with 256 features 1.0e10 numbers. Arrays of more than 2^32
// elements are addresses here that are reserved, and few of their pages are ever touched.

namespace lipgrad {
namespace {

template <class T>
class Reserved {
 public:
  explicit Reserved(std::int64_t count) : bytes_(static_cast<std::size_t>(count) * sizeof(T)) {
    void* at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) {
      MESSAGE("skipped: no ", bytes_ >> 30, " GiB of addresses");
    } else {
      data_ = static_cast<T*>(at);
    }
  }
  Reserved(const Reserved&) = delete;
  Reserved& operator=(const Reserved&) = delete;
  ~Reserved() {
    if (data_) munmap(data_, bytes_);
  }
  T* data() const { return data_; }

 private:
  std::size_t bytes_;
  T* data_ = nullptr;
};

// Two rows of three edges and one, behind 2^25 edges that no row has: with 256 numbers an edge, the
// first is element 2^33.
constexpr std::int64_t first = std::int64_t{1} << 25, width = 256, edges = first + 4;
const std::int64_t offsets[] = {first, first + 3, edges};

}  // namespace

TEST_CASE("message passing: edge values beyond 2^32 elements") {
  const Reserved<float> x(edges * width), y(edges * width), z(edges * width);
  if (!x.data() || !y.data() || !z.data()) return;
  const auto at = [](const Reserved<float>& a, std::int64_t e, std::int64_t c) -> float& {
    return a.data()[e * width + c];
  };
  for (std::int64_t e = first; e < edges; ++e)
    for (std::int64_t c = 0; c < width; ++c) at(x, e, c) = float((e - first + 1) * 2 + c % 3);
  const std::int64_t last = width - 1;  // c % 3 is 0 there
  std::vector<float> row(2 * width), out(2 * width);
  std::vector<std::int64_t> argmax(2 * width);

  cpu::segment_sum<float>(2, edges, width, offsets, nullptr, false, x.data(), row.data());
  CHECK(row[0] == 12);
  CHECK(row[2 * width - 1] == 8);
  cpu::segment_spread<float>(2, edges, width, offsets, true, row.data(), y.data());
  CHECK(at(y, first + 2, 0) == 4);
  CHECK(at(y, edges - 1, last) == 8);
  cpu::segment_max<float>(2, edges, width, offsets, x.data(), row.data(), argmax.data());
  CHECK(row[last] == 6);
  CHECK(argmax[last] == first + 2);
  CHECK(argmax[2 * width - 1] == first + 3);
  cpu::segment_max_backward<float>(2, edges, width, offsets, argmax.data(), row.data(), y.data());
  CHECK(at(y, first, last) == 0);
  CHECK(at(y, first + 2, last) == 6);
  cpu::segment_logsumexp<float>(2, edges, width, offsets, x.data(), row.data());
  CHECK(row[0] == doctest::Approx(std::log(std::exp(2) + std::exp(4) + std::exp(6))));
  cpu::segment_logsumexp_backward<float>(2, edges, width, offsets, x.data(), row.data(), row.data(),
                                         y.data());
  CHECK(at(y, edges - 1, last) == doctest::Approx(8));
  cpu::edge_softmax<float>(2, edges, width, offsets, x.data(), y.data());
  CHECK(at(y, first + 1, 0) == doctest::Approx(std::exp(4 - double(row[0]))));
  CHECK(at(y, edges - 1, last) == 1);
  cpu::edge_softmax_backward<float>(2, edges, width, offsets, y.data(), x.data(), z.data());
  CHECK(at(z, first, 0) + at(z, first + 1, 0) + at(z, first + 2, 0) == doctest::Approx(0));
  CHECK(at(z, first, 0) < -0.01);
  CHECK(at(z, edges - 1, last) == 0);

  // Ends of edges: the columns of these four, of 2^25 nodes; and orders of a reverse graph.
  const Reserved<std::int32_t> columns(edges);
  const Reserved<std::int64_t> order(edges);
  if (!columns.data() || !order.data()) return;
  for (std::int64_t e = first; e < edges; ++e) {
    columns.data()[e] = static_cast<std::int32_t>(e);
    order.data()[e] = e;
  }
  cpu::edge_ends<float>(2, edges, width, offsets, columns.data(), x.data(), nullptr, y.data());
  CHECK(at(y, first + 1, last) == 4);
  CHECK(at(y, edges - 1, 2) == 10);
  std::vector<std::int32_t> chosen(2 * width);
  cpu::neighbor_max<float>(2, edges, width, offsets, columns.data(), x.data(), row.data(),
                           chosen.data());
  CHECK(row[last] == 6);
  CHECK(chosen[last] == first + 2);
  cpu::segment_sum<float>(2, edges, width, offsets, order.data(), false, x.data(), row.data());
  CHECK(row[last] == 12);
  // The weights of four heads.
  for (std::int64_t e = first; e < edges; ++e)
    for (std::int64_t h = 0; h < 4; ++h) z.data()[e * 4 + h] = h == 3 ? 10 : 1;
  cpu::spmm<float>(2, edges, edges, 4, width / 4, offsets, columns.data(), order.data(), z.data(),
                   x.data(), width, out.data(), width);
  CHECK(out[0] == 12);
  CHECK(out[last] == 120);
  CHECK(out[2 * width - 1] == 80);
  const std::vector<float> ones(2 * width, 1.0F);
  cpu::spmm_backward_values<float>(2, edges, 4, width / 4, offsets, columns.data(), ones.data(),
                                   width, x.data(), width, y.data());
  CHECK(y.data()[first * 4] == 2 * 64 + 63);
  CHECK(y.data()[edges * 4 - 1] == 8 * 64 + 63);
  // The gradient of neighbor_max reads rows of targets.
  const Reserved<std::int32_t> best(edges * width);
  if (!best.data()) return;
  for (std::int64_t e = first; e < edges; ++e)
    for (std::int64_t c = 0; c < width; ++c) best.data()[e * width + c] = 1;
  cpu::neighbor_max_backward<float>(2, edges, width, offsets, columns.data(), best.data(), x.data(),
                                    row.data());
  CHECK(row[last] == 0);
  CHECK(row[2 * width - 1] == 8);
}

}  // namespace lipgrad
