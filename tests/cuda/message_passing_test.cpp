#include <lipgrad/core/error.h>
#include <lipgrad/core/kernels/accumulate.h>
#include <lipgrad/graph/kernels/edge_softmax.h>
#include <lipgrad/graph/kernels/message_passing.h>
#include <lipgrad/graph/kernels/segment.h>
#include <lipgrad/ops/kernels/spmm.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "cuda/kernel_test.h"

// The kernels of message passing on structures that the catalogue does not have: hubs that begin
// and end where pieces do, every number of columns, NaN and infinities.

namespace lipgrad {
namespace {

using test::DeviceVector;
using test::difference;
using test::tolerance;

struct Rows {
  std::int64_t rows, edges;
  std::vector<std::int64_t> offsets{0}, order;
  std::vector<std::int32_t> columns;  // ascending within a row, below `rows`

  explicit Rows(const std::vector<int>& counts) : rows(static_cast<std::int64_t>(counts.size())) {
    std::mt19937 rng(5);
    for (const int count : counts) {
      for (int k = 0; k < count; ++k)
        columns.push_back(static_cast<std::int32_t>(rng() % static_cast<std::uint64_t>(rows)));
      std::sort(columns.end() - count, columns.end());
      offsets.push_back(static_cast<std::int64_t>(columns.size()));
    }
    edges = offsets.back();
    order.resize(static_cast<std::size_t>(edges));
    for (std::int64_t e = 0; e < edges; ++e) order[e] = edges - 1 - e;
  }
};

const std::vector<Rows>& structures() {
  static const std::vector<Rows> all{
      Rows({}),
      Rows({0, 0, 0}),
      Rows({3, 0, 1, 7, 40, 2, 0, 0, 31, 33, 64, 1}),
      Rows({256, 257, 0, 255, 1, 2100, 300, 0, 0, 3}),
      Rows({0, 512, 0, 768, 300, 20, 300}),
  };
  return all;
}

template <class T>
void check(const Rows& g, std::int64_t width) {
  CAPTURE(g.rows);
  CAPTURE(g.edges);
  CAPTURE(width);
  const DeviceVector<std::int64_t> offsets(g.offsets), order(g.order);
  const DeviceVector<std::int32_t> columns(g.columns);
  const auto per_edge = random_values<T>(g.edges * width, 1),
             more = random_values<T>(g.edges * width, 2),
             per_row = random_values<T>(g.rows * width, 3),
             other = random_values<T>(g.rows * width, 4);
  const DeviceVector<T> edge(per_edge), edge2(more), row(per_row), row2(other);
  const auto same = [](const auto& got, const auto& expected) {
    CHECK(difference(got, expected) <= tolerance<T>);
  };
  const std::vector<T> rows_blank(g.rows * width, T(77)), edges_blank(g.edges * width, T(77));
  const auto on_rows = [&](auto&& cpu_kernel, auto&& cuda_kernel) {
    std::vector<T> expected = rows_blank;
    cpu_kernel(expected.data());
    DeviceVector<T> y(rows_blank), again(rows_blank);
    cuda_kernel(y.data());
    cuda_kernel(again.data());
    same(y.host(), expected);
    CHECK(y.host() == again.host());
    return expected;
  };
  const auto on_edges = [&](auto&& cpu_kernel, auto&& cuda_kernel) {
    std::vector<T> expected = edges_blank;
    cpu_kernel(expected.data());
    DeviceVector<T> y(edges_blank), again(edges_blank);
    cuda_kernel(y.data());
    cuda_kernel(again.data());
    same(y.host(), expected);
    CHECK(y.host() == again.host());
    return expected;
  };

  for (const bool mean : {false, true})
    for (const bool ordered : {false, true})
      on_rows(
          [&](T* y) {
            cpu::segment_sum<T>(g.rows, g.edges, width, g.offsets.data(),
                                ordered ? g.order.data() : nullptr, mean, per_edge.data(), y);
          },
          [&](T* y) {
            cuda::segment_sum<T>(g.rows, g.edges, width, offsets.read(),
                                 ordered ? order.read() : nullptr, mean, edge.read(), y);
          });
  const std::vector<T> lse = on_rows(
      [&](T* y) {
        cpu::segment_logsumexp<T>(g.rows, g.edges, width, g.offsets.data(), per_edge.data(), y);
      },
      [&](T* y) {
        cuda::segment_logsumexp<T>(g.rows, g.edges, width, offsets.read(), edge.read(), y);
      });
  const DeviceVector<T> device_lse(lse);
  on_edges(
      [&](T* y) {
        cpu::segment_logsumexp_backward<T>(g.rows, g.edges, width, g.offsets.data(),
                                           per_edge.data(), lse.data(), per_row.data(), y);
      },
      [&](T* y) {
        cuda::segment_logsumexp_backward<T>(g.rows, g.edges, width, offsets.read(), edge.read(),
                                            device_lse.read(), row.read(), y);
      });
  for (const bool mean : {false, true})
    on_edges(
        [&](T* y) {
          cpu::segment_spread<T>(g.rows, g.edges, width, g.offsets.data(), mean, per_row.data(), y);
        },
        [&](T* y) {
          cuda::segment_spread<T>(g.rows, g.edges, width, offsets.read(), mean, row.read(), y);
        });
  for (const bool both : {false, true})
    on_edges(
        [&](T* y) {
          cpu::edge_ends<T>(g.rows, g.edges, width, g.offsets.data(), g.columns.data(),
                            per_row.data(), both ? other.data() : nullptr, y);
        },
        [&](T* y) {
          cuda::edge_ends<T>(g.rows, g.edges, width, offsets.read(), columns.read(), row.read(),
                             both ? row2.read() : nullptr, y);
        });
  const std::vector<T> soft = on_edges(
      [&](T* y) {
        cpu::edge_softmax<T>(g.rows, g.edges, width, g.offsets.data(), per_edge.data(), y);
      },
      [&](T* y) { cuda::edge_softmax<T>(g.rows, g.edges, width, offsets.read(), edge.read(), y); });
  const DeviceVector<T> device_soft(soft);
  on_edges(
      [&](T* y) {
        cpu::edge_softmax_backward<T>(g.rows, g.edges, width, g.offsets.data(), soft.data(),
                                      more.data(), y);
      },
      [&](T* y) {
        cuda::edge_softmax_backward<T>(g.rows, g.edges, width, offsets.read(), device_soft.read(),
                                       edge2.read(), y);
      });

  // Largest ones: the same elements, and the same ones chosen, with NaN and equal ones among them.
  std::vector<T> uneven = per_row, uneven_edges = per_edge;
  for (std::size_t i = 0; i < uneven.size(); i += 3) uneven[i] = T(2);
  for (std::size_t i = 0; i < uneven.size(); i += 7)
    uneven[i] = std::numeric_limits<T>::quiet_NaN();
  for (std::size_t i = 0; i < uneven_edges.size(); i += 2) uneven_edges[i] = T(2);
  for (std::size_t i = 0; i < uneven_edges.size(); i += 41)
    uneven_edges[i] = std::numeric_limits<T>::quiet_NaN();
  const DeviceVector<T> device_uneven(uneven), device_uneven_edges(uneven_edges);
  std::vector<std::int32_t> argmax(g.rows * width);
  std::vector<std::int64_t> argmax_edge(g.rows * width);
  DeviceVector<std::int32_t> device_argmax(g.rows * width);
  DeviceVector<std::int64_t> device_argmax_edge(g.rows * width);
  on_rows(
      [&](T* y) {
        cpu::neighbor_max<T>(g.rows, g.edges, width, g.offsets.data(), g.columns.data(),
                             per_row.data(), y, nullptr);
      },
      [&](T* y) {
        cuda::neighbor_max<T>(g.rows, g.edges, width, offsets.read(), columns.read(), row.read(), y,
                              nullptr);
      });
  std::vector<T> top = rows_blank;
  DeviceVector<T> device_top(rows_blank);
  cpu::neighbor_max<T>(g.rows, g.edges, width, g.offsets.data(), g.columns.data(), uneven.data(),
                       top.data(), argmax.data());
  cuda::neighbor_max<T>(g.rows, g.edges, width, offsets.read(), columns.read(),
                        device_uneven.read(), device_top.data(), device_argmax.data());
  CHECK(difference(device_top.host(), top) == 0);
  CHECK(device_argmax.host() == argmax);
  cpu::segment_max<T>(g.rows, g.edges, width, g.offsets.data(), uneven_edges.data(), top.data(),
                      argmax_edge.data());
  cuda::segment_max<T>(g.rows, g.edges, width, offsets.read(), device_uneven_edges.read(),
                       device_top.data(), device_argmax_edge.data());
  CHECK(difference(device_top.host(), top) == 0);
  CHECK(device_argmax_edge.host() == argmax_edge);
  on_edges(
      [&](T* y) {
        cpu::segment_max_backward<T>(g.rows, g.edges, width, g.offsets.data(), argmax_edge.data(),
                                     per_row.data(), y);
      },
      [&](T* y) {
        cuda::segment_max_backward<T>(g.rows, g.edges, width, offsets.read(),
                                      device_argmax_edge.read(), row.read(), y);
      });
  // Any structure does for the reverse: argmax is compared with the row.
  for (std::size_t i = 0; i < argmax.size(); ++i) argmax[i] = static_cast<std::int32_t>(i % 5);
  const DeviceVector<std::int32_t> chosen(argmax);
  on_rows(
      [&](T* y) {
        cpu::neighbor_max_backward<T>(g.rows, g.edges, width, g.offsets.data(), g.columns.data(),
                                      argmax.data(), per_row.data(), y);
      },
      [&](T* y) {
        cuda::neighbor_max_backward<T>(g.rows, g.edges, width, offsets.read(), columns.read(),
                                       chosen.read(), row.read(), y);
      });
}

}  // namespace

TEST_CASE("message passing: rows of every length, columns of every number") {
  if (!test::with_cuda()) return;
  for (const Rows& g : structures())
    for (const std::int64_t width : {0, 1, 2, 5, 8, 31, 33, 70}) {
      if (g.edges > 2000 && width > 33) continue;
      check<float>(g, width);
      check<double>(g, width);
    }
}

TEST_CASE("edge_softmax, segment_logsumexp: infinities and NaN as on the CPU") {
  if (!test::with_cuda()) return;
  const float inf = std::numeric_limits<float>::infinity(),
              nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::int64_t> offsets{0, 3, 5, 5, 8, 10, 400};
  std::vector<float> x{1e4F, -inf, 1e4F, -inf, -inf, 1, nan, 2, inf, 3};
  x.resize(400, -1e4F);
  x[390] = 80;
  const DeviceVector<std::int64_t> device_offsets(offsets);
  const DeviceVector<float> device_x(x);
  std::vector<float> y(400), lse(6);
  DeviceVector<float> device_y(400), device_lse(6);
  cpu::edge_softmax<float>(6, 400, 1, offsets.data(), x.data(), y.data());
  cuda::edge_softmax<float>(6, 400, 1, device_offsets.read(), device_x.read(), device_y.data());
  CHECK(difference(device_y.host(), y) <= 1e-6);
  CHECK(y[0] == 0.5F);
  CHECK(y[3] == 0);
  CHECK(std::isnan(y[5]));
  CHECK(y[390] == 1);
  cpu::segment_logsumexp<float>(6, 400, 1, offsets.data(), x.data(), lse.data());
  cuda::segment_logsumexp<float>(6, 400, 1, device_offsets.read(), device_x.read(),
                                 device_lse.data());
  CHECK(difference(device_lse.host(), lse) <= 1e-6);
  CHECK(lse[1] == -inf);
  CHECK(lse[2] == 0);
  CHECK(lse[4] == inf);
}

TEST_CASE("message passing: rows beyond 2^31 elements") {
  if (!test::with_cuda()) return;
  constexpr std::int64_t width = 128, nodes = (std::int64_t{1} << 24) + 3;
  Tensor x;
  try {
    x = empty({nodes, width}, f32, cuda_device());
  } catch (const Error& error) {
    MESSAGE("skipped: ", error.what());
    return;
  }
  float* data = x.mutable_data<float>();
  const std::int64_t far = nodes - 2;
  cuda::fill<float>(data + far * width, width, 3);
  cuda::fill<float>(data + (far + 1) * width, width, 5);
  const DeviceVector<std::int64_t> offsets({0, 2, 3}), order({far, far + 1, far + 1});
  const DeviceVector<std::int32_t> columns(
      {std::int32_t(far), std::int32_t(far + 1), std::int32_t(far + 1)});
  DeviceVector<float> y(3 * width);
  DeviceVector<std::int32_t> argmax(2 * width);
  const auto check = [&](float first, float second) {
    const std::vector<float> got = y.host();
    CHECK(got[0] == first);
    CHECK(got[width - 1] == first);
    CHECK(got[2 * width - 1] == second);
  };
  cuda::segment_sum<float>(2, 3, width, offsets.read(), order.read(), false, data, y.data());
  check(8, 5);
  cuda::neighbor_max<float>(2, 3, width, offsets.read(), columns.read(), data, y.data(),
                            argmax.data());
  check(5, 5);
  CHECK(argmax.host()[0] == far + 1);
  cuda::edge_ends<float>(2, 3, width, offsets.read(), columns.read(), data, nullptr, y.data());
  check(3, 5);
  cuda::spmm<float>(2, nodes, 3, 4, width / 4, offsets.read(), columns.read(), nullptr, nullptr,
                    data, width, y.data(), width);
  check(8, 5);
  const DeviceVector<float> ones(std::vector<float>(2 * width, 1.0F));
  DeviceVector<float> dots(12);
  cuda::spmm_backward_values<float>(2, 3, 4, width / 4, offsets.read(), columns.read(), ones.read(),
                                    width, data, width, dots.data());
  CHECK(dots.host() == std::vector<float>{96, 96, 96, 96, 160, 160, 160, 160, 160, 160, 160, 160});
}

}  // namespace lipgrad
