#include <lipgrad/graph/node_data.h>

#include <doctest/doctest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include <lipgrad/core/error.h>
#include <lipgrad/graph/generated_graph.h>

namespace lipgrad {
namespace {

NodeData some_data(bool sparse) {
  NodeData data = generated_citation_graph({.num_nodes = 200,
                                            .num_edges = 400,
                                            .num_features = 120,
                                            .num_classes = 4,
                                            .train_per_class = 5,
                                            .num_val = 40,
                                            .num_test = 80});
  if (!sparse) data.features = Features(data.features.to_dense());
  return data;
}

// The nodes whose features are all zero.
std::set<std::int64_t> zero_nodes(const Features& features) {
  const Tensor x = features.to_dense();
  std::set<std::int64_t> nodes;
  for (std::int64_t i = 0; i < x.size(0); ++i) {
    bool zero = true;
    for (std::int64_t c = 0; c < x.size(1); ++c)
      zero = zero && x.data<float>()[i * x.size(1) + c] == 0;
    if (zero) nodes.insert(i);
  }
  return nodes;
}

}  // namespace

TEST_CASE("hide_features: so many nodes outside the training set, at random, the rest as before") {
  for (const bool sparse : {true, false}) {
    const NodeData whole = some_data(sparse);
    const std::set<std::int64_t> zero_before = zero_nodes(whole.features);
    std::vector<std::set<std::int64_t>> chosen;
    for (const std::uint64_t seed : {1, 1, 2}) {
      NodeData data = whole;
      Generator rng{seed};
      CHECK(hide_features(data, 50, rng) == 90);  // of 200 - 20
      CHECK(data.features.is_sparse() == sparse);
      const std::set<std::int64_t> zero = zero_nodes(data.features);
      CHECK(zero.size() >= 90);
      for (std::int64_t i = 0; i < data.train.numel(); ++i) {
        const std::int64_t node = data.train.data<std::int64_t>()[i];
        CHECK(zero.count(node) == zero_before.count(node));
      }
      const Tensor before = whole.features.to_dense(), after = data.features.to_dense();
      std::int64_t changed = 0;
      for (std::int64_t i = 0; i < before.size(0); ++i) {
        if (zero.count(i)) continue;
        for (std::int64_t c = 0; c < before.size(1); ++c)
          changed += before.data<float>()[i * before.size(1) + c] !=
                     after.data<float>()[i * before.size(1) + c];
      }
      CHECK(changed == 0);
      chosen.push_back(zero);
    }
    CHECK(chosen[0] == chosen[1]);
    CHECK(chosen[0] != chosen[2]);
    // The features that were given stay as they are.
    CHECK(zero_nodes(whole.features) == zero_before);
  }
}

TEST_CASE("hide_features: all of them, and none") {
  NodeData data = some_data(true);
  Generator rng{1};
  CHECK(hide_features(data, 0, rng) == 0);
  CHECK(hide_features(data, 100, rng) == 180);
  CHECK(zero_nodes(data.features).size() >= 180);
  CHECK_THROWS_AS(hide_features(data, 100.5, rng), Error);
  CHECK_THROWS_AS(hide_features(data, -1, rng), Error);
}

TEST_CASE("check_node_data: tasks, scores and edge features that do not fit") {
  const auto wrong = [](auto&& change) {
    NodeData data = some_data(true);
    change(data);
    try {
      check_node_data(data);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const auto labelled = [](NodeData& data) {
    data.task = NodeTask::multi_label;
    data.score = NodeScore::roc_auc;
    data.num_classes = 3;
    data.labels = zeros({200, 3}, f32);
    data.labels.mutable_data<float>()[4] = std::nanf("");
  };
  CHECK(wrong([](NodeData&) {}).empty());
  CHECK(wrong(labelled).empty());
  CHECK(wrong([&](NodeData& d) {
          labelled(d);
          d.labels.mutable_data<float>()[7] = 0.5f;
        }) == "generated: node 2 has 0.5 for label 1; expected 0, 1 or NaN");
  CHECK(wrong([&](NodeData& d) {
          labelled(d);
          d.score = NodeScore::accuracy;
        }).starts_with("generated: nodes with several labels are judged by"));
  CHECK(wrong([](NodeData& d) {
          d.task = NodeTask::multi_label;
        }).starts_with("generated: labels must be f32 of shape (200, 4)"));
  CHECK(wrong([](NodeData& d) { d.score = NodeScore::roc_auc; }) ==
        "generated: ROC-AUC is for two classes or for labels, not for 4 classes");
  CHECK(wrong([](NodeData& d) { d.edge_features = ones({d.graph.num_edges(), 2}); }).empty());
  CHECK(wrong([](NodeData& d) {
          d.edge_features = ones({3, 2});
        }).starts_with("generated: edge features must be f32, a row for each of "));
  Generator rng{1};
  NodeData data = some_data(true);
  labelled(data);
  CHECK_THROWS_WITH_AS(random_split(data, 1, 1, rng), "random_split: generated has no classes",
                       Error);
}

TEST_CASE("zero_rows: ids that are none") {
  const NodeData data = some_data(true);
  CHECK_THROWS_AS(zero_rows(data.features, from_values<std::int64_t>({1}, {200})), Error);
  CHECK_THROWS_AS(zero_rows(data.features, from_values<std::int64_t>({1}, {-1})), Error);
  CHECK_THROWS_AS(zero_rows(data.features, zeros({2}, f32)), Error);
}

}  // namespace lipgrad
