#include <lipgrad/graph/subgraph.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include <lipgrad/core/check.h>
#include <lipgrad/core/threads.h>
#include <lipgrad/graph/node_ids.h>
#include <lipgrad/ops/index.h>

namespace lipgrad {
namespace {

constexpr std::int64_t grain = 512;

// For each node of the original its number in the part, or -1.
std::vector<std::int32_t> places_of(const std::vector<std::int64_t>& nodes,
                                    std::int64_t num_nodes) {
  std::vector<std::int32_t> place(static_cast<std::size_t>(num_nodes), -1);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    std::int32_t& here = place[static_cast<std::size_t>(nodes[i])];
    LIPGRAD_CHECK(here < 0, "induced_subgraph: node {} is named twice, at {} and {}", nodes[i],
                  here, i);
    here = static_cast<std::int32_t>(i);
  }
  return place;
}

void sums(std::int64_t* counts, std::int64_t n) { std::partial_sum(counts, counts + n, counts); }

// Of rank 1: the ids of the part that are among the nodes, as their places in it, ascending.
Tensor restricted(const Tensor& ids, const std::vector<std::int32_t>& place) {
  std::vector<std::int64_t> kept;
  const std::int64_t* id = ids.data<std::int64_t>();
  for (std::int64_t i = 0; i < ids.numel(); ++i)
    if (const std::int32_t at = place[static_cast<std::size_t>(id[i])]; at >= 0) kept.push_back(at);
  std::sort(kept.begin(), kept.end());
  return from_vector({static_cast<std::int64_t>(kept.size())}, kept);
}

Graph induced(const Graph& graph, const std::vector<std::int64_t>& nodes,
              const std::vector<std::int32_t>& place) {
  const auto count = static_cast<std::int64_t>(nodes.size());
  const std::int64_t* offset = graph.pattern().offsets().data<std::int64_t>();
  const std::int32_t* source = graph.sources().data<std::int32_t>();
  Tensor offsets = zeros({count + 1}, i64);
  std::int64_t* start = offsets.mutable_data<std::int64_t>();
  parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      std::int64_t kept = 0;
      for (std::int64_t k = offset[nodes[i]]; k < offset[nodes[i] + 1]; ++k)
        kept += place[source[k]] >= 0;
      start[i + 1] = kept;
    }
  });
  sums(start, count + 1);
  Tensor columns = empty({start[count]}, i32), order = empty({start[count]}, i64);
  std::int32_t* column = columns.mutable_data<std::int32_t>();
  std::int64_t* edge = order.mutable_data<std::int64_t>();
  const bool ascending = std::is_sorted(nodes.begin(), nodes.end());
  parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end) {
    std::vector<std::pair<std::int32_t, std::int64_t>> row;
    for (std::int64_t i = begin; i < end; ++i) {
      std::int64_t at = start[i];
      for (std::int64_t k = offset[nodes[i]]; k < offset[nodes[i] + 1]; ++k) {
        if (place[source[k]] < 0) continue;
        column[at] = place[source[k]];
        edge[at++] = k;
      }
      if (ascending) continue;  // and so are the sources' new numbers
      row.clear();
      for (at = start[i]; at < start[i + 1]; ++at) row.emplace_back(column[at], edge[at]);
      std::sort(row.begin(), row.end());
      at = start[i];
      for (const auto& [from, k] : row) {
        column[at] = from;
        edge[at++] = k;
      }
    }
  });
  return Graph::from_sorted(CsrPattern(count, count, std::move(offsets), std::move(columns)),
                            std::move(order), graph.num_edges());
}

void check_one(const Graph& graph) {
  LIPGRAD_CHECK(graph.num_graphs() == 1,
                "induced_subgraph: expects one graph, got a batch of {}; take the part before "
                "Graph::batch",
                graph.num_graphs());
}

CsrMatrix select_rows(const CsrMatrix& x, const std::vector<std::int64_t>& nodes) {
  const auto count = static_cast<std::int64_t>(nodes.size());
  const std::int64_t* offset = x.pattern().offsets().data<std::int64_t>();
  Tensor offsets = zeros({count + 1}, i64);
  std::int64_t* start = offsets.mutable_data<std::int64_t>();
  for (std::int64_t i = 0; i < count; ++i) start[i + 1] = offset[nodes[i] + 1] - offset[nodes[i]];
  sums(start, count + 1);
  Tensor columns = empty({start[count]}, i32), values = empty({start[count]}, x.dtype());
  std::int32_t* column = columns.mutable_data<std::int32_t>();
  visit_float("select_rows", x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* value = values.mutable_data<T>();
    parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t first = offset[nodes[i]], size = start[i + 1] - start[i];
        std::copy_n(x.pattern().columns().data<std::int32_t>() + first, size, column + start[i]);
        std::copy_n(x.values().data<T>() + first, size, value + start[i]);
      }
    });
  });
  return CsrMatrix(CsrPattern(count, x.cols(), std::move(offsets), std::move(columns)),
                   std::move(values));
}

}  // namespace

Graph induced_subgraph(const Graph& graph, const Tensor& nodes) {
  check_one(graph);
  const std::vector<std::int64_t> ids = node_ids("induced_subgraph", nodes, graph.num_nodes());
  return induced(graph.to(cpu_device), ids, places_of(ids, graph.num_nodes())).to(graph.device());
}

Neighborhood neighborhood(const Graph& graph, const Tensor& nodes) {
  check_one(graph);
  const std::vector<std::int64_t> wanted = node_ids("neighborhood", nodes, graph.num_nodes());
  const Graph host = graph.to(cpu_device);
  const std::int64_t* offset = host.pattern().offsets().data<std::int64_t>();
  const std::int32_t* source = host.sources().data<std::int32_t>();
  std::vector<std::int32_t> place = places_of(wanted, graph.num_nodes());
  std::vector<bool> expanded(static_cast<std::size_t>(graph.num_nodes()));
  for (const std::int64_t node : wanted) {
    expanded[static_cast<std::size_t>(node)] = true;
    for (std::int64_t k = offset[node]; k < offset[node + 1]; ++k) place[source[k]] = 0;
  }
  // From here on the places are those among all nodes met, ascending.
  std::vector<std::int64_t> met, start{0};
  for (std::int64_t node = 0; node < graph.num_nodes(); ++node) {
    std::int32_t& here = place[static_cast<std::size_t>(node)];
    if (here < 0) continue;
    here = static_cast<std::int32_t>(met.size());
    met.push_back(node);
    start.push_back(start.back() + (expanded[static_cast<std::size_t>(node)]
                                        ? offset[node + 1] - offset[node]
                                        : 0));
  }
  const auto count = static_cast<std::int64_t>(met.size());
  Tensor columns = empty({start.back()}, i32), order = empty({start.back()}, i64);
  std::int32_t* column = columns.mutable_data<std::int32_t>();
  std::int64_t* edge = order.mutable_data<std::int64_t>();
  parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      for (std::int64_t at = start[i]; at < start[i + 1]; ++at) {
        edge[at] = offset[met[i]] + at - start[i];
        column[at] = place[source[edge[at]]];
      }
  });
  std::vector<std::int64_t> rows;
  for (const std::int64_t node : wanted) rows.push_back(place[static_cast<std::size_t>(node)]);
  const Device device = graph.device();
  return {Graph::from_sorted(
              CsrPattern(count, count, from_vector({count + 1}, start), std::move(columns)),
              std::move(order), graph.num_edges())
              .to(device),
          from_vector({count}, met).to(device),
          from_vector({static_cast<std::int64_t>(rows.size())}, rows).to(device)};
}

Features select_rows(const Features& features, const Tensor& nodes) {
  const std::vector<std::int64_t> ids = node_ids("select_rows", nodes, features.rows());
  if (!features.is_sparse())
    return Features(gather(features.dense().detach(), nodes.to(features.device())));
  const CsrMatrix& x = features.sparse();
  const CsrMatrix host = CsrMatrix(x.pattern(), x.values().detach()).to(cpu_device);
  return Features(select_rows(host, ids).to(x.device()));
}

NodeData select_node_data(const NodeData& data, const Graph& graph, const Tensor& nodes) {
  NodeData part;
  part.name = data.name;
  part.task = data.task;
  part.score = data.score;
  part.num_classes = data.num_classes;
  part.graph = graph;
  if (data.edge_features.defined())
    part.edge_features =
        gather(data.edge_features, graph.edge_order().to(data.edge_features.device()));
  if (data.features.defined()) part.features = select_rows(data.features, nodes);
  if (data.labels.defined()) part.labels = gather(data.labels, nodes.to(data.labels.device()));
  const Device device = data.labels.defined() ? data.labels.device() : graph.device();
  for (Tensor NodeData::*ids : {&NodeData::train, &NodeData::val, &NodeData::test})
    part.*ids = empty({0}, i64, device);
  return part;
}

NodeData induced_data(const NodeData& data, const Tensor& nodes) {
  check_one(data.graph);
  const std::vector<std::int64_t> ids = node_ids("induced_data", nodes, data.graph.num_nodes());
  const std::vector<std::int32_t> place = places_of(ids, data.graph.num_nodes());
  NodeData part = select_node_data(
      data, induced(data.graph.to(cpu_device), ids, place).to(data.graph.device()), nodes);
  for (Tensor NodeData::*ids_of : {&NodeData::train, &NodeData::val, &NodeData::test})
    if ((data.*ids_of).defined())
      part.*ids_of = restricted((data.*ids_of).to(cpu_device), place).to((data.*ids_of).device());
  return part;
}

}  // namespace lipgrad
