// Training a model with running moments: what is stopped, killed and resumed ends with their bits
// too, and the best epoch's weights come back with its moments.
#include <doctest/doctest.h>

#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include <lipgrad/core/error.h>
#include <lipgrad/core/recompute.h>
#include <lipgrad/graph/gcn_conv.h>
#include <lipgrad/graph/generated_graph.h>
#include <lipgrad/models/node_classification.h>
#include <lipgrad/models/trainer.h>
#include <lipgrad/ops/activation.h>
#include <lipgrad/ops/batch_norm.h>
#include <lipgrad/ops/dropout.h>
#include <lipgrad/ops/optimizers.h>
#include <support/temporary_directory.h>

namespace lipgrad {
namespace {

const NodeData& data() {
  static const NodeData generated = generated_citation_graph({.num_nodes = 200,
                                                              .num_edges = 500,
                                                              .num_features = 120,
                                                              .num_classes = 4,
                                                              .train_per_class = 10,
                                                              .num_val = 40,
                                                              .num_test = 60});
  return generated;
}

struct Net : Module {
  bool recompute = false;
  GcnConv a{*this, "a", {.in = data().features.cols(), .out = 8}};
  BatchNorm norm{*this, "norm", 8};
  GcnConv b{*this, "b", {.in = 8, .out = data().num_classes}};

  Tensor forward(const Graph& graph, const Features& x, Mode mode) const {
    const Tensor h = a.forward(graph, x, mode);
    const auto rest = [this, graph, mode](Inputs in) {
      return b.forward(graph, dropout(elu(norm.forward(in[0], mode)), 0.4, mode), mode);
    };
    if (recompute && mode.is_train()) return checkpoint(rest, mode.rng(), h);
    return rest(std::vector<Tensor>{h});
  }
};

struct Run {
  Net model;
  Generator rng{3};
  std::optional<Adam> optimizer;

  explicit Run(double lr = 0.01) {
    model.initialize(rng);
    optimizer.emplace(model, AdamOptions{.lr = lr});
  }
  Task task() { return node_classification(model, data()); }
  TrainResult train(const Task& task, TrainOptions options) {
    options.progress = false;
    return lipgrad::train(task, *optimizer, nullptr, rng, options);
  }
  std::vector<Tensor> state() const {
    std::vector<Tensor> values;
    for (const auto& [path, parameter] : model.named_parameters())
      values.push_back(parameter->value().clone());
    for (const auto& [path, buffer] : model.named_buffers())
      values.push_back(buffer->value().clone());
    return values;
  }
};

bool same(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  bool equal = a.size() == b.size() && !a.empty();
  for (std::size_t i = 0; equal && i < a.size(); ++i) equal = bitwise_equal(a[i], b[i]);
  return equal;
}

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("a run with BatchNorm that dies, resumes and is stopped ends with the same bits") {
  test::TemporaryDirectory whole, parts;
  Run one, killed, stopped, resumed;
  const TrainOptions options{.epochs = 12, .select = Selection::last, .checkpoint_every = 5};
  const auto in = [&](const test::TemporaryDirectory& directory) {
    TrainOptions o = options;
    o.out = directory.path();
    o.resume = true;
    return o;
  };
  one.train(one.task(), in(whole));
  CHECK(one.state().size() == 8);
  // Dies in epoch 9; its checkpoint is of epoch 5.
  const Task task = killed.task();
  Task dying = task;
  std::int64_t epoch = 0;
  dying.loss = [&](Mode mode) {
    if (++epoch == 9) throw Error("died");
    return task.loss(mode);
  };
  CHECK_THROWS_WITH_AS(killed.train(dying, in(parts)), "died", Error);
  TrainOptions short_run = in(parts);
  std::int64_t done = 0;
  short_run.interrupted = [&] { return ++done == 3; };
  CHECK(stopped.train(stopped.task(), short_run).interrupted);
  resumed.train(resumed.task(), in(parts));
  CHECK(same(resumed.state(), one.state()));
  CHECK(text_of(parts / "metrics.jsonl") == text_of(whole / "metrics.jsonl"));
  CHECK(text_of(parts / "last.lip") == text_of(whole / "last.lip"));
}

TEST_CASE("layers that are computed again move the running moments once") {
  Run plain, recomputed;
  recomputed.model.recompute = true;
  plain.train(plain.task(), {.epochs = 6, .select = Selection::last});
  recomputed.train(recomputed.task(), {.epochs = 6, .select = Selection::last});
  CHECK(same(plain.state(), recomputed.state()));
}

TEST_CASE("the best epoch's weights come back with its running moments") {
  Run run(0.3);  // overfits at once
  const TrainResult result = run.train(run.task(), {.epochs = 30, .select = Selection::loss});
  CHECK(result.best_epoch < 30);
  for (const Metric& metric : read(run.task().evaluate()))
    CHECK(metric.value == result.at_best(metric.name));
}

}  // namespace lipgrad
