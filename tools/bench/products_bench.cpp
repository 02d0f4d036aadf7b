#include <algorithm>

#include <lipgrad/core/blas.h>
#include <lipgrad/core/csr_matrix.h>
#include <lipgrad/ops/kernels/spmm.h>

#include "bench.h"

namespace lipgrad::bench {
namespace {

// Arguments: transposes (0 NN, 1 NT, 2 TN), m, n, k, threads.
void gemm_f32(benchmark::State& state) {
  const bool trans_a = state.range(0) == 2, trans_b = state.range(0) == 1;
  const std::int64_t m = state.range(1), n = state.range(2), k = state.range(3);
  const Threads threads(state.range(4));
  const Tensor a = normal({m, k}), b = normal({k, n});
  Tensor c = empty({m, n});
  time(state, [&] {
    gemm<float>(trans_a, trans_b, m, n, k, 1, a.data<float>(), trans_a ? m : k, b.data<float>(),
                trans_b ? k : n, 0, c.mutable_data<float>(), n);
  });
  state.counters["flop/s"] = per_second(2.0 * double(m) * double(n) * double(k));
}

void gemm_shapes(benchmark::internal::Benchmark* b) {
  for (std::int64_t threads : {1, 2}) {
    b->Args({1, 784, 3072, 768, threads});  // a vision transformer's first MLP layer
    b->Args({0, 784, 768, 3072, threads});  // and the gradients of its input
    b->Args({2, 3072, 768, 784, threads});  // and weight
    b->Args({0, 2000, 2000, 2000, threads});
    b->Args({1, 2708, 64, 1433, threads});  // a GAT's first layer on Cora, dense
    b->Args({1, 2708, 7, 64, threads});     // its second layer
    b->Args({0, 2708, 64, 7, threads});
    b->Args({2, 7, 64, 2708, threads});
    b->Args({1, 169343, 128, 128, threads});  // ogbn-arxiv
    b->Args({2, 128, 128, 169343, threads});
    b->Args({0, 64, 64, 64, threads});
  }
}
BENCHMARK(gemm_f32)->Apply(gemm_shapes)->UseRealTime()->Unit(benchmark::kMicrosecond);

// Arguments: batch, tokens, features, threads. The scores of windows or heads.
void batched_scores_f32(benchmark::State& state) {
  const std::int64_t batch = state.range(0), t = state.range(1), d = state.range(2);
  const Threads threads(state.range(3));
  const Tensor q = normal({batch, t, d}), k = normal({batch, t, d});
  Tensor s = empty({batch, t, t});
  time(state, [&] {
    gemm_batched<float>(batch, false, true, t, t, d, 1, q.data<float>(), d, t * d, k.data<float>(),
                        d, t * d, 0, s.mutable_data<float>(), t, t * t);
  });
  state.counters["flop/s"] = per_second(2.0 * double(batch) * double(t) * double(t) * double(d));
}
BENCHMARK(batched_scores_f32)
    ->Args({192, 49, 32, 1})
    ->Args({192, 49, 32, 2})
    ->Args({48, 197, 64, 1})
    ->Args({48, 197, 64, 2})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

// Arguments: rows, columns, entries a row, features, threads. Random columns.
void spmm_f32(benchmark::State& state) {
  const std::int64_t rows = state.range(0), cols = state.range(1), each = state.range(2);
  const std::int64_t features = state.range(3), nnz = rows * each;
  const Threads threads(state.range(4));
  Generator rng{1};
  std::vector<std::int32_t> columns(nnz);
  const Tensor random = rand_int({nnz}, cols, rng);
  std::transform(random.data<std::int64_t>(), random.data<std::int64_t>() + nnz, columns.begin(),
                 [](std::int64_t column) { return static_cast<std::int32_t>(column); });
  std::vector<std::int64_t> offsets(rows + 1);
  for (std::int64_t i = 0; i <= rows; ++i) offsets[i] = i * each;
  const Tensor values = normal({nnz}), x = normal({cols, features});
  Tensor y = empty({rows, features});
  time(state, [&] {
    cpu::spmm<float>(rows, cols, nnz, 1, features, offsets.data(), columns.data(), nullptr,
                     values.data<float>(), x.data<float>(), features, y.mutable_data<float>(),
                     features);
  });
  state.counters["flop/s"] = per_second(2.0 * double(nnz) * double(features));
  // What is gathered and written, were nothing in the cache.
  state.counters["byte/s"] = per_second(4.0 * double(nnz + rows) * double(features));
}
BENCHMARK(spmm_f32)
    ->Args({2708, 1433, 18, 64, 1})  // Cora's bag of words
    ->Args({2708, 1433, 18, 64, 2})
    ->Args({169343, 169343, 14, 128, 1})  // ogbn-arxiv's edges
    ->Args({169343, 169343, 14, 128, 2})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace lipgrad::bench
