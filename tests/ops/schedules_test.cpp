#include <lipgrad/ops/schedules.h>

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include <lipgrad/core/error.h>
#include <lipgrad/core/npz.h>
#include <lipgrad/ops/optimizers.h>
#include <support/data.h>

namespace lipgrad {
namespace {

struct Empty : Module {};

std::vector<double> golden_values(const std::string& name) {
  static const NpzFile file(test::golden("optimizers/torch.npz"));
  const NpyArray array = file.read(name);
  const auto values = array.values<double>();
  return {values.begin(), values.end()};
}

void check_rates(const std::string& name, Rate rate) {
  Empty net;
  Sgd optimizer{net, {.lr = 0.5}};
  LrSchedule schedule{optimizer, std::move(rate)};
  const std::vector<double> expected = golden_values("lr/" + name);
  for (std::size_t t = 0; t < expected.size(); ++t) {
    CHECK(std::abs(optimizer.lr() - expected[t]) < 1e-14);
    schedule.step();
  }
}

void check_plateau(const std::string& name, ReduceOnPlateauOptions options) {
  Empty net;
  Sgd optimizer{net, {.lr = 0.5}};
  ReduceOnPlateau schedule{optimizer, options};
  const std::vector<double> expected = golden_values("lr/" + name),
                            metrics = golden_values("metrics");
  for (std::size_t t = 0; t < metrics.size(); ++t) {
    schedule.step(metrics[t]);
    INFO(name, " step ", t);
    CHECK(std::abs(optimizer.lr() - expected[t + 1]) < 1e-15);
  }
}

}  // namespace

TEST_CASE("schedules: rates are those of PyTorch") {
  check_rates("step", step_decay({.every = 5, .factor = 0.3}));
  check_rates("cosine", cosine_decay({.steps = 20, .min_lr = 0.01}));
  check_rates("warmup_cosine", linear_warmup({.steps = 5, .start_factor = 0.1},
                                             cosine_decay({.steps = 15, .min_lr = 0.01})));
  check_plateau("plateau_min", {.factor = 0.5, .patience = 2});
  check_plateau("plateau_cooldown", {.factor = 0.1,
                                     .patience = 1,
                                     .threshold = 0.2,
                                     .relative = false,
                                     .cooldown = 2,
                                     .min_lr = 0.004});
  check_plateau("plateau_max", {.maximize = true, .factor = 0.5, .patience = 3});
}

TEST_CASE("schedules: a cosine stays at its end, a constant everywhere") {
  const Rate cosine = cosine_decay({.steps = 10, .min_lr = 0.25});
  CHECK(cosine.at(10, 1) == 0.25);
  CHECK(cosine.at(1000, 1) == 0.25);
  CHECK(cosine.at(5, 1) == doctest::Approx(0.625));
  CHECK(constant_rate().at(7, 0.125) == 0.125);
  const Rate warm = linear_warmup({.steps = 4, .start_factor = 0});
  CHECK(warm.kind == "warmup+constant");
  CHECK(warm.at(0, 1) == 0);
  CHECK(warm.at(1, 1) == 0.25);
  CHECK(warm.at(4, 1) == 1);
  CHECK_THROWS_AS(cosine_decay({}), Error);
  CHECK_THROWS_AS(step_decay({.every = 0}), Error);
  CHECK_THROWS_AS(linear_warmup({}), Error);
  Empty net;
  Sgd optimizer{net};
  CHECK_THROWS_AS((LrSchedule{optimizer, Rate{}}), Error);
  CHECK_THROWS_AS((ReduceOnPlateau{optimizer, {.factor = 1}}), Error);
}

TEST_CASE("schedules: their state goes over to a fresh one") {
  Empty net;
  const auto rate = [] { return linear_warmup({.steps = 3}, cosine_decay({.steps = 9})); };
  Sgd a{net, {.lr = 0.5}}, b{net, {.lr = 0.1}};
  LrSchedule from{a, rate()}, to{b, rate()};
  for (int t = 0; t < 5; ++t) from.step();
  to.load_state({from.kind(), from.state()});
  CHECK(b.lr() == a.lr());
  from.step();
  to.step();
  CHECK(b.lr() == a.lr());
  CHECK(to.steps() == 6);

  ReduceOnPlateau p{a, {.patience = 1}}, q{b, {.patience = 1}};
  CHECK_THROWS_WITH_AS(
      q.load_state({from.kind(), from.state()}),
      "plateau schedule: the state does not fit: state of warmup+cosine, the schedule is plateau",
      Error);
  CHECK_THROWS_WITH_AS(q.load_state({"plateau", {{"best", std::int64_t{1}}, {"bad_steps", 1.0}}}),
                       "plateau schedule: the state does not fit: missing bad_steps; missing best; "
                       "missing cooldown_left",
                       Error);
  p.step(1);
  p.step(2);
  q.load_state({p.kind(), p.state()});
  const double before = b.lr();
  q.step(2);  // the second bad step is the one too many
  CHECK(b.lr() == before * 0.1);
}

}  // namespace lipgrad
