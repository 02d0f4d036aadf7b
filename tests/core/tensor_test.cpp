#include <lipgrad/core/tensor.h>

#include <doctest/doctest.h>

#include <limits>
#include <thread>

#include <lipgrad/config.h>
#include <lipgrad/core/csr_matrix.h>
#include <lipgrad/core/error.h>
#include <lipgrad/core/memory.h>
#include <lipgrad/core/random.h>
#include <lipgrad/core/runtime.h>
#include <lipgrad/core/threads.h>

namespace lipgrad {
namespace {

TEST_CASE("shapes check their sizes") {
  CHECK(Shape{}.numel() == 1);
  CHECK(Shape{2, 0, 3}.numel() == 0);
  CHECK(Shape{2, 3}.str() == "(2, 3)");
  CHECK_THROWS_WITH_AS((Shape{2, -3}), "shape: negative size -3 in dimension 1", Error);
  const std::int64_t big = std::int64_t{1} << 40;
  CHECK_THROWS_WITH_AS((Shape{big, big}), doctest::Contains("more elements than fit in 64 bits"),
                       Error);
  CHECK_THROWS_AS((Shape{big, big, 0}), Error);  // partial products count too
  CHECK_THROWS_AS((Shape{1, 1, 1, 1, 1, 1, 1, 1, 1}), Error);
  CHECK(broadcast_shapes("add", {3, 1, 5}, {4, 1}) == Shape{3, 4, 5});
  CHECK_THROWS_WITH_AS(broadcast_shapes("add", {2, 3}, {4}),
                       "add: shapes (2, 3) and (4) do not broadcast", Error);
  CHECK(broadcasts_to({1, 3}, {5, 2, 3}));
  CHECK(!broadcasts_to({2, 3}, {1, 3}));
}

TEST_CASE("handles share, clones do not, and types are checked") {
  Tensor a = from_values<float>({2, 2}, {1, 2, 3, 4});
  Tensor b = a, c = a.clone();
  b.mutable_data<float>()[0] = 9;
  CHECK(a.data<float>()[0] == 9);
  CHECK(c.data<float>()[0] == 1);
  CHECK(a.alias({2}, 2).to_vector<float>() == std::vector<float>{3, 4});
  CHECK_THROWS_WITH_AS(a.alias({3}, 2), "alias: 3 elements from 2 on do not lie within (2, 2)",
                       Error);
  CHECK_THROWS_WITH_AS(a.data<double>(), "data: asked for f64 elements of a f32 tensor (2, 2)",
                       Error);
  CHECK_THROWS_WITH_AS(Tensor().data<float>(), "data: the tensor is undefined", Error);
  CHECK_THROWS_WITH_AS(a.item(), "item: expects one element, got (2, 2)", Error);
  CHECK_THROWS_WITH_AS(from_values<float>({3}, {1, 2}),
                       doctest::Contains("2 values given for shape (3)"), Error);
  if (!kWithCuda)
    CHECK_THROWS_WITH_AS(empty({2}, f32, {DeviceKind::cuda, 0}),
                         doctest::Contains("has no CUDA backend"), Error);
  CHECK_THROWS_WITH_AS(copy_into(a, from_values<float>({3}, {1, 2, 3})),
                       doctest::Contains("cannot copy"), Error);
  CHECK(a.to(i64).to_vector<std::int64_t>() == std::vector<std::int64_t>{9, 2, 3, 4});
  CHECK(a.str() == "Tensor(f32, (2, 2), cpu) [9, 2, 3, 4]");
  CHECK(full({}, 2.5, f64).item() == 2.5);
}

TEST_CASE("memory is counted, and an impossible size is an error") {
  const std::int64_t before = memory::counters().live;
  {
    const Tensor x = empty({1000, 1000});
    CHECK(memory::counters().live == before + 4000000);
    memory::reset_peak();
    { const Tensor y = empty({1000}, f64); }
    CHECK(memory::counters().peak == before + 4008000);
  }
  CHECK(memory::counters().live == before);
  CHECK_THROWS_AS(empty({std::int64_t{1} << 60}), Error);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  CHECK_THROWS_WITH_AS(empty({std::int64_t{1} << 57}), doctest::Contains("out of memory"), Error);
#endif
  memory::release_cached();
  CHECK(memory::counters().cached == 0);
}

TEST_CASE("tensors may be freed on another thread than they were made on") {
  for (int round = 0; round < 3; ++round) {
    std::vector<Tensor> made;
    std::thread maker([&] {
      for (int i = 0; i < 5000; ++i) made.push_back(full({i % 600}, i));
    });
    maker.join();
    std::thread user([&] {
      bool right = true;
      for (int i = 0; i < 5000; ++i)
        right &= i % 600 == 0 || made[i].data<float>()[i % 600 - 1] == static_cast<float>(i);
      CHECK(right);
      made.clear();
    });
    user.join();
  }
}

TEST_CASE(
    "accumulate sums over every pattern of broadcast dimensions, alike on any number of threads") {
  Generator rng{3};
  const int threads = num_threads();
  for (DType dtype : {f32, f64}) {
    for (const auto& [to, from] : std::vector<std::pair<Shape, Shape>>{{{}, {}},
                                                                       {{}, {100003}},
                                                                       {{1}, {3, 4}},
                                                                       {{700}, {300, 700}},
                                                                       {{300, 1}, {300, 700}},
                                                                       {{3, 1, 5, 1}, {3, 4, 5, 6}},
                                                                       {{1, 4, 1, 6}, {3, 4, 5, 6}},
                                                                       {{4, 1, 6}, {3, 4, 5, 6}},
                                                                       {{50, 60}, {50, 60}},
                                                                       {{1, 7}, {40000, 7}},
                                                                       {{7}, {0, 7}},
                                                                       {{2, 1, 3}, {2, 9, 3}}}) {
      const Tensor x = randn(from, dtype, rng), start = randn(to, dtype, rng);
      Tensor y[2];
      for (int k : {0, 1}) {
        set_num_threads(k + 1);
        y[k] = start.clone();
        runtime(cpu_device).accumulate(y[k], x);
      }
      CHECK(bitwise_equal(y[0], y[1]));
      // Against a plain sum in long double.
      std::vector<long double> sum(to.numel());
      const Tensor xd = x.to(f64), sd = start.to(f64), yd = y[0].to(f64);
      for (std::int64_t i = 0; i < to.numel(); ++i) sum[i] = sd.data<double>()[i];
      for (std::int64_t i = 0; i < from.numel(); ++i) {
        std::int64_t rest = i, at = 0, step = 1;
        for (int d = 1; d <= from.rank(); ++d) {
          const std::int64_t index = rest % from[from.rank() - d];
          rest /= from[from.rank() - d];
          if (d <= to.rank()) {
            if (to[to.rank() - d] != 1) at += index * step;
            step *= to[to.rank() - d];
          }
        }
        sum[at] += xd.data<double>()[i];
      }
      double worst = 0;
      for (std::int64_t i = 0; i < to.numel(); ++i)
        worst = std::max(worst, std::abs(yd.data<double>()[i] - static_cast<double>(sum[i])));
      CHECK(worst < (dtype == f32 ? 2e-4 : 1e-11));
    }
  }
  set_num_threads(threads);
}

TEST_CASE("sparse patterns refuse what does not fit, and transpose") {
  const auto pattern = [](std::vector<std::int64_t> offsets, std::vector<std::int32_t> columns) {
    return CsrPattern(static_cast<std::int64_t>(offsets.size()) - 1, 4,
                      from_vector({static_cast<std::int64_t>(offsets.size())}, offsets),
                      from_vector({static_cast<std::int64_t>(columns.size())}, columns));
  };
  CHECK_THROWS_WITH_AS(pattern({0, 2, 1, 3}, {0, 1, 2}), "csr: offsets descend at row 1: 2 to 1",
                       Error);
  CHECK_THROWS_WITH_AS(pattern({0, 1, 2}, {0, 4}), "csr: column 4 of entry 1 is not in [0, 4)",
                       Error);
  CHECK_THROWS_AS(pattern({0, 1, 2}, {0, -1}), Error);
  CHECK_THROWS_AS(pattern({1, 1, 2}, {0, 1}), Error);
  CHECK_THROWS_AS(pattern({0, 1, 3}, {0, 1}), Error);
  const CsrPattern p = pattern({0, 3, 3, 5}, {2, 0, 2, 0, 3});
  CHECK(p.transposed().rows() == 4);
  CHECK(p.transposed().offsets().to_vector<std::int64_t>() ==
        std::vector<std::int64_t>{0, 2, 2, 4, 5});
  CHECK(p.transposed().columns().to_vector<std::int32_t>() ==
        std::vector<std::int32_t>{0, 2, 0, 0, 2});
  CHECK(p.transposed_order().to_vector<std::int64_t>() == std::vector<std::int64_t>{1, 3, 0, 2, 4});
  const CsrMatrix m(p, from_values<double>({5}, {1, 2, 3, 4, 5}));
  CHECK(m.to_dense().to_vector<double>() ==
        std::vector<double>{2, 0, 4, 0, 0, 0, 0, 0, 4, 0, 0, 5});
  CHECK(CsrMatrix::from_dense(m.to_dense()).nnz() == 4);
  CHECK_THROWS_AS(CsrMatrix(p, full({4}, 1)), Error);
}

}  // namespace
}  // namespace lipgrad
