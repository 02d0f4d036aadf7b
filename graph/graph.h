#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include <lipgrad/core/csr_matrix.h>
#include <lipgrad/core/tensor.h>

namespace lipgrad {

// What becomes of edges from a node to itself.
enum class SelfLoops : std::uint8_t {
  keep,         // those in the list stay, none are added
  remove,       // none are left
  add,          // those in the list are removed, then every node gets exactly one
  add_missing,  // those in the list stay, nodes without one get one
};

struct GraphOptions {
  // Adds v -> u for every u -> v of the list (self-loops excepted). A list that holds both already
  // gets each of them twice, unless remove_duplicates is set too.
  bool symmetrize = false;
  // Keeps the first of several edges with the same ends.
  bool remove_duplicates = false;
  SelfLoops self_loops = SelfLoops::keep;
};

// A directed graph of N nodes and E edges source -> destination; messages run along the edges.
// Immutable; a copy shares everything with its original. Repeated edges and nodes without edges are
// legal. Edges are kept sorted by (destination, source), repeated ones in the order of the list, as
// the rows of a sparse matrix: the edges into node i are the entries of row i, and "edge k" below
// means the k-th in this order.
class Graph {
 public:
  // No nodes, no edges.
  Graph();
  // From a list of edges source[i] -> destination[i], node ids in [0, num_nodes). Error names the
  // first edge with an end out of range; num_nodes is at most 2^31 - 1.
  Graph(std::int64_t num_nodes, std::span<const std::int32_t> source,
        std::span<const std::int32_t> destination, const GraphOptions& options = {});
  // The same from tensors: i32 or i64 of shape (E) both. Graphs are built on the CPU.
  Graph(std::int64_t num_nodes, const Tensor& source, const Tensor& destination,
        const GraphOptions& options = {});
  // The same from pairs (source, destination): i32 or i64 of shape (E, 2).
  Graph(std::int64_t num_nodes, const Tensor& edges, const GraphOptions& options = {});

  // From rows that are sorted already: row i of the square pattern holds the sources of the edges
  // into node i, ascending. edge_order: (E, i64), see edge_order() below, each below list_size.
  // For subgraphs and files; Error names the first row or edge that breaks this.
  static Graph from_sorted(CsrPattern pattern, Tensor edge_order, std::int64_t list_size);

  std::int64_t num_nodes() const { return pattern().rows(); }
  std::int64_t num_edges() const { return pattern().nnz(); }

  // Row i holds the edges into node i: offsets (N + 1, i64), columns (E, i32) the sources,
  // ascending within a row. Entry k is edge k.
  const CsrPattern& pattern() const;
  // Row j holds the edges out of node j: columns are the destinations, ascending within a row.
  // Built at the first use, once, and shared by all copies; threads may ask at the same time.
  const CsrPattern& reverse() const { return pattern().transposed(); }
  // (E, i64): for each entry of reverse() the edge that it is.
  const Tensor& reverse_order() const { return pattern().transposed_order(); }

  // (E, i32): the ends of the edges.
  const Tensor& sources() const { return pattern().columns(); }
  Tensor destinations() const;
  // (E, i64): for each edge its place in the list that the graph was built from, to bring edge
  // attributes into the graph's order. A reversed copy has the place of its original, an added
  // self-loop -1.
  const Tensor& edge_order() const;

  // (N, i64): the numbers of edges into and out of each node, repeated ones counted.
  Tensor in_degrees() const;
  Tensor out_degrees() const;
  // Edges from a node to itself.
  std::int64_t num_self_loops() const;

  // The same graph with exactly one self-loop at every node (SelfLoops::add). Built at the first
  // use, once, and shared by all copies: layers may ask in every forward pass.
  // The reference is good as long as this object.
  const Graph& with_self_loops() const;
  // D^-1/2 A D^-1/2, N x N, with D the in-degrees (repeated edges counted): edge j -> i has the
  // value 1 / sqrt(d_i d_j), or 0 where j has no edges in. f32 or f64. Its values are computed at
  // the first use, once for each dtype, and shared by all copies. Where every edge has its reverse,
  // its l2 norm is at most 1.
  CsrMatrix normalized_adjacency(DType dtype) const;

  Device device() const { return pattern().device(); }
  // The same graph on another device, where layers run on it. Copied at the first call, and shared
  // as long as somebody holds the copy. All functions work on either; what they compute anew is
  // computed on the CPU and returned on the graph's device.
  Graph to(Device device) const;

  // One graph of several, side by side: the nodes of graph g come after those of the graphs before
  // it, and no edge joins two of them. edge_order() counts through the lists one after the other.
  static Graph batch(std::span<const Graph> graphs);
  // 1 unless the graph comes from batch().
  std::int64_t num_graphs() const;
  // (num_graphs + 1, i64): graph g has the nodes from entry g to before entry g + 1.
  const Tensor& graph_offsets() const;
  // (N, i32): the number of the graph each node belongs to.
  Tensor graph_ids() const;

 private:
  struct Data;
  Graph(CsrPattern pattern, Tensor order, std::int64_t list_size, Tensor graph_offsets);
  static Graph build(std::int64_t num_nodes, std::span<const std::int32_t> source,
                     std::span<const std::int32_t> destination, const GraphOptions& options);

  std::shared_ptr<Data> data_;
};

}  // namespace lipgrad
