#include <lipgrad/models/trainer.h>

#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>

#include <lipgrad/core/error.h>
#include <lipgrad/core/threads.h>
#include <lipgrad/graph/generated_graph.h>
#include <lipgrad/models/gat.h>
#include <lipgrad/models/node_classification.h>
#include <lipgrad/ops/optimizers.h>
#include <lipgrad/ops/schedules.h>
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
  Gat model{{.in = data().features.cols(), .out = data().num_classes, .heads = 3, .hidden = 5}};
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
  const Metric accuracy = node_classification(run.model, data()).evaluate()[1];
  CHECK(accuracy.name == "valid_accuracy");
  CHECK(accuracy.value == result.at_best("valid_accuracy"));
}

TEST_CASE("a run that stops anywhere and resumes ends with the same bits and the same log") {
  test::TemporaryDirectory whole, parts;
  Run one;
  const TrainResult expected =
      one.train({.epochs = 30, .out = whole.path(), .checkpoint_every = 7});
  TrainResult result;
  std::vector<Tensor> weights;
  for (std::int64_t stop_at : {4, 5, 17, 29, 1000}) {
    Run run;
    std::int64_t epochs = result.epochs;
    result = run.train({.epochs = 30,
                        .out = parts.path(),
                        .resume = true,
                        .checkpoint_every = 7,
                        .interrupted = [&] { return ++epochs >= stop_at; }});
    weights = run.weights();
  }
  CHECK(!result.interrupted);
  CHECK(same(weights, one.weights()));
  CHECK(result.best_epoch == expected.best_epoch);
  CHECK(text_of(parts / "metrics.jsonl") == text_of(whole / "metrics.jsonl"));
  CHECK(text_of(parts / "last.lip") == text_of(whole / "last.lip"));
  CHECK(text_of(parts / "best.lip") == text_of(whole / "best.lip"));
  // A finished run has nothing left to do, and leaves the files as they are.
  Run again;
  CHECK(again.train({.epochs = 30, .out = parts.path(), .resume = true}).epochs == 30);
  CHECK(same(again.weights(), one.weights()));
  CHECK(text_of(parts / "last.lip") == text_of(whole / "last.lip"));
}

TEST_CASE("selection by loss and by the last epoch, and patience") {
  Run by_loss, by_last, patient;
  const TrainResult loss = by_loss.train({.epochs = 15, .select = Selection::loss});
  CHECK(node_classification(by_loss.model, data()).evaluate()[2].value ==
        loss.at_best("valid_loss"));
  CHECK(by_last.train({.epochs = 15, .select = Selection::last}).best_epoch == 15);
  const TrainResult early = patient.train({.epochs = 500, .patience = 5});
  CHECK(early.epochs == early.best_epoch + 5);
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
  Gat other({.in = data().features.cols(), .out = data().num_classes, .heads = 2, .hidden = 5});
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
                  [] { return std::vector<Metric>(); }};
  CHECK_THROWS_WITH_AS(train(task, *run.optimizer, nullptr, run.rng, {.progress = false}),
                       "train: the loss is inf in epoch 1; try a smaller learning rate", Error);
}

}  // namespace
}  // namespace lipgrad
