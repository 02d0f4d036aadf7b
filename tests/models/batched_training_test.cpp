// Some of this is shared among threads, so ThreadSanitizer looks at it too.
#include <lipgrad/models/batched_training.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>
#include <vector>

#include <lipgrad/core/checkpoint.h>
#include <lipgrad/core/error.h>
#include <lipgrad/graph/generated_graph.h>
#include <lipgrad/graph/neighbor_sampler.h>
#include <lipgrad/graph/subgraph.h>
#include <lipgrad/models/gnn.h>
#include <lipgrad/ops/elementwise.h>
#include <lipgrad/ops/index.h>
#include <lipgrad/ops/optimizers.h>
#include <lipgrad/ops/reduce.h>
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

enum class Way { whole, one_part, parts, clusters, samples };

NodeBatches batches(Way way) {
  switch (way) {
    case Way::one_part:
      return random_parts(data(), 1);
    case Way::parts:
      return random_parts(data(), 5);
    case Way::clusters: {
      // Seven parts, one of them without nodes, two a step.
      std::vector<std::int32_t> part_of(300);
      for (std::int32_t i = 0; i < 300; ++i) part_of[i] = i % 6;
      return fixed_parts(data(), partition_from(from_vector({300}, part_of), 7), 2);
    }
    default:
      return sampled_neighborhoods(data(), {5, 4}, 7);
  }
}

struct Run {
  Gnn model{{.in = data().features.cols(), .out = data().num_classes, .heads = 3, .hidden = 5}};
  Generator rng{3};
  std::optional<Adam> optimizer;
  std::optional<LrSchedule> schedule;
  Way way;

  explicit Run(Way way) : way(way) {
    model.initialize(rng);
    optimizer.emplace(model, AdamOptions{.lr = 0.01, .weight_decay = 5e-4});
    schedule.emplace(*optimizer, cosine_decay({.steps = 30}));
  }
  Task task() {
    if (way == Way::whole) return node_classification(model, data());
    return node_classification(model, data(), batches(way));
  }
  TrainResult train(TrainOptions options) {
    options.progress = false;
    return lipgrad::train(task(), *optimizer, &*schedule, rng, options);
  }
  std::vector<Tensor> weights() const {
    std::vector<Tensor> values;
    for (Parameter* parameter : model.parameters()) values.push_back(parameter->value().clone());
    return values;
  }
};

bool same(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), bitwise_equal);
}

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_CASE("training on one part gives the bits of full-batch training") {
  test::TemporaryDirectory whole_files, part_files;
  Run whole(Way::whole), part(Way::one_part);
  whole.train({.epochs = 12, .out = whole_files.path(), .log_gradients_every = 4});
  part.train({.epochs = 12, .out = part_files.path(), .log_gradients_every = 4});
  CHECK(same(whole.weights(), part.weights()));
  CHECK(text_of(whole_files / "metrics.jsonl") == text_of(part_files / "metrics.jsonl"));
  CHECK(text_of(whole_files / "last.lip") == text_of(part_files / "last.lip"));
}

TEST_CASE("training batch by batch learns") {
  for (const Way way : {Way::parts, Way::clusters, Way::samples}) {
    Run run(way);
    const TrainResult result = run.train({.epochs = 40});
    CHECK(result.at_best("test_accuracy") > 0.35);  // chance is 0.25; 0.40 measured on the parts
  }
}

TEST_CASE("a run on parts or samples that stops within epochs ends with the same bits and log") {
  for (const Way way : {Way::parts, Way::clusters, Way::samples}) {
    CAPTURE(int(way));
    test::TemporaryDirectory whole, parts;
    Run one(way);
    const std::int64_t steps = one.task().steps;
    CHECK(steps == (way == Way::parts ? 5 : way == Way::clusters ? 4 : 6));
    const TrainResult expected = one.train(
        {.epochs = 9, .out = whole.path(), .checkpoint_every = 4, .log_gradients_every = 2});
    TrainResult result;
    std::vector<Tensor> weights;
    // Interrupted after so many more steps: within epochs and at their ends.
    std::int64_t done = 0;
    for (const std::int64_t more : {2, 1, 3, 7, 11, 1000}) {
      Run run(way);
      std::int64_t left = more;
      result = run.train({.epochs = 9,
                          .out = parts.path(),
                          .resume = true,
                          .checkpoint_every = 4,
                          .log_gradients_every = 2,
                          .interrupted = [&] { return --left == 0; }});
      done += more;
      if (left == 0) {
        CHECK(result.interrupted);
        CHECK(result.epochs == done / steps);
        CHECK(read_checkpoint_info(parts / "last.lip").step == done);
      }
      weights = run.weights();
    }
    CHECK(!result.interrupted);
    CHECK(same(weights, one.weights()));
    CHECK(result.best_epoch == expected.best_epoch);
    CHECK(text_of(parts / "metrics.jsonl") == text_of(whole / "metrics.jsonl"));
    CHECK(text_of(parts / "last.lip") == text_of(whole / "last.lip"));
    CHECK(text_of(parts / "best.lip") == text_of(whole / "best.lip"));
    CHECK(test::shown_scalars(parts.path()) == test::shown_scalars(whole.path()));
  }
}

TEST_CASE("a run that dies within an epoch goes on from the checkpoint written there") {
  test::TemporaryDirectory whole, parts;
  Run one(Way::parts), killed(Way::parts), resumed(Way::parts);
  one.train({.epochs = 4, .out = whole.path()});
  Task task = killed.task();
  std::int64_t step = 0;
  const auto loss = task.loss;
  task.loss = [&](Mode mode) {
    if (++step == 9) throw Error("died");
    return loss(mode);
  };
  // Checkpoints after every step: the last one is of step 3 of the second epoch.
  CHECK_THROWS_WITH_AS(
      train(task, *killed.optimizer, &*killed.schedule, killed.rng,
            {.epochs = 4, .out = parts.path(), .checkpoint_seconds = 0, .progress = false}),
      "died", Error);
  CHECK(read_checkpoint_info(parts / "last.lip").step == 8);
  resumed.train({.epochs = 4, .out = parts.path(), .resume = true});
  CHECK(same(one.weights(), resumed.weights()));
  CHECK(text_of(parts / "metrics.jsonl") == text_of(whole / "metrics.jsonl"));
  CHECK(text_of(parts / "last.lip") == text_of(whole / "last.lip"));
}

TEST_CASE("a run that stopped within an epoch beyond those wanted now is left as it is") {
  test::TemporaryDirectory directory;
  Run run(Way::parts), again(Way::parts);
  int asked = 0;
  run.train({.epochs = 4, .out = directory.path(), .interrupted = [&] { return ++asked == 12; }});
  const std::string before = text_of(directory / "last.lip");
  const TrainResult result = again.train({.epochs = 2, .out = directory.path(), .resume = true});
  CHECK(result.epochs == 2);
  CHECK(!result.interrupted);
  CHECK(text_of(directory / "last.lip") == before);
}

TEST_CASE("an epoch's loss is the mean of its steps, empty steps left out") {
  Run run(Way::whole);
  Task task = run.task();
  std::int64_t made = 0;
  task.steps = 4;
  task.begin_step = [](std::int64_t step, Generator&) { return step != 1; };
  task.loss = [&](Mode) {
    Tensor loss = mul(run.model.parameters()[0]->value(), 0.0);
    return add(mean(loss), static_cast<double>(++made));
  };
  test::TemporaryDirectory directory;
  train(task, *run.optimizer, nullptr, run.rng,
        {.epochs = 2, .out = directory.path(), .progress = false});
  CHECK(made == 6);
  CHECK(test::shown_scalars(directory.path()).at("loss").at(1) == 2);  // of 1, 2, 3
  CHECK(test::shown_scalars(directory.path()).at("loss").at(2) == 5);
  task.begin_step = [](std::int64_t, Generator&) { return false; };
  CHECK_THROWS_WITH_AS(
      train(task, *run.optimizer, nullptr, run.rng, {.epochs = 1, .progress = false}),
      "train: no step of epoch 1 has anything to learn from", Error);
}

TEST_CASE("what training in batches refuses") {
  Run run(Way::parts);
  CHECK_THROWS_WITH_AS(run.train({.epochs = 1, .cuda_graph = true}),
                       doctest::Contains("this task has 5 steps"), Error);
  CHECK_THROWS_AS(random_parts(data(), 0), Error);
  CHECK_THROWS_AS(sampled_neighborhoods(data(), {3}, 0), Error);
  CHECK_THROWS_AS(fixed_parts(data(), partition_from(zeros({5}, i64), 1)), Error);
  // Within an epoch the number of steps must stay what it was.
  test::TemporaryDirectory directory;
  run.train({.epochs = 1, .out = directory.path(), .interrupted = [] { return true; }});
  Run other(Way::samples);
  CHECK_THROWS_WITH_AS(other.train({.epochs = 1, .out = directory.path(), .resume = true}),
                       doctest::Contains("after 1 of 5 steps; the task now has 6 steps an epoch"),
                       Error);
}

TEST_CASE("parts of an epoch cover the training nodes once, and differ between epochs") {
  for (const Way way : {Way::parts, Way::clusters, Way::samples}) {
    const NodeBatches all = batches(way);
    Generator rng{2};
    std::vector<std::vector<float>> first_rows;
    for (int epoch = 0; epoch < 2; ++epoch) {
      all.begin_epoch(rng);
      std::int64_t trained = 0;
      for (std::int64_t step = 0; step < all.steps; ++step) {
        const NodeData batch = all.batch(step, rng);
        check_node_data(batch);
        trained += batch.train.numel();
        if (step == 0) first_rows.push_back(batch.features.to_dense().to_vector<float>());
      }
      CHECK(trained == data().train.numel());
    }
    CHECK(first_rows[0] != first_rows[1]);
  }
}

TEST_CASE("with all neighbours of two hops two layers compute the seeds' rows exactly") {
  Run run(Way::whole);
  Generator rng{6};
  NeighborSampler sampler(data().graph, {-1, -1});
  const Tensor seeds = from_vector<std::int64_t>({4}, {250, 3, 77, 12});
  const SampledGraph sample = sampler.sample(seeds, rng);
  const NodeData batch = select_node_data(data(), sample.graph, sample.nodes);
  const Tensor whole =
                   gather(run.model.forward(data().graph, data().features, Mode::eval()), seeds),
               part = run.model.forward(batch.graph, batch.features, Mode::eval());
  for (std::int64_t i = 0; i < whole.numel(); ++i)
    CHECK(part.data<float>()[i] == doctest::Approx(whole.data<float>()[i]).epsilon(1e-4));
}

}  // namespace
}  // namespace lipgrad
