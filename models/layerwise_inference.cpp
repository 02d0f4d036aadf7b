#include <lipgrad/models/layerwise_inference.h>

#include <algorithm>
#include <numeric>

#include <lipgrad/core/check.h>
#include <lipgrad/core/tape.h>
#include <lipgrad/graph/subgraph.h>
#include <lipgrad/ops/index.h>

namespace lipgrad {
namespace {

Tensor range(std::int64_t begin, std::int64_t end) {
  Tensor ids = empty({end - begin}, i64);
  std::iota(ids.mutable_data<std::int64_t>(), ids.mutable_data<std::int64_t>() + end - begin,
            begin);
  return ids;
}

}  // namespace

Tensor layer_by_blocks(const GraphLayer& layer, const Graph& graph, const Features& h,
                       const Tensor& first, const Tensor& edge_features, std::int64_t block_nodes) {
  const std::int64_t nodes = graph.num_nodes();
  LIPGRAD_CHECK(block_nodes >= 1, "layer_by_blocks: block_nodes must be at least 1, got {}",
                block_nodes);
  LIPGRAD_CHECK(h.rows() == nodes && (!first.defined() || first.size(0) == nodes),
                "layer_by_blocks: features of {} and {} nodes, but a graph of {}", h.rows(),
                first.defined() ? first.size(0) : nodes, nodes);
  LIPGRAD_CHECK(!edge_features.defined() || edge_features.size(0) == graph.num_edges(),
                "layer_by_blocks: features of {} edges, but a graph of {}",
                edge_features.defined() ? edge_features.size(0) : 0, graph.num_edges());
  const NoGrad off;
  if (block_nodes >= nodes) return layer(graph, h, first, edge_features).detach();
  Tensor result;
  for (std::int64_t begin = 0; begin < nodes; begin += block_nodes) {
    const std::int64_t end = std::min(begin + block_nodes, nodes);
    const Neighborhood around = neighborhood(graph, range(begin, end));
    const auto rows_of = [](const Tensor& x, const Tensor& rows) {
      return x.defined() ? gather(x, rows) : Tensor();
    };
    const Tensor rows =
        gather(layer(around.graph, select_rows(h, around.nodes), rows_of(first, around.nodes),
                     rows_of(edge_features, around.graph.edge_order())),
               around.rows);
    LIPGRAD_CHECK(rows.rank() == 2, "layer_by_blocks: the layer returned {}", rows.shape());
    if (!result.defined()) result = empty({nodes, rows.size(1)}, rows.dtype(), rows.device());
    Tensor part = result.alias(rows.shape(), begin * rows.size(1));
    copy_into(part, rows);
  }
  return result;
}

}  // namespace lipgrad
