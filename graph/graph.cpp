#include <lipgrad/graph/graph.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <utility>
#include <vector>

#include <lipgrad/core/check.h>
#include <lipgrad/core/device_copies.h>
#include <lipgrad/core/threads.h>
#include <lipgrad/graph/edge_buckets.h>

namespace lipgrad {

struct Graph::Data {
  CsrPattern pattern;
  Tensor order;
  std::int64_t list_size;  // edges in the list that `order` refers to
  Tensor graph_offsets;
  std::once_flag loops_once;
  std::shared_ptr<const Graph> with_loops;  // none when the graph itself is the answer
  std::once_flag normalized_once[2];
  Tensor normalized[2];  // values of normalized_adjacency(): f32, f64
  // On another device than the CPU: where it was copied from, and of that the copies.
  std::shared_ptr<Data> host;
  DeviceCopies<Data> copies;
};

namespace {

// i32 or i64 elements as node ids.
std::vector<std::int32_t> node_ids(const char* what, const Tensor& given, std::int64_t begin,
                                   std::int64_t stride, std::int64_t count) {
  const Tensor ids = given.to(cpu_device);
  std::vector<std::int32_t> result(static_cast<std::size_t>(count));
  const auto copy = [&](const auto* from) {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t id = from[begin + i * stride];
      LIPGRAD_CHECK(id >= std::numeric_limits<std::int32_t>::min() &&
                        id <= std::numeric_limits<std::int32_t>::max(),
                    "graph: edge {} has the {} {}, which is no node id", i, what, id);
      result[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(id);
    }
  };
  if (ids.dtype() == i32)
    copy(ids.data<std::int32_t>());
  else
    copy(ids.data<std::int64_t>());
  return result;
}

bool is_index(const Tensor& ids, int rank) {
  return ids.defined() && (ids.dtype() == i32 || ids.dtype() == i64) && ids.rank() == rank;
}

}  // namespace

Graph::Graph() : Graph(0, std::span<const std::int32_t>(), std::span<const std::int32_t>()) {}

Graph::Graph(std::int64_t num_nodes, std::span<const std::int32_t> source,
             std::span<const std::int32_t> destination, const GraphOptions& options)
    : Graph(build(num_nodes, source, destination, options)) {}

Graph::Graph(std::int64_t num_nodes, const Tensor& source, const Tensor& destination,
             const GraphOptions& options) {
  LIPGRAD_CHECK(is_index(source, 1) && is_index(destination, 1),
                "graph: sources and destinations must be i32 or i64 of rank 1, got {} and {}",
                source.str(), destination.str());
  *this = build(num_nodes, node_ids("source", source, 0, 1, source.numel()),
                node_ids("destination", destination, 0, 1, destination.numel()), options);
}

Graph::Graph(std::int64_t num_nodes, const Tensor& edges, const GraphOptions& options) {
  LIPGRAD_CHECK(is_index(edges, 2) && edges.size(1) == 2,
                "graph: edges must be i32 or i64 of shape (E, 2), got {}", edges.str());
  *this = build(num_nodes, node_ids("source", edges, 0, 2, edges.size(0)),
                node_ids("destination", edges, 1, 2, edges.size(0)), options);
}

Graph::Graph(CsrPattern pattern, Tensor order, std::int64_t list_size, Tensor graph_offsets)
    : data_(std::make_shared<Data>()) {
  data_->pattern = std::move(pattern);
  data_->order = std::move(order);
  data_->list_size = list_size;
  data_->graph_offsets = std::move(graph_offsets);
}

Graph Graph::build(std::int64_t num_nodes, std::span<const std::int32_t> source,
                   std::span<const std::int32_t> destination, const GraphOptions& options) {
  check_edges(num_nodes, source, destination);
  Tensor offsets, sources, places;
  EdgeBuckets(num_nodes, source, destination, options).write(offsets, sources, places);
  return Graph(CsrPattern(num_nodes, num_nodes, std::move(offsets), std::move(sources)),
               std::move(places), static_cast<std::int64_t>(source.size()),
               from_values<std::int64_t>({2}, {0, num_nodes}));
}

Graph Graph::from_sorted(CsrPattern pattern, Tensor edge_order, std::int64_t list_size) {
  LIPGRAD_CHECK(pattern.defined() && pattern.rows() == pattern.cols() && pattern.device().is_cpu(),
                "graph: expects a square pattern on the CPU, got {} x {}", pattern.rows(),
                pattern.cols());
  LIPGRAD_CHECK(edge_order.defined() && edge_order.dtype() == i64 &&
                    edge_order.shape() == Shape{pattern.nnz()} && edge_order.device().is_cpu(),
                "graph: the order of {} edges must be i64 of shape ({}) on the CPU, got {}",
                pattern.nnz(), pattern.nnz(), edge_order.str());
  const std::int64_t* offset = pattern.offsets().data<std::int64_t>();
  const std::int32_t* source = pattern.columns().data<std::int32_t>();
  const std::int64_t* place = edge_order.data<std::int64_t>();
  parallel_for(pattern.rows(), 4096, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      for (std::int64_t k = offset[i]; k < offset[i + 1]; ++k) {
        LIPGRAD_CHECK(k == offset[i] || source[k - 1] <= source[k],
                      "graph: the sources of the edges into node {} descend from {} to {}", i,
                      source[k - 1], source[k]);
        LIPGRAD_CHECK(place[k] >= -1 && place[k] < list_size,
                      "graph: edge {} has the place {} in a list of {}", k, place[k], list_size);
      }
  });
  const std::int64_t nodes = pattern.rows();
  return Graph(std::move(pattern), edge_order.detach(), list_size,
               from_values<std::int64_t>({2}, {0, nodes}));
}

const CsrPattern& Graph::pattern() const { return data_->pattern; }
const Tensor& Graph::edge_order() const { return data_->order; }

Tensor Graph::destinations() const {
  if (!device().is_cpu()) return to(cpu_device).destinations().to(device());
  Tensor result = empty({num_edges()}, i32);
  const std::int64_t* offset = pattern().offsets().data<std::int64_t>();
  std::int32_t* to = result.mutable_data<std::int32_t>();
  parallel_for(num_nodes(), 4096, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      std::fill(to + offset[i], to + offset[i + 1], static_cast<std::int32_t>(i));
  });
  return result;
}

Tensor Graph::in_degrees() const {
  if (!device().is_cpu()) return to(cpu_device).in_degrees().to(device());
  Tensor result = empty({num_nodes()}, i64);
  const std::int64_t* offset = pattern().offsets().data<std::int64_t>();
  std::int64_t* degree = result.mutable_data<std::int64_t>();
  for (std::int64_t i = 0; i < num_nodes(); ++i) degree[i] = offset[i + 1] - offset[i];
  return result;
}

Tensor Graph::out_degrees() const {
  if (!device().is_cpu()) return to(cpu_device).out_degrees().to(device());
  Tensor result = zeros({num_nodes()}, i64);
  const std::int32_t* source = sources().data<std::int32_t>();
  std::int64_t* degree = result.mutable_data<std::int64_t>();
  for (std::int64_t k = 0; k < num_edges(); ++k) ++degree[source[k]];
  return result;
}

std::int64_t Graph::num_self_loops() const {
  if (!device().is_cpu()) return to(cpu_device).num_self_loops();
  const std::int64_t* offset = pattern().offsets().data<std::int64_t>();
  const std::int32_t* source = sources().data<std::int32_t>();
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < num_nodes(); ++i) {
    const auto node = static_cast<std::int32_t>(i);
    const auto [first, last] = std::equal_range(source + offset[i], source + offset[i + 1], node);
    count += last - first;
  }
  return count;
}

const Graph& Graph::with_self_loops() const {
  // A Graph is one shared pointer and can be handed out by reference from where Data keeps it; the
  // answer "this graph itself" is not stored, as it would keep itself alive.
  std::call_once(data_->loops_once, [this] {
    if (data_->host) {
      const Graph host = to(cpu_device);
      const Graph& looped = host.with_self_loops();
      if (looped.data_ != host.data_)
        data_->with_loops = std::make_shared<Graph>(looped.to(device()));
      return;
    }
    const std::int64_t loops = num_self_loops();
    const std::int64_t* offset = pattern().offsets().data<std::int64_t>();
    const std::int32_t* source = sources().data<std::int32_t>();
    bool one_each = loops == num_nodes();
    for (std::int64_t i = 0; one_each && i < num_nodes(); ++i)
      one_each = std::binary_search(source + offset[i], source + offset[i + 1],
                                    static_cast<std::int32_t>(i));
    if (one_each) return;
    // Row by row: the rows are sorted, so that the loop's place is where i would be inserted.
    const std::int64_t edges = num_edges() - loops + num_nodes();
    Tensor offsets = empty({num_nodes() + 1}, i64), columns = empty({edges}, i32),
           order = empty({edges}, i64);
    std::int64_t* start = offsets.mutable_data<std::int64_t>();
    std::int32_t* column = columns.mutable_data<std::int32_t>();
    std::int64_t* place = order.mutable_data<std::int64_t>();
    const std::int64_t* old_place = data_->order.data<std::int64_t>();
    std::int64_t next = 0;
    for (std::int64_t i = 0; i < num_nodes(); ++i) {
      const auto node = static_cast<std::int32_t>(i);
      start[i] = next;
      const auto copy = [&](std::int64_t begin, std::int64_t end) {
        std::copy(source + begin, source + end, column + next);
        std::copy(old_place + begin, old_place + end, place + next);
        next += end - begin;
      };
      const auto [first, last] = std::equal_range(source + offset[i], source + offset[i + 1], node);
      copy(offset[i], first - source);
      column[next] = node;
      place[next++] = -1;
      copy(last - source, offset[i + 1]);
    }
    start[num_nodes()] = next;
    data_->with_loops = std::make_shared<Graph>(
        Graph(CsrPattern(num_nodes(), num_nodes(), std::move(offsets), std::move(columns)),
              std::move(order), data_->list_size, data_->graph_offsets));
  });
  return data_->with_loops ? *data_->with_loops : *this;
}

CsrMatrix Graph::normalized_adjacency(DType dtype) const {
  LIPGRAD_CHECK(is_floating(dtype), "graph: a normalised adjacency is f32 or f64, not {}", dtype);
  const int which = dtype == f32 ? 0 : 1;
  Tensor& values = data_->normalized[which];
  std::call_once(data_->normalized_once[which], [&] {
    if (data_->host) {
      values = to(cpu_device).normalized_adjacency(dtype).values().to(device());
      return;
    }
    values = empty({num_edges()}, dtype);
    const std::int64_t* offset = pattern().offsets().data<std::int64_t>();
    const std::int32_t* source = sources().data<std::int32_t>();
    visit_float("graph", dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      T* value = values.mutable_data<T>();
      parallel_for(num_nodes(), 1024, [&](std::int64_t begin, std::int64_t end) {
        const auto degree = [&](std::int64_t node) {
          return static_cast<double>(offset[node + 1] - offset[node]);
        };
        for (std::int64_t i = begin; i < end; ++i)
          for (std::int64_t k = offset[i]; k < offset[i + 1]; ++k) {
            const double product = degree(i) * degree(source[k]);
            value[k] = product > 0 ? static_cast<T>(1 / std::sqrt(product)) : T(0);
          }
      });
    });
  });
  return CsrMatrix(pattern(), values);
}

Graph Graph::to(Device device) const {
  if (device == this->device()) return *this;
  Graph result(*this);
  const std::shared_ptr<Data>& host = data_->host ? data_->host : data_;
  if (device.is_cpu()) {
    result.data_ = host;
    return result;
  }
  result.data_ = host->copies.get(device, [&] {
    auto copy = std::make_shared<Data>();
    copy->pattern = host->pattern.to(device);
    copy->order = host->order.to(device);
    copy->list_size = host->list_size;
    copy->graph_offsets = host->graph_offsets.to(device);
    copy->host = host;
    return copy;
  });
  return result;
}

Graph Graph::batch(std::span<const Graph> graphs) {
  if (!graphs.empty() && !graphs[0].device().is_cpu()) {
    const Device device = graphs[0].device();
    std::vector<Graph> local;
    for (const Graph& graph : graphs) {
      LIPGRAD_CHECK(graph.device() == device, "graph: a batch of graphs on {} and {}", device,
                    graph.device());
      local.push_back(graph.to(cpu_device));
    }
    return batch(local).to(device);
  }
  std::int64_t nodes = 0, edges = 0;
  for (const Graph& graph : graphs) {
    nodes += graph.num_nodes();
    edges += graph.num_edges();
  }
  LIPGRAD_CHECK(nodes <= std::numeric_limits<std::int32_t>::max(),
                "graph: a batch of {} nodes; at most {} are supported", nodes,
                std::numeric_limits<std::int32_t>::max());
  Tensor offsets = empty({nodes + 1}, i64), columns = empty({edges}, i32),
         order = empty({edges}, i64);
  std::int64_t* start = offsets.mutable_data<std::int64_t>();
  std::int32_t* column = columns.mutable_data<std::int32_t>();
  std::int64_t* place = order.mutable_data<std::int64_t>();
  std::vector<std::int64_t> graph_offsets{0};
  std::int64_t node = 0, edge = 0, listed = 0;
  for (const Graph& graph : graphs) {
    LIPGRAD_CHECK(graph.device().is_cpu(), "graph: a batch of graphs on {} and {}", cpu_device,
                  graph.device());
    const std::int64_t* offset = graph.pattern().offsets().data<std::int64_t>();
    const std::int32_t* source = graph.sources().data<std::int32_t>();
    const std::int64_t* old_place = graph.edge_order().data<std::int64_t>();
    for (std::int64_t i = 0; i < graph.num_nodes(); ++i) start[node + i] = edge + offset[i];
    for (std::int64_t k = 0; k < graph.num_edges(); ++k) {
      column[edge + k] = static_cast<std::int32_t>(node + source[k]);
      place[edge + k] = old_place[k] < 0 ? -1 : listed + old_place[k];
    }
    // A batch of batches keeps the graphs apart.
    const std::int64_t* inner = graph.graph_offsets().data<std::int64_t>();
    for (std::int64_t g = 1; g <= graph.num_graphs(); ++g) graph_offsets.push_back(node + inner[g]);
    node += graph.num_nodes();
    edge += graph.num_edges();
    listed += graph.data_->list_size;
  }
  start[nodes] = edges;
  const auto count = static_cast<std::int64_t>(graph_offsets.size());
  return Graph(CsrPattern(nodes, nodes, std::move(offsets), std::move(columns)), std::move(order),
               listed, from_vector({count}, graph_offsets));
}

std::int64_t Graph::num_graphs() const { return data_->graph_offsets.numel() - 1; }
const Tensor& Graph::graph_offsets() const { return data_->graph_offsets; }

Tensor Graph::graph_ids() const {
  if (!device().is_cpu()) return to(cpu_device).graph_ids().to(device());
  Tensor result = empty({num_nodes()}, i32);
  const std::int64_t* offset = graph_offsets().data<std::int64_t>();
  std::int32_t* id = result.mutable_data<std::int32_t>();
  for (std::int64_t g = 0; g < num_graphs(); ++g)
    std::fill(id + offset[g], id + offset[g + 1], static_cast<std::int32_t>(g));
  return result;
}

}  // namespace lipgrad
