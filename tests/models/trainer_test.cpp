#include <lipgrad/models/trainer.h>

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include <lipgrad/core/error.h>
#include <lipgrad/core/threads.h>
#include <lipgrad/graph/generated_graph.h>
#include <lipgrad/models/gnn.h>
#include <lipgrad/models/node_classification.h>
#include <lipgrad/ops/clip_grad.h>
#include <lipgrad/ops/optimizers.h>
#include <lipgrad/ops/schedules.h>
#include <support/events.h>
#include <support/temporary_directory.h>

namespace lipgrad {
namespace {

const NodeData& data() {
  static const NodeData generated = generated_citation_graph({.num_nodes = 300,
                                                              .num_edges = 700,
                                                              .num_features = 120,
                                                              .num_classes = 4,
                                                              .train_per_class = 10,
                                                              .num_val = 60,
                                                              .num_test = 100});
  return generated;
}

// A whole run: a GAT with dropout on features and attention, Adam, a cosine schedule.
struct Run {
  Gnn model{{.in = data().features.cols(), .out = data().num_classes, .heads = 3, .hidden = 5}};
  Generator rng{3};
  std::optional<Adam> optimizer;
  std::optional<LrSchedule> schedule;

  Run() {
    model.initialize(rng);
    optimizer.emplace(model, AdamOptions{.lr = 0.01, .weight_decay = 5e-4});
    schedule.emplace(*optimizer, cosine_decay({.steps = 30}));
  }
  TrainResult train(TrainOptions options) {
    options.progress = false;
    return lipgrad::train(node_classification(model, data()), *optimizer, &*schedule, rng, options);
  }
  std::vector<Tensor> weights() const {
    std::vector<Tensor> values;
    for (Parameter* parameter : model.parameters()) values.push_back(parameter->value().clone());
    return values;
  }
};

bool same(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  bool equal = a.size() == b.size();
  for (std::size_t i = 0; equal && i < a.size(); ++i) equal = bitwise_equal(a[i], b[i]);
  return equal;
}

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_CASE("training a GAT gives the same bits on 1 and 2 threads, and twice") {
  const int threads = num_threads();
  std::vector<std::vector<Tensor>> weights;
  for (int count : {1, 2, 2}) {
    set_num_threads(count);
    Run run;
    run.train({.epochs = 12, .select = Selection::last});
    weights.push_back(run.weights());
  }
  set_num_threads(threads);
  CHECK(same(weights[0], weights[1]));
  CHECK(same(weights[1], weights[2]));
}

TEST_CASE("it learns") {
  Run run;
  const TrainResult result = run.train({.epochs = 60});
  CHECK(result.epochs == 60);
  CHECK(result.best_epoch > 0);
  CHECK(result.at_best("test_accuracy") > 0.4);  // chance is 0.25; 0.49 measured
  CHECK_THROWS_WITH_AS(result.at_best("speed"), "train: the task measures no 'speed'", Error);
  // The weights in the model are those of the best epoch.
  const Metric accuracy = read(node_classification(run.model, data()).evaluate())[1];
  CHECK(accuracy.name == "valid_accuracy");
  CHECK(accuracy.value == result.at_best("valid_accuracy"));
}

TEST_CASE("a run that stops anywhere and resumes ends with the same bits and the same log") {
  test::TemporaryDirectory whole, parts;
  Run one;
  const TrainResult expected = one.train(
      {.epochs = 30, .out = whole.path(), .checkpoint_every = 7, .log_gradients_every = 3});
  TrainResult result;
  std::vector<Tensor> weights;
  for (std::int64_t stop_at : {4, 5, 17, 29, 1000}) {
    Run run;
    std::int64_t epochs = result.epochs;
    result = run.train({.epochs = 30,
                        .out = parts.path(),
                        .resume = true,
                        .checkpoint_every = 7,
                        .log_gradients_every = 3,
                        .interrupted = [&] { return ++epochs >= stop_at; }});
    weights = run.weights();
  }
  CHECK(!result.interrupted);
  CHECK(same(weights, one.weights()));
  CHECK(result.best_epoch == expected.best_epoch);
  CHECK(text_of(parts / "metrics.jsonl") == text_of(whole / "metrics.jsonl"));
  CHECK(text_of(parts / "last.lip") == text_of(whole / "last.lip"));
  CHECK(text_of(parts / "best.lip") == text_of(whole / "best.lip"));
  // TensorBoard shows the same as for the run that never stopped.
  CHECK(test::event_files(whole.path()).size() == 1);
  CHECK(test::event_files(parts.path()).size() == 5);
  CHECK(test::shown_scalars(parts.path()) == test::shown_scalars(whole.path()));
  // A finished run has nothing left to do, and leaves the files as they are.
  Run again;
  CHECK(again.train({.epochs = 30, .out = parts.path(), .resume = true}).epochs == 30);
  CHECK(same(again.weights(), one.weights()));
  CHECK(text_of(parts / "last.lip") == text_of(whole / "last.lip"));
  CHECK(test::event_files(parts.path()).size() == 5);
}

TEST_CASE("what an interrupted run logged after its checkpoint is logged and shown once") {
  test::TemporaryDirectory whole, parts;
  Run one, killed, resumed;
  one.train({.epochs = 12, .out = whole.path(), .log_gradients_every = 2});
  // Dies in epoch 9, having logged 8; its checkpoint is of epoch 5.
  Task task = node_classification(killed.model, data());
  std::int64_t epoch = 0;
  CHECK_THROWS_WITH_AS(train({task.model,
                              [&](Mode mode) {
                                if (++epoch == 9) throw Error("died");
                                return task.loss(mode);
                              },
                              task.evaluate},
                             *killed.optimizer, &*killed.schedule, killed.rng,
                             {.out = parts.path(),
                              .checkpoint_every = 5,
                              .log_gradients_every = 2,
                              .progress = false}),
                       "died", Error);
  CHECK(test::shown_scalars(parts.path())["loss"].size() == 8);
  resumed.train({.epochs = 12, .out = parts.path(), .resume = true, .log_gradients_every = 2});
  CHECK(text_of(parts / "metrics.jsonl") == text_of(whole / "metrics.jsonl"));
  CHECK(test::shown_scalars(parts.path()) == test::shown_scalars(whole.path()));
}

TEST_CASE("events hold what metrics.jsonl holds, gradient norms those of the gradients") {
  test::TemporaryDirectory directory;
  Run plain, logged, by_hand;
  plain.train({.epochs = 8, .select = Selection::last});
  logged.train(
      {.epochs = 8, .select = Selection::last, .out = directory.path(), .log_gradients_every = 3});
  CHECK(same(plain.weights(), logged.weights()));

  const auto shown = test::shown_scalars(directory.path());
  std::ifstream lines(directory / "metrics.jsonl");
  const Task task = node_classification(by_hand.model, data());
  std::int64_t epoch = 0, values = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line);
    CHECK(json.at("step") == ++epoch);
    for (const auto& [name, value] : json.items()) {
      if (name == "step") continue;
      CHECK(shown.at(name).at(epoch) == static_cast<float>(value.get<double>()));
      ++values;
    }
    Tape tape;
    const Tensor loss = task.loss(Mode::train(by_hand.rng));
    tape.backward(loss);
    CHECK(json.at("loss") == loss.item());
    CHECK(json.contains("gradient_norm") == (epoch == 1 || epoch == 4 || epoch == 7));
    if (json.contains("gradient_norm")) {
      CHECK(json.at("gradient_norm") == grad_norm(by_hand.model));
      double total = 0;
      for (const auto& [path, parameter] : by_hand.model.named_parameters()) {
        double squares = 0;
        for (std::int64_t i = 0; i < parameter->numel(); ++i)
          squares += std::pow(double{parameter->grad().data<float>()[i]}, 2);
        total += squares;
        CHECK(json.at("gradient_norm/" + path).get<double>() ==
              doctest::Approx(std::sqrt(squares)).epsilon(1e-12));
      }
      CHECK(json.at("gradient_norm").get<double>() ==
            doctest::Approx(std::sqrt(total)).epsilon(1e-12));
      CHECK(json.at("gradient_norm/conv.0.lin.weight") > 0);
    }
    by_hand.optimizer->step();
    by_hand.optimizer->zero_grad();
    task.evaluate();
    by_hand.schedule->step();
  }
  CHECK(epoch == 8);
  std::int64_t shown_values = 0;
  for (const auto& [tag, series] : shown) shown_values += static_cast<std::int64_t>(series.size());
  CHECK(shown_values == values);
  CHECK_THROWS_AS(plain.train({.log_gradients_every = -1}), Error);
}

TEST_CASE("a full disk ends training with an Error that names the file") {
  test::TemporaryDirectory directory;
  std::filesystem::create_symlink("/dev/null", directory / "metrics.jsonl");
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    // A limit on the size of files fails a write just as a full disk does; here that of events.
    set_num_threads(1);
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{2000, 2000};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(2);
    try {
      Run run;
      run.train({.epochs = 500, .out = directory.path(), .checkpoint_every = 500});
    } catch (const Error& error) {
      ::_exit(std::string(error.what()).starts_with(directory / "events.out.tfevents.") ? 0 : 1);
    }
    ::_exit(3);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
  CHECK(!std::filesystem::exists(directory / "last.lip"));
}

TEST_CASE("selection by loss and by the last epoch, and patience") {
  Run by_loss, by_last, patient;
  const TrainResult loss = by_loss.train({.epochs = 15, .select = Selection::loss});
  CHECK(read(node_classification(by_loss.model, data()).evaluate())[2].value ==
        loss.at_best("valid_loss"));
  CHECK(by_last.train({.epochs = 15, .select = Selection::last}).best_epoch == 15);
  const TrainResult early = patient.train({.epochs = 500, .patience = 5});
  CHECK(early.epochs == early.best_epoch + 5);
  // Patience that has run out before a run resumes does not start anew.
  test::TemporaryDirectory directory;
  const TrainOptions stops{.epochs = 500, .patience = 5, .out = directory.path(), .resume = true};
  Run once, twice;
  CHECK(once.train(stops).epochs == early.epochs);
  CHECK(twice.train(stops).epochs == early.epochs);
}

TEST_CASE("a task names the score that the best epoch has most of") {
  Run run;
  Task task = node_classification(run.model, data());
  int epoch = 0;
  task.score = "skill";
  task.evaluate = [&] {
    ++epoch;
    const double skill = epoch == 3 || epoch == 5 ? 2 : 1;
    return std::vector<Measurement>{{"valid_skill", full({}, skill, f64)},
                                    {"valid_accuracy", full({}, epoch, f64)},
                                    {"valid_loss", full({}, 9 - epoch, f64)}};
  };
  CHECK(
      train(task, *run.optimizer, nullptr, run.rng, {.epochs = 7, .progress = false}).best_epoch ==
      5);
  Run other;
  task.score = "wisdom";
  CHECK_THROWS_WITH_AS(
      train(task, *other.optimizer, nullptr, other.rng, {.epochs = 7, .progress = false}),
      "train: the task measures no 'valid_wisdom'", Error);
}

TEST_CASE("what cannot be continued is refused, and nothing is touched") {
  test::TemporaryDirectory directory;
  {
    Run run;
    run.train({.epochs = 3, .out = directory.path(), .config = R"({"lr":0.01,"heads":3})"});
  }
  const std::string before = text_of(directory / "last.lip");
  Run run;
  CHECK_THROWS_WITH_AS(run.train({.epochs = 3, .out = directory.path()}),
                       doctest::Contains("there is a run here already"), Error);
  CHECK_THROWS_WITH_AS(run.train({.epochs = 5,
                                  .out = directory.path(),
                                  .resume = true,
                                  .config = R"({"lr":0.1,"heads":3})"}),
                       doctest::Contains("the run here had other settings: lr was 0.01, is 0.1"),
                       Error);
  Gnn other({.in = data().features.cols(), .out = data().num_classes, .heads = 2, .hidden = 5});
  Generator rng{1};
  other.initialize(rng);
  Adam optimizer(other, {});
  CHECK_THROWS_WITH_AS(train(node_classification(other, data()), optimizer, nullptr, rng,
                             {.epochs = 5,
                              .out = directory.path(),
                              .resume = true,
                              .config = R"({"lr":0.01,"heads":3})",
                              .progress = false}),
                       doctest::Contains("conv.0.lin.weight"), Error);
  CHECK(text_of(directory / "last.lip") == before);
  std::ofstream(directory / "file") << "x";
  CHECK_THROWS_WITH_AS(run.train({.epochs = 3, .out = directory / "file"}),
                       doctest::Contains("cannot be created as a directory"), Error);
  CHECK_THROWS_AS(run.train({.epochs = 3, .resume = true}), Error);
}

TEST_CASE("a loss that is not finite stops training with the epoch's number") {
  Run run;
  const Task task{run.model, [&](Mode) { return full({}, INFINITY); },
                  [] { return std::vector<Measurement>(); }};
  CHECK_THROWS_WITH_AS(train(task, *run.optimizer, nullptr, run.rng, {.progress = false}),
                       "train: the loss is inf in epoch 1; try a smaller learning rate", Error);
}

TEST_CASE("weights that are not finite stop training and never replace a good checkpoint") {
  test::TemporaryDirectory directory;
  Run run;
  const Task task = node_classification(run.model, data());
  const TrainOptions once{.epochs = 1, .out = directory.path(), .progress = false};
  train(task, *run.optimizer, nullptr, run.rng, once);
  const std::string before = text_of(directory / "last.lip");
  // An update spoils them after a loss that was good.
  Task spoilt = task;
  spoilt.loss = [&](Mode mode) {
    const Tensor loss = task.loss(mode);
    Parameter& first = *run.model.parameters()[0];
    first.set_value(full(first.value().shape(), NAN));
    return loss;
  };
  const TrainOptions twice{.epochs = 2, .out = directory.path(), .resume = true, .progress = false};
  CHECK_THROWS_WITH_AS(train(spoilt, *run.optimizer, nullptr, run.rng, twice),
                       "train: the weights are not finite in epoch 2; try a smaller learning rate",
                       Error);
  CHECK(text_of(directory / "last.lip") == before);
}

}  // namespace
}  // namespace lipgrad
