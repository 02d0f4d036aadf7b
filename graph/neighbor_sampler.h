#pragma once

#include <cstdint>
#include <vector>

#include <lipgrad/core/random.h>
#include <lipgrad/graph/graph.h>

namespace lipgrad {

// What a few layers of message passing need of a graph to compute some of its nodes, as a graph.
struct SampledGraph {
  // edge_order() gives the edges' numbers in the original, see induced_subgraph().
  Graph graph;
  Tensor
      nodes;  // (n, i64): the original ids; the seeds come first, in their order, then hop by hop
  std::int64_t seeds = 0;
};

// Samples neighbourhoods (Hamilton, Ying, Leskovec: Inductive representation learning on large
// graphs, NeurIPS 2017, algorithm 2): of the edges into a seed as many as the first fanout says,
// of those into the nodes met so as many as the second says, and so on; without replacement, every
// set of them being equally likely, and all of them where there are no more. A node is expanded
// once, at the hop that meets it first; those met at the last hop have no edges. A model of k
// layers on the sample of k fanouts computes the rows of the seeds from sampled neighbourhoods, and
// the exact ones if every fanout is -1, which stands for all edges.
//
// The nodes met grow with the product of the fanouts: this is for shallow models. Aggregations that
// take a mean or a weighted mean (attention) need no correction; a sum would be too small.
class NeighborSampler {
 public:
  // Error unless every fanout is -1 or above 0.
  NeighborSampler(const Graph& graph, std::vector<std::int64_t> fanouts);

  // seeds: i32 or i64 of rank 1, distinct. Takes one draw of the generator; what is drawn for a
  // node depends on it and on the node, not on the order of seeds or the number of threads. The
  // result is on the graph's device. Not to be called by two threads at a time.
  SampledGraph sample(const Tensor& seeds, Generator& rng);

 private:
  Graph graph_;
  std::vector<std::int64_t> fanouts_;
  std::vector<std::int32_t> place_;  // of each node in the sample being made, else -1
};

}  // namespace lipgrad
