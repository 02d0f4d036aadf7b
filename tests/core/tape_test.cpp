#include <lipgrad/core/tape.h>

#include <doctest/doctest.h>

#include <limits>
#include <thread>

#include <lipgrad/core/error.h>
#include <lipgrad/core/memory.h>
#include <lipgrad/core/module.h>
#include <lipgrad/core/recompute.h>

#include "support/ops.h"

namespace lipgrad {
namespace {

using namespace testing;

void set_to_two(Tensor& value, Generator&) {
  copy_into(value, full(value.shape(), 2, value.dtype()));
}

struct Net : Module {
  Parameter w{*this, "w", {2}, set_to_two, f64};
};

Tensor vec(std::initializer_list<double> values) {
  return from_values<double>({static_cast<std::int64_t>(values.size())}, values);
}

TEST_CASE("backward adds into the gradients of parameters") {
  Net net;
  Generator rng{1};
  CHECK_THROWS_WITH_AS(
      net.w.value(),
      "parameter 'w' (2) has no value: call initialize() on the model or load a checkpoint", Error);
  net.initialize(rng);
  for (int pass = 1; pass <= 2; ++pass) {
    Tape tape;
    const Tensor y = total(product(net.w, product(net.w, vec({3, 5}))));
    CHECK(y.item() == 32);
    tape.backward(y);
    CHECK(net.w.grad().to_vector<double>() == std::vector<double>{12.0 * pass, 20.0 * pass});
  }
  net.zero_grad();
  CHECK(!net.w.grad().defined());
}

TEST_CASE("an input used twice, and gradients that share storage") {
  Net net;
  Generator rng{1};
  net.initialize(rng);
  Tape tape;
  const Tensor y = add2(net.w, net.w);  // both gradients are the same tensor
  const Tensor z = total(add2(y, y));
  tape.backward(z);
  CHECK(net.w.grad().to_vector<double>() == std::vector<double>{4, 4});
}

TEST_CASE("grad leaves grad() alone and computes only what is asked for") {
  Net net;
  Generator rng{1};
  net.initialize(rng);
  Tape tape;
  const Tensor x = tape.watch(vec({1, 2})), unused = tape.watch(vec({7}));
  const Tensor y = product(x, net.w);
  const std::vector<Tensor> g = tape.grad(y, {x, y, unused}, vec({10, 100}), {.retain = true});
  CHECK(g[0].to_vector<double>() == std::vector<double>{20, 200});
  CHECK(g[1].to_vector<double>() == std::vector<double>{10, 100});
  CHECK(g[2].to_vector<double>() == std::vector<double>{0});
  CHECK(!net.w.grad().defined());
  CHECK(tape.grad(y, {net.w}, vec({1, 1}))[0].to_vector<double>() == std::vector<double>{1, 2});
  CHECK_THROWS_WITH_AS(tape.backward(total(y)),
                       doctest::Contains("freed by an earlier backward pass"), Error);
}

TEST_CASE("broadcast gradients are summed back") {
  Tape tape;
  const Tensor x = tape.watch(vec({1, 2, 3})), b = tape.watch(vec({4}));
  const std::vector<Tensor> g = tape.grad(add2(x, b), {x, b}, vec({1, 10, 100}));
  CHECK(g[0].to_vector<double>() == std::vector<double>{1, 10, 100});
  CHECK(g[1].to_vector<double>() == std::vector<double>{111});
}

TEST_CASE("several outputs, one of them unused") {
  Tape tape;
  const Tensor x = tape.watch(vec({0.5}));
  const std::vector<Tensor> both = apply(SinCos{}, x);
  CHECK(tape.grad(both[0], {x}, {}, {.retain = true})[0].item() == doctest::Approx(std::cos(0.5)));
  CHECK(tape.grad(both[1], {x}, {}, {.retain = true})[0].item() == doctest::Approx(-std::sin(0.5)));
  CHECK(tape.grad(product(both[0], both[1]), {x})[0].item() == doctest::Approx(std::cos(1.0)));
}

TEST_CASE("misuse is an error that says what happened") {
  Net net;
  Generator rng{1};
  net.initialize(rng);
  Tensor escaped;
  {
    Tape tape;
    const Tensor y = product(net.w, net.w);
    escaped = y;
    CHECK_THROWS_WITH_AS(
        tape.backward(y),
        "backward: the output (2) has 2 elements; reduce it to one, or give a cotangent", Error);
    CHECK_THROWS_WITH_AS(tape.backward(total(vec({1}))),
                         doctest::Contains("depends on nothing that this tape watches"), Error);
    CHECK_THROWS_WITH_AS(Tensor(y).mutable_data<double>(),
                         doctest::Contains("is a value of a tape"), Error);
    {
      Tape inner;
      CHECK_THROWS_WITH_AS(product(y, y),
                           "product: input (2) belongs to an enclosing tape; detach() it or "
                           "compute it on the inner tape",
                           Error);
      CHECK(product(y.detach(), net.w).to_vector<double>() == std::vector<double>{8, 8});
    }
    // An error leaves no trace, and the outer tape records again.
    const std::int64_t ops = tape.num_ops();
    CHECK_THROWS_AS(product(net.w, vec({1, 2, 3})), Error);
    CHECK(tape.num_ops() == ops);
    tape.backward(total(y));
    CHECK(net.w.grad().defined());
  }
  CHECK(product(escaped, escaped).to_vector<double>() ==
        std::vector<double>{16, 16});  // nothing records
  Tape tape;
  CHECK_THROWS_WITH_AS(product(escaped, net.w),
                       doctest::Contains("belongs to a tape that has ended"), Error);
  CHECK(escaped.detach().to_vector<double>() == std::vector<double>{4, 4});
}

TEST_CASE("a saved tensor that changes before backward is found") {
  Net net;
  Generator rng{1};
  net.initialize(rng);
  Tensor constant = vec({1, 2});
  {
    Tape tape;
    const Tensor y = total(product(net.w, constant));
    constant.mutable_data<double>()[0] = 9;
    CHECK_THROWS_WITH_AS(
        tape.backward(y),
        doctest::Contains("product ((2), -) -> ((2)): the saved tensor 1 of shape (2) was changed"),
        Error);
  }
  Tape tape;
  const Tensor y = total(product(net.w, constant));
  net.w.mutable_data<double>()[0] = 9;
  CHECK_THROWS_AS(tape.backward(y), Error);
}

TEST_CASE("NoGrad and frozen parameters record nothing") {
  Net net;
  Generator rng{1};
  net.initialize(rng);
  Tape tape;
  {
    const NoGrad off;
    product(net.w, net.w);
    Tape inner;  // records although the outer one is paused
    product(net.w, net.w);
    CHECK(inner.num_ops() == 1);
  }
  CHECK(tape.num_ops() == 0);
  net.w.set_trainable(false);
  product(net.w, net.w);
  CHECK(tape.num_ops() == 0);
}

TEST_CASE("two threads record on their own tapes, with the same parameters") {
  Net net;
  Generator rng{1};
  net.initialize(rng);
  std::vector<double> found[2];
  const auto work = [&](int id) {
    for (int i = 0; i < 200; ++i) {
      Tape tape;
      const Tensor y = total(product(net.w, product(net.w, vec({1.0 + id, 3}))));
      found[id] = tape.grad(y, {net.w})[0].to_vector<double>();
    }
  };
  std::thread other(work, 1);
  work(0);
  other.join();
  CHECK(found[0] == std::vector<double>{4, 12});
  CHECK(found[1] == std::vector<double>{8, 12});
}

TEST_CASE("hooks see and replace complete gradients") {
  Net net;
  Generator rng{1};
  net.initialize(rng);
  Tape tape;
  const Tensor y = product(net.w, net.w);
  std::vector<double> seen;
  tape.on_gradient(y, [&](const Tensor& g) {
    seen = g.to_vector<double>();
    return map("scale", g, [](auto v) { return 10 * v; });
  });
  tape.on_gradient(net.w,
                   [](const Tensor& g) { return map("shift", g, [](auto v) { return v + 1; }); });
  tape.backward(total(add2(y, y)));
  CHECK(seen == std::vector<double>{2, 2});
  CHECK(net.w.grad().to_vector<double>() == std::vector<double>{81, 81});
}

TEST_CASE("anomaly mode names the op and its module") {
  Tape tape({.anomaly = true});
  const std::string path = "encoder.0";
  const ModuleScope scope(path);
  const Tensor x = tape.watch(vec({std::numeric_limits<double>::max()}));
  CHECK_THROWS_WITH_AS(
      product(x, x), "product in module encoder.0 ((1), (1)) -> ((1)): produced a NaN or infinity",
      Error);
}

TEST_CASE("dump and bytes_saved") {
  Net net;
  Generator rng{1};
  net.initialize(rng);
  Tape tape;
  const Tensor y = product(product(net.w, net.w), net.w);
  CHECK(tape.bytes_saved() == 16);  // the inner product; parameters do not count
  CHECK(tape.dump() ==
        "#0 %1 = product ((2), (2)) -> ((2)) [%0 %0], saves 2 tensors, 32 bytes\n"
        "#1 %2 = product ((2), (2)) -> ((2)) [%1 %0], saves 2 tensors, 32 bytes\n");
}

TEST_CASE("a chain of a million ops") {
  Tape tape;
  const Tensor x = tape.watch(vec({1}));
  const Tensor one = vec({1});
  Tensor y = x;
  for (int i = 0; i < 1000000; ++i) y = product(y, one);
  CHECK(tape.grad(y, {x})[0].item() == 1);
}

TEST_CASE("a tape in a loop takes no new memory from the system") {
  Net net;
  Generator rng{1};
  net.initialize(rng);
  const auto pass = [&] {
    Tape tape;
    Tensor y = net.w;
    for (int i = 0; i < 100; ++i) y = product(y, net.w);
    tape.backward(total(y));
    net.zero_grad();
  };
  pass();
  const memory::Counters before = memory::counters();
  for (int i = 0; i < 3; ++i) pass();
#ifndef __SANITIZE_ADDRESS__
  CHECK(memory::counters().allocations == before.allocations);
#endif
  CHECK(memory::counters().live == before.live);
}

struct Noisy {
  static constexpr auto name = "noisy";
  std::vector<int>* log = nullptr;
  int id = 0;
  Noisy(std::vector<int>* log, int id) : log(log), id(id) {}
  Noisy(Noisy&& other) noexcept : log(std::exchange(other.log, nullptr)), id(other.id) {}
  ~Noisy() {
    if (log) log->push_back(id);
  }
  Tensor forward(Ctx&, Inputs in) const {
    if (id < 0) throw Error("noisy");
    return in[0].clone();
  }
  void backward(Ctx&, const Tensor& gy, Grads gx) const { gx[0] = gy; }
};

TEST_CASE("ops with destructors are destroyed, in reverse, also after an error") {
  std::vector<int> log;
  {
    Tape tape;
    Tensor x = tape.watch(vec({1}));
    x = apply(Noisy(&log, 1), x);
    x = apply(Noisy(&log, 2), x);
    CHECK(log.empty());
    CHECK_THROWS_AS(apply(Noisy(&log, -1), x), Error);
    CHECK(log == std::vector<int>{-1});
  }
  CHECK(log == std::vector<int>{-1, 2, 1});
}

TEST_CASE("checkpoint gives the same values and gradients and saves only its inputs") {
  Net net;
  Generator rng{1};
  net.initialize(rng);
  const Tensor x0 = vec({1.5, -2});
  const auto block = [&](const Tensor& x) {
    Tensor y = product(x, randn({2}, f64, rng));
    for (int i = 0; i < 5; ++i) y = product(product(y, net.w), x);
    return y;
  };
  std::vector<Tensor> gradients[2];
  Tensor values[2];
  std::int64_t saved[2];
  std::uint64_t draws[2];
  for (int recompute : {0, 1}) {
    rng.restore(5, 0);
    net.zero_grad();
    Tape tape;
    const Tensor x = tape.watch(x0);
    const Tensor y =
        recompute ? checkpoint([&](Inputs in) { return block(in[0]); }, rng, x) : block(x);
    saved[recompute] = tape.bytes_saved();
    randn({1}, f64, rng);  // later draws do not disturb the replay
    gradients[recompute] = tape.grad(y, {x, net.w}, vec({1, 10}), {.retain = true});
    tape.backward(total(y));
    gradients[recompute].push_back(net.w.grad());
    values[recompute] = y.detach();
    draws[recompute] = rng.next_draw();
  }
  CHECK(bitwise_equal(values[0], values[1]));
  for (int i = 0; i < 3; ++i) CHECK(bitwise_equal(gradients[0][i], gradients[1][i]));
  CHECK(saved[1] == x0.nbytes());
  CHECK(saved[0] > saved[1]);
  CHECK(draws[0] == draws[1]);
}

}  // namespace
}  // namespace lipgrad
