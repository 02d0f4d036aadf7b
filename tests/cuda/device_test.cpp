// Tensors, memory, copies and errors on CUDA devices.
#include <lipgrad/core/device.h>

#include <limits>
#include <string>
#include <thread>

#include <doctest/doctest.h>

#include <lipgrad/core/csr_matrix.h>
#include <lipgrad/core/error.h>
#include <lipgrad/core/memory.h>
#include <lipgrad/core/random.h>
#include <lipgrad/core/runtime.h>
#include <lipgrad/core/tape.h>
#include <lipgrad/graph/graph.h>
#include <lipgrad/ops/elementwise.h>
#include <lipgrad/ops/reduce.h>
#include <lipgrad/ops/shape.h>

#include "cuda/kernel_test.h"

namespace lipgrad {

TEST_CASE("tensors go to the device and come back, bit for bit") {
  if (!test::with_cuda()) return;
  const Device device = cuda_device();
  Generator rng{1};
  // The last one is larger than what is staged at a time.
  for (const Shape& shape : {Shape{}, Shape{0, 3}, Shape{1}, Shape{33, 7}, Shape{3, 1000003}}) {
    const Tensor x = randn(shape, f32, rng);
    const Tensor on = x.to(device);
    CHECK(on.device() == device);
    CHECK(bitwise_equal(on, x));
    CHECK(bitwise_equal(on.clone().to(cpu_device), x));
    CHECK(on.to_vector<float>() == x.to_vector<float>());
  }
  for (const DType dtype : {f32, f64, i32, i64, u8}) {
    const Tensor x = full({5, 7}, 3, dtype, device);
    CHECK(bitwise_equal(x, full({5, 7}, 3, dtype)));
    CHECK(x.alias({2, 7}, 7).to(cpu_device).numel() == 14);
    CHECK(ones({}, dtype, device).item() == 1);
    for (const DType to : {f32, f64, i32, i64, u8})
      CHECK(bitwise_equal(x.to(to), full({5, 7}, 3, to)));
  }
  CHECK(zeros({3}, f32, device).str() == "Tensor(f32, (3), cuda:0) [0, 0, 0]");
}

TEST_CASE("transfer carries gradients between devices") {
  if (!test::with_cuda()) return;
  Generator rng{2};
  Tape tape;
  const Tensor x = tape.watch(randn({4, 3}, f64, rng));
  CHECK_THROWS_WITH_AS(x.to(cuda_device()), doctest::Contains("use transfer()"), Error);
  const Tensor y = transfer(square(transfer(x, cuda_device())), cpu_device);
  const Tensor g = tape.grad(sum(y), {x})[0];
  CHECK(g.device() == cpu_device);
  CHECK(bitwise_equal(g, mul(x.detach(), 2)));
}

TEST_CASE("devices that are not there, and operands on different ones, are told") {
  CHECK(parse_device("cpu") == cpu_device);
  for (const char* text : {"gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:0x", "cuda0", ""})
    CHECK_THROWS_WITH_AS(parse_device(text), doctest::Contains("expected cpu, cuda or cuda:0"),
                         Error);
  if (!test::with_cuda()) return;
  CHECK(parse_device("cuda") == cuda_device());
  CHECK(parse_device("cuda:0") == cuda_device());
  CHECK_THROWS_WITH_AS(parse_device("cuda:63"), doctest::Contains("this machine has"), Error);
  CHECK_THROWS_WITH_AS(empty({2}, f32, cuda_device(1000)), doctest::Contains("cuda:1000"), Error);
  CHECK_THROWS_WITH_AS(add(ones({2}), ones({2}, f32, cuda_device())),
                       "add: inputs on cpu and cuda:0; move one with to()", Error);
}

TEST_CASE("memory is counted; when it runs out, the largest saved tensors are named") {
  if (!test::with_cuda()) return;
  const Device device = cuda_device();
  const memory::Counters before = memory::counters(device);
  memory::reset_peak(device);
  {
    const Tensor x = empty({1000}, f32, device);
    const Tensor y = empty({500}, f64, device);
    CHECK(memory::counters(device).live == before.live + 8000);
  }
  CHECK(memory::counters(device).live == before.live);
  CHECK(memory::counters(device).peak == before.live + 8000);
  memory::release_cached(device);
  CHECK(memory::counters(device).cached == 0);

  Tape tape;
  const Tensor x = tape.watch(ones({30, 50}, f32, device));
  const Tensor y = log(add(x, 1.0));
  std::string message;
  try {
    empty({std::int64_t{1} << 50}, f32, device);
  } catch (const Error& error) {
    message = error.what();
  }
  CAPTURE(message);
  CHECK(message.find("out of memory: 4503599627370496 bytes asked for") != std::string::npos);
  CHECK(message.find("6000 bytes f32 (30, 50) of log") != std::string::npos);
  // And it goes on.
  CHECK(sum(y).item() == doctest::Approx(1500 * std::log(2)));
}

TEST_CASE("threads may use a device side by side") {
  if (!test::with_cuda()) return;
  double sums[3] = {};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&, t] {
      Generator rng(static_cast<std::uint64_t>(t));
      for (int k = 0; k < 5; ++k) {
        const Tensor x = randn({257}, f64, rng);
        sums[t] += sum(square(x.to(cuda_device()))).item() - sum(square(x)).item();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const double difference : sums) CHECK(std::abs(difference) < 1e-10);
}

TEST_CASE("graphs and sparse matrices on a device") {
  if (!test::with_cuda()) return;
  const Device device = cuda_device();
  const Graph graph(4, from_values<std::int64_t>({5, 2}, {0, 1, 1, 2, 3, 2, 2, 2, 0, 1}));
  const Graph there = graph.to(device);
  CHECK(there.device() == device);
  CHECK(there.num_edges() == 5);
  CHECK(graph.to(device).pattern() == there.pattern());  // copied once
  CHECK(there.to(cpu_device).pattern() == graph.pattern());
  const auto same = [](const Tensor& a, const Tensor& b) {
    return a.device() == cuda_device() && bitwise_equal(a, b);
  };
  CHECK(same(there.sources(), graph.sources()));
  CHECK(same(there.reverse().offsets(), graph.reverse().offsets()));
  CHECK(same(there.reverse_order(), graph.reverse_order()));
  CHECK(same(there.destinations(), graph.destinations()));
  CHECK(same(there.in_degrees(), graph.in_degrees()));
  CHECK(same(there.out_degrees(), graph.out_degrees()));
  CHECK(same(there.edge_order(), graph.edge_order()));
  CHECK(there.num_self_loops() == 1);
  CHECK(same(there.with_self_loops().sources(), graph.with_self_loops().sources()));
  const std::vector<Graph> two{there, there};
  CHECK(
      same(Graph::batch(two).sources(), Graph::batch(std::vector<Graph>{graph, graph}).sources()));
  CHECK_THROWS_AS(Graph::batch(std::vector<Graph>{graph, there}), Error);
  CHECK_THROWS_AS(Graph::batch(std::vector<Graph>{there, graph}), Error);

  const CsrMatrix sparse = CsrMatrix::from_dense(from_values<float>({2, 3}, {0, 1, 0, 2, 0, 3}));
  const CsrMatrix moved = sparse.to(device);
  CHECK(same(moved.to_dense(), sparse.to_dense()));
  CHECK(same(CsrMatrix::from_dense(moved.to_dense()).values(), sparse.values()));
  CHECK_THROWS_WITH_AS(CsrMatrix(sparse.pattern(), moved.values()),
                       "csr: values on cuda:0, the pattern on cpu", Error);
  // A pattern made of device tensors is checked like any other.
  CHECK_THROWS_WITH_AS(CsrPattern(2, 3, moved.pattern().offsets(),
                                  from_values<std::int32_t>({3}, {1, 0, 7}).to(device)),
                       "csr: column 7 of entry 2 is not in [0, 3)", Error);
}

TEST_CASE("two devices: each has its own memory, and operands must share one") {
  if (!test::with_cuda()) return;
  if (cuda_status().devices.size() < 2) {
    MESSAGE("skipped: there is one CUDA device only");
    return;
  }
  const Device first = cuda_device(0), second = cuda_device(1);
  Generator rng{4};
  const Tensor x = randn({100, 33}, f64, rng), a = x.to(first), b = a.to(second);
  CHECK(b.device() == second);
  CHECK(bitwise_equal(b, x));
  CHECK(bitwise_equal(exp(b), exp(a)));
  CHECK_THROWS_WITH_AS(add(a, b), doctest::Contains("inputs on cuda:0 and cuda:1"), Error);
  const memory::Counters before = memory::counters(second);
  const Tensor more = empty({1000}, f64, second);
  CHECK(memory::counters(second).live == before.live + 8000);
  Tape tape;
  const Tensor w = tape.watch(a);
  const Tensor g = tape.grad(transfer(sum(square(transfer(w, second))), first), {w})[0];
  CHECK(g.device() == first);
  CHECK(bitwise_equal(g, mul(a, 2.0)));
}

TEST_CASE("anomaly mode finds a NaN on the device") {
  if (!test::with_cuda()) return;
  Tape tape({.anomaly = true});
  const Tensor x = tape.watch(full({40}, -1, f32, cuda_device()));
  CHECK_THROWS_WITH_AS(log(x), doctest::Contains("log"), Error);
}

}  // namespace lipgrad
