// What one update of the weights is made of: accumulated gradients, clipping, rates, averages.
#include <lipgrad/models/trainer.h>

#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <optional>

#include <lipgrad/core/checkpoint.h>
#include <lipgrad/core/error.h>
#include <lipgrad/ops/elementwise.h>
#include <lipgrad/ops/init.h>
#include <lipgrad/ops/loss.h>
#include <lipgrad/ops/optimizers.h>
#include <lipgrad/ops/schedules.h>
#include <lipgrad/ops/weight_average.h>
#include <support/temporary_directory.h>

namespace lipgrad {
namespace {

struct Net : Module {
  Parameter w{*this, "w", {3}, init::constant(1), f64};
};

// Seven steps an epoch, each pulling w to a target of its own, with noise; the fourth has nothing
// to learn from.
struct Run {
  Net net;
  Generator rng{5};
  std::optional<Sgd> sgd;
  std::optional<LrSchedule> schedule;
  std::int64_t now = 0;
  bool noise = false;

  explicit Run(double lr = 0.5, bool leaves_out = false) {
    net.initialize(rng);
    sgd.emplace(net, SgdOptions{.lr = lr, .momentum = 0.5});
    schedule.emplace(*sgd, cosine_decay({.steps = 50}));
    task.steps = 7;
    task.begin_step = [this, leaves_out](std::int64_t step, Generator&) {
      now = step;
      return !(leaves_out && step == 3);
    };
  }
  Tensor target() const { return full({3}, static_cast<double>(now), f64); }
  Task task{net,
            [this](Mode mode) {
              Tensor w = net.w;
              if (noise) w = w + randn({3}, f64, mode.rng());
              return mse(w, target());
            },
            [this] {
              const double distance = std::abs(net.w.value().data<double>()[0] - 3);
              return std::vector<Measurement>{{"valid_accuracy", full({}, -distance, f64)},
                                              {"valid_loss", full({}, distance, f64)}};
            }};
  TrainResult train(TrainOptions options) {
    options.progress = false;
    return lipgrad::train(task, *sgd, &*schedule, rng, options);
  }
  double w() const { return net.w.value().data<double>()[0]; }
};

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_CASE("gradients of several steps make one update: their mean") {
  for (const bool leaves_out : {false, true}) {
    Run run(0.1, leaves_out);
    run.train({.epochs = 1, .select = Selection::last, .accumulate = 3});
    // Updates of steps 0-2, 3-5 and 6; d/dw mean((w - t)^2) = 2 (w - t) / 3 for each of three.
    double w = 1, m = 0;
    const auto update = [&](double gradient) {
      m = 0.5 * m + gradient;
      w -= 0.1 * m;
    };
    const auto pull = [&](double t) { return 2 * (w - t) / 3; };
    update((pull(0) + pull(1) + pull(2)) / 3);
    update(((leaves_out ? 0 : pull(3)) + pull(4) + pull(5)) / 3);
    update(pull(6));
    CHECK(run.w() == doctest::Approx(w).epsilon(1e-14));
    CHECK(run.sgd->steps() == 3);
  }
}

TEST_CASE("rates may move at every update, gradients be clipped") {
  Run run(0.5), by_hand(0.5);
  run.train({.epochs = 2,
             .select = Selection::last,
             .accumulate = 2,
             .clip_norm = 0.25,
             .schedule_per_update = true});
  CHECK(run.schedule->steps() == 8);
  double w = 1, m = 0;
  for (int update = 0; update < 8; ++update) {
    const double lr = 0.5 * (1 + std::cos(M_PI * update / 50)) / 2;
    const int first = 2 * (update % 4);
    const double target = first == 6 ? 6 : first + 0.5;
    double gradient = 2 * (w - target) / 3;
    const double norm = std::sqrt(3.0) * std::abs(gradient);
    if (norm > 0.25) gradient *= 0.25 / (norm + 1e-6);
    m = 0.5 * m + gradient;
    w -= lr * m;
  }
  CHECK(run.w() == doctest::Approx(w).epsilon(1e-14));
}

TEST_CASE("averaged weights are what is measured, chosen, left and saved") {
  test::TemporaryDirectory directory;
  Run run(0.3), by_hand(0.3);
  const TrainResult result = run.train(
      {.epochs = 3, .select = Selection::last, .out = directory.path(), .average_decay = 0.8});
  double average = 1;
  for (int epoch = 0; epoch < 3; ++epoch)
    for (by_hand.now = 0; by_hand.now < 7; ++by_hand.now) {
      Tape tape;
      tape.backward(by_hand.task.loss(Mode::train(by_hand.rng)));
      by_hand.sgd->set_lr(run.schedule ? 0.3 * (1 + std::cos(M_PI * epoch / 50)) / 2 : 0);
      by_hand.sgd->step();
      by_hand.sgd->zero_grad();
      average = 0.8 * average + 0.2 * by_hand.w();
    }
  CHECK(run.w() == doctest::Approx(average).epsilon(1e-13));
  CHECK(result.at_best("valid_loss") == std::abs(run.w() - 3));
  CHECK(CheckpointReader(directory / "best.lip").read("w").data<double>()[0] == run.w());
  const CheckpointReader last(directory / "last.lip");
  CHECK(last.read("w").data<double>()[0] == doctest::Approx(by_hand.w()).epsilon(1e-13));
  CHECK(last.read("w/average", TensorRole::state).data<double>()[0] == run.w());
}

TEST_CASE("with all of these a run that stops anywhere ends with the same bits") {
  for (const Selection select : {Selection::last, Selection::score}) {
    const TrainOptions options{.epochs = 6,
                               .select = select,
                               .resume = true,
                               .accumulate = 2,
                               .clip_norm = 1,
                               .schedule_per_update = true,
                               .average_decay = 0.7};
    test::TemporaryDirectory whole, parts;
    Run one(0.2, true);
    one.noise = true;
    TrainOptions whole_options = options;
    whole_options.out = whole.path();
    one.train(whole_options);
    std::int64_t done = 0;  // steps
    for (int run_number = 0;; ++run_number) {
      REQUIRE(run_number < 30);
      Run run(0.2, true);
      run.noise = true;
      run.task.start = [&](std::int64_t epoch, std::int64_t step) {
        CHECK(7 * epoch + step == done);
        done = 7 * epoch + step;
      };
      const auto begin_step = run.task.begin_step;
      run.task.begin_step = [&](std::int64_t step, Generator& rng) {
        CHECK(step == done++ % 7);
        return begin_step(step, rng);
      };
      TrainOptions part = options;
      part.out = parts.path();
      int asked = 0;
      part.interrupted = [&] { return ++asked >= 2; };
      if (run.train(part).interrupted) continue;
      CHECK(run_number >= 8);
      CHECK(bitwise_equal(run.net.w, one.net.w));
      break;
    }
    CHECK(text_of(parts / "metrics.jsonl") == text_of(whole / "metrics.jsonl"));
    CHECK(text_of(parts / "last.lip") == text_of(whole / "last.lip"));
    CHECK(text_of(parts / "best.lip") == text_of(whole / "best.lip"));
  }
}

TEST_CASE("what an update cannot be is refused") {
  Run run;
  CHECK_THROWS_WITH_AS(run.train({.accumulate = 0}), "train: accumulate must be >= 1, got 0",
                       Error);
  CHECK_THROWS_WITH_AS(run.train({.clip_norm = -1}), "train: clip_norm must be >= 0, got -1",
                       Error);
  CHECK_THROWS_AS(run.train({.average_decay = 1}), Error);
  // A checkpoint without averages does not continue a run that has them.
  test::TemporaryDirectory directory;
  run.train({.epochs = 1, .out = directory.path()});
  Run other;
  CHECK_THROWS_WITH_AS(
      other.train({.epochs = 2, .out = directory.path(), .resume = true, .average_decay = 0.5}),
      doctest::Contains(R"(it holds no "w/average")"), Error);
}

}  // namespace
}  // namespace lipgrad
