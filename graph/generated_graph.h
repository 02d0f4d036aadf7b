#pragma once

#include <cstdint>

#include <lipgrad/graph/node_data.h>

namespace lipgrad {

// By default the size of Cora, and about as hard.
struct CitationGraphOptions {
  std::int64_t num_nodes = 2708, num_edges = 5278;  // edges counted once, not in both directions
  std::int64_t num_features = 1433, num_classes = 7;
  // Share of edges within a class.
  double homophily = 0.72;
  // Words of a node on average (distinct features that are 1), and the share of them that is drawn
  // from the words of the node's class rather than from all.
  std::int64_t words = 18;
  double topic = 0.26;
  std::int64_t train_per_class = 20, num_val = 500, num_test = 1000;
  bool sparse_features = true, row_normalize = true;
  SelfLoops self_loops = SelfLoops::remove;
};

// A made-up citation network, for when no real one is at hand: a degree-corrected stochastic block
// model (Karrer and Newman: Stochastic blockmodels and community structure in networks, 2011) with
// degrees of a power law (exponent 3) and bag-of-words features from Zipf-distributed vocabularies.
// The split is Planetoid's: a few training nodes a class, then validation and test nodes. The
// result depends on the options and the seed alone, bit for bit, on every machine. Error when the
// options contradict each other.
NodeData generated_citation_graph(const CitationGraphOptions& options = {}, std::uint64_t seed = 0);

}  // namespace lipgrad
