#include <lipgrad/core/gradcheck.h>

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include <lipgrad/core/error.h>

#include "support/ops.h"

namespace lipgrad {
namespace {

using namespace testing;

// y = f(x) elementwise with a derivative that may be wrong.
struct Elementwise {
  static constexpr auto name = "elementwise";
  double (*f)(double);
  double (*derivative)(double);
  Tensor forward(Ctx& ctx, Inputs in) const {
    ctx.save(in[0]);
    return map(name, in[0], f);
  }
  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    gx[0] = map(name, ctx.saved(0), gy, [this](double x, double g) { return g * derivative(x); });
  }
};

GradcheckResult check(double (*f)(double), double (*derivative)(double), Tensor x,
                      GradcheckOptions options = {}) {
  return gradcheck(
      [&](Inputs in) {
        return apply(Elementwise{f, derivative}, in[0]);
      },
      {std::move(x)}, options);
}

double cube(double x) { return x * x * x; }
double relu(double x) { return x > 0 ? x : 0; }

TEST_CASE("gradcheck accepts right gradients, below the tolerance by far") {
  Generator rng{3};
  const GradcheckResult r = check(
      cube, [](double x) { return 3 * x * x; }, randn({4, 5}, f64, rng));
  CHECK_MESSAGE(r.ok, r.report());
  CHECK(r.worst < 1e-8);
  CHECK(r.kinks == 0);
  CHECK(r.report().substr(0, 13) == "ok: 1 tensor,");
}

struct OneWrong : Elementwise {
  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    gx[0] = map(name, ctx.saved(0), gy, [](double x, double g) { return g * 3 * x * x; });
    gx[0].mutable_data<double>()[7] *= 1.001;
  }
};

TEST_CASE("gradcheck refuses wrong gradients of many kinds") {
  Generator rng{3};
  const Tensor x = randn({4, 5}, f64, rng), large = randn({50, 60}, f64, rng);
  for (const Tensor& at : {x, large}) {
    CHECK(!check(
               cube, [](double x) { return 3.0001 * x * x; }, at)
               .ok);  // slightly off
    CHECK(!check(
               cube, [](double x) { return -3 * x * x; }, at)
               .ok);  // sign
    CHECK(!check(
               cube, [](double) { return std::nan(""); }, at)
               .ok);  // NaN
    CHECK(!check(
               cube, [](double x) { return x > 1.5 ? std::nan("") : 3 * x * x; }, at)
               .ok);  // NaN somewhere
    CHECK(!check(
               cube, [](double) { return HUGE_VAL; }, at)
               .ok);
    CHECK(!check(
               cube, [](double) { return 0.0; }, at)
               .ok);  // forgotten
  }
  CHECK(check(
            cube, [](double) { return 0.0; }, x)
            .failure == "input 0: the gradient is zero everywhere");
  // Wrong at one element of twenty only.
  CHECK(!gradcheck([](Inputs in) { return apply(OneWrong{{cube, nullptr}}, in[0]); }, {x}).ok);
}

struct Shares {
  static constexpr auto name = "shares";
  bool right;
  Tensor forward(Ctx& ctx, Inputs in) const {
    ctx.save(in[0]);
    double sum = 0;
    for (double v : in[0].to_vector<double>()) sum += v;
    return map(name, in[0], [&](double x) { return x / sum; });
  }
  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    double sum = 0, dot = 0;
    for (std::int64_t i = 0; i < gy.numel(); ++i) {
      sum += ctx.saved(0).data<double>()[i];
      dot += ctx.saved(0).data<double>()[i] * gy.data<double>()[i];
    }
    gx[0] = map(name, gy, [&](double g) { return right ? g / sum - dot / (sum * sum) : g - g; });
  }
};

TEST_CASE("gradcheck sees an error that a cotangent of ones would hide") {
  // y = x / sum(x): with ones as cotangent the output is constant, and any symmetric gradient
  // passes.
  Generator rng{3};
  const Tensor x = rand_uniform({6}, 1, 2, f64, rng);
  CHECK(gradcheck([](Inputs in) { return apply(Shares{true}, in[0]); }, {x}).ok);
  CHECK(!gradcheck([](Inputs in) { return apply(Shares{false}, in[0]); }, {x},
                   {.zero_gradient = true})
             .ok);
}

TEST_CASE("gradcheck moves away from kinks and counts them") {
  const GradcheckResult r = check(
      relu, [](double x) { return x > 0 ? 1.0 : 0.0; }, from_values<double>({4}, {1, 0, -1, 1e-7}));
  CHECK_MESSAGE(r.ok, r.report());
  CHECK(r.kinks >= 2);
  // A wrong gradient does not hide behind kinks.
  CHECK(!check(
             relu, [](double x) { return x > 0 ? 2.0 : 0.0; },
             from_values<double>({4}, {1, 0, -1, 1e-7}))
             .ok);
}

TEST_CASE("gradcheck checks a module's parameters, and refuses f32") {
  struct Net : Module {
    Parameter w{
        *this, "w", {3}, [](Tensor& value, Generator& rng) { value = randn({3}, f32, rng); }};
  } net;
  Generator rng{3};
  net.initialize(rng);
  const auto f = [&](Inputs in) { return product(product(in[0], net.w), net.w); };
  CHECK_THROWS_WITH_AS(gradcheck(f, {randn({3}, f64, rng)}, net),
                       "gradcheck: parameter 'w' is f32; call to(f64) on the module", Error);
  net.to(f64);
  const GradcheckResult r = gradcheck(f, {randn({3}, f64, rng)}, net);
  CHECK_MESSAGE(r.ok, r.report());
  CHECK(r.errors.size() == 2);
}

}  // namespace
}  // namespace lipgrad
