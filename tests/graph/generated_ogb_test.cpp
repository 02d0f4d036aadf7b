#include <lipgrad/graph/generated_ogb.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include <lipgrad/core/crc32c.h>
#include <lipgrad/core/error.h>
#include <lipgrad/core/threads.h>
#include <lipgrad/ops/metrics.h>

namespace lipgrad {
namespace {

std::uint32_t crc_of(const Tensor& x) {
  return crc32c(x.raw_data(), static_cast<std::size_t>(x.nbytes()));
}

std::vector<std::uint32_t> crcs_of(const NodeData& data) {
  std::vector<std::uint32_t> crcs;
  for (const Tensor& x : {data.graph.pattern().offsets(), data.graph.sources(),
                          data.features.dense(), data.labels, data.train, data.val, data.test})
    crcs.push_back(crc_of(x));
  if (data.edge_features.defined()) crcs.push_back(crc_of(data.edge_features));
  return crcs;
}

std::int64_t largest_degree(const Graph& graph) {
  const auto degrees = graph.in_degrees().to_vector<std::int64_t>();
  return *std::max_element(degrees.begin(), degrees.end());
}

// Whether both directions of every edge have the same features.
bool symmetric_features(const NodeData& data) {
  const Graph& graph = data.graph;
  const std::int64_t* offset = graph.pattern().offsets().data<std::int64_t>();
  const std::int32_t* source = graph.sources().data<std::int32_t>();
  const float* x = data.edge_features.data<float>();
  const std::int64_t width = data.edge_features.size(1);
  for (std::int64_t v = 0; v < graph.num_nodes(); ++v)
    for (std::int64_t k = offset[v]; k < offset[v + 1]; ++k) {
      const std::int32_t u = source[k];
      const std::int32_t* back = std::lower_bound(source + offset[u], source + offset[u + 1],
                                                  static_cast<std::int32_t>(v));
      if (back == source + offset[u + 1] || *back != v ||
          !std::equal(x + k * width, x + (k + 1) * width, x + (back - source) * width))
        return false;
    }
  return true;
}

}  // namespace

TEST_CASE("generated arxiv: sizes, degrees, what labels go with, and no other bits") {
  const GeneratedArxivOptions options{.num_nodes = 4000, .num_edges = 27000};
  const NodeData data = generated_arxiv(options, 3);
  CHECK(data.graph.num_nodes() == 4000);
  CHECK(data.features.cols() == 128);
  CHECK(data.num_classes == 40);
  CHECK(data.graph.num_edges() > 50000);  // few citations go both ways
  CHECK(data.graph.num_edges() <= 54000);
  CHECK(data.graph.num_self_loops() == 0);
  CHECK(data.train.numel() == 2148);
  CHECK(data.val.numel() == 704);
  CHECK(data.test.numel() == 1148);
  CHECK(largest_degree(data.graph) > 500);  // of 13.4 on average
  // Neighbours mostly have the same label.
  const auto source = data.graph.sources().to_vector<std::int32_t>(),
             destination = data.graph.destinations().to_vector<std::int32_t>();
  const std::int64_t* label = data.labels.data<std::int64_t>();
  std::int64_t same = 0;
  for (std::size_t k = 0; k < source.size(); ++k) same += label[source[k]] == label[destination[k]];
  CHECK(static_cast<double>(same) / static_cast<double>(source.size()) > 0.4);
  const int threads = num_threads();
  const auto first = crcs_of(data);
  set_num_threads(threads == 1 ? 2 : 1);
  CHECK(crcs_of(generated_arxiv(options, 3)) == first);
  set_num_threads(threads);
  CHECK(crcs_of(generated_arxiv(options, 4)) != first);
  CHECK_THROWS_AS(generated_arxiv({.num_nodes = 100, .num_edges = 5000}), Error);
  CHECK_THROWS_AS(generated_arxiv({.num_nodes = 30, .num_edges = 50}), Error);
}

TEST_CASE("generated proteins: sizes, degrees, features of edges, labels, and no other bits") {
  const GeneratedProteinsOptions options{.num_nodes = 1500, .num_edges = 40000};
  const NodeData data = generated_proteins(options, 3);
  CHECK(data.graph.num_edges() == 80000);
  CHECK(data.edge_features.shape() == Shape({80000, 8}));
  CHECK(data.features.cols() == 8);
  CHECK(data.labels.shape() == Shape({1500, 112}));
  CHECK(data.score == NodeScore::roc_auc);
  CHECK(data.train.numel() == 980);
  CHECK(data.val.numel() == 240);
  CHECK(data.test.numel() == 280);
  CHECK(largest_degree(data.graph) > 200);  // of 53 on average; H_1500 times that is 420
  CHECK(symmetric_features(data));
  const float* x = data.edge_features.data<float>();
  CHECK(*std::min_element(x, x + data.edge_features.numel()) >= 0);
  CHECK(*std::max_element(x, x + data.edge_features.numel()) <= 1);
  // For each task some feature is above or below the others' where it holds.
  double sum = 0;
  for (std::int64_t task = 0; task < 8; ++task) {
    double best = 0;
    for (std::int64_t c = 0; c < 8; ++c) {
      Tensor scores = zeros({1500}), labels = zeros({1500});
      for (std::int64_t i = 0; i < 1500; ++i) {
        scores.mutable_data<float>()[i] = data.features.dense().data<float>()[i * 8 + c];
        labels.mutable_data<float>()[i] = data.labels.data<float>()[i * 112 + task];
      }
      best = std::max(best, std::abs(roc_auc(scores, labels) - 0.5));
    }
    sum += best;
  }
  CHECK(sum / 8 > 0.05);
  const int threads = num_threads();
  const auto first = crcs_of(data);
  set_num_threads(threads == 1 ? 2 : 1);
  CHECK(crcs_of(generated_proteins(options, 3)) == first);
  set_num_threads(threads);
  CHECK(crcs_of(generated_proteins(options, 4)) != first);
  // A dense graph, as far as it goes.
  CHECK(generated_proteins({.num_nodes = 100, .num_edges = 1200}).graph.num_edges() == 2400);
  CHECK_THROWS_AS(generated_proteins({.num_nodes = 100, .num_edges = 1300}), Error);
}

}  // namespace lipgrad
