#pragma once

#include <cstdint>

#include <lipgrad/graph/node_data.h>

namespace lipgrad {

// Made-up data of the size and with the degrees of two of the Open Graph Benchmark's, for when
// these are not at hand: for measurements, and for tests at smaller sizes. The result depends on
// the options and the seed alone, bit for bit, on every machine and for any number of threads.
// Error when the options contradict each other.

// By default of the size of ogbn-arxiv.
struct GeneratedArxivOptions {
  std::int64_t num_nodes = 169343;
  std::int64_t num_edges = 1166243;  // citations; the graph has both directions of each
  std::int64_t num_features = 128, num_classes = 40;
  double homophily = 0.65;  // share of citations within a topic, before those that are so by chance
  SelfLoops self_loops = SelfLoops::remove;
};

// A citation network: papers of a topic (the largest topics are some twenty times the smallest)
// cite within it more often than not. The r-th most cited paper is cited in proportion to (r +
// 1/4)^(-3/4): a power law of exponent 7/3, with some 11,000 citations of the first at the default
// size (13,161 in ogbn-arxiv); those a paper makes follow one of exponent 11/3 (some 400 at most).
// Features are the topic's vector and about thrice as much noise; nine of ten labels are the topic.
// Training, validation and test nodes have ogbn-arxiv's shares, 53.7, 17.6 and 28.7 %.
NodeData generated_arxiv(const GeneratedArxivOptions& options = {}, std::uint64_t seed = 0);

// By default of the size of ogbn-proteins.
struct GeneratedProteinsOptions {
  std::int64_t num_nodes = 132534;
  std::int64_t num_edges = 39561252;  // counted once; the graph has both directions of each
  std::int64_t num_edge_features = 8, num_tasks = 112;
  SelfLoops self_loops = SelfLoops::remove;
};

// An association network: expected degrees are exponentially distributed (mean 597 and some 7,000
// at most at the default size; 7,750 in ogbn-proteins). Nodes are of one of eight species, within
// which two of five edges lie, and have one of eight roles; features of edges, in [0, 1], and
// labels depend on both. Features of nodes are the mean of those of their edges. The score is
// ROC-AUC. Training, validation and test nodes have ogbn-proteins' shares, 65.4, 16.0 and 18.6 %.
NodeData generated_proteins(const GeneratedProteinsOptions& options = {}, std::uint64_t seed = 0);

}  // namespace lipgrad
