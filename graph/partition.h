#pragma once

#include <cstdint>

#include <lipgrad/core/random.h>
#include <lipgrad/graph/graph.h>

namespace lipgrad {

// The nodes of a graph in disjoint parts, some of which may be empty.
struct Partition {
  Tensor nodes;    // (N, i64): the ids part by part, ascending within each
  Tensor offsets;  // (parts + 1, i64): part p has entries offsets[p] to before offsets[p + 1]

  std::int64_t parts() const { return offsets.numel() - 1; }
  // The ids of one part, shared with nodes.
  Tensor part(std::int64_t p) const;
};

// From the number in [0, parts) of each node's part: i32 or i64 of shape (N).
Partition partition_from(const Tensor& part_of, std::int64_t parts);

// Parts drawn at random whose sizes differ by one at most. One draw of the generator, none for a
// single part. Deep models are trained on such parts one by one, drawn anew in every epoch (Li,
// Xiong, Thabet, Ghanem: DeeperGCN, arXiv:2006.07739, section 5.1); on average they keep one in
// `parts` of the edges.
Partition random_partition(std::int64_t num_nodes, std::int64_t parts, Generator& rng);

// Whether this build of lipgrad has METIS.
bool has_metis();

struct MetisOptions {
  std::int64_t seed = 0;
  double imbalance = 1.03;  // the largest part has at most so many times the mean
};

// Parts of similar size with few edges between them: METIS's k-way partitioning (Karypis, Kumar: A
// fast and high quality multilevel scheme for partitioning irregular graphs, SIAM J. Sci. Comput.
// 20, 1998), as Cluster-GCN uses it (Chiang et al., KDD 2019). Directions, repeated edges and
// self-loops play no part. The same graph and options give the same parts with one version of
// METIS. Error when this build has no METIS, when parts is not in [1, nodes] or the graph is too
// large for its integers.
Partition metis_partition(const Graph& graph, std::int64_t parts, const MetisOptions& options = {});

// The number of edges that join two parts.
std::int64_t cut_edges(const Graph& graph, const Partition& partition);

}  // namespace lipgrad
