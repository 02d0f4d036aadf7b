#include <lipgrad/graph/graph.h>

#include <algorithm>
#include <limits>
#include <mutex>
#include <utility>
#include <vector>

#include <lipgrad/core/check.h>
#include <lipgrad/core/threads.h>

namespace lipgrad {

struct Graph::Data {
  CsrPattern pattern;
  Tensor order;
  std::int64_t list_size;  // edges in the list that `order` refers to
  Tensor graph_offsets;
  std::once_flag loops_once;
  std::shared_ptr<const Graph> with_loops;  // none when the graph itself is the answer
};

namespace {

// Edges on their way into a graph. `place` is where an edge was in the list, -1 for an added one.
struct EdgeList {
  std::vector<std::int32_t> source, destination;
  std::vector<std::int64_t> place;

  explicit EdgeList(std::size_t capacity) {
    source.reserve(capacity);
    destination.reserve(capacity);
    place.reserve(capacity);
  }
  std::size_t size() const { return place.size(); }
  void add(std::int32_t from, std::int32_t to, std::int64_t at) {
    source.push_back(from);
    destination.push_back(to);
    place.push_back(at);
  }
};

void check_edges(std::int64_t num_nodes, std::span<const std::int32_t> source,
                 std::span<const std::int32_t> destination) {
  LIPGRAD_CHECK(num_nodes >= 0 && num_nodes <= std::numeric_limits<std::int32_t>::max(),
                "graph: {} nodes; must be from 0 to {}", num_nodes,
                std::numeric_limits<std::int32_t>::max());
  LIPGRAD_CHECK(source.size() == destination.size(),
                "graph: {} sources and {} destinations; expected as many", source.size(),
                destination.size());
  for (std::size_t i = 0; i < source.size(); ++i)
    LIPGRAD_CHECK(source[i] >= 0 && source[i] < num_nodes && destination[i] >= 0 &&
                      destination[i] < num_nodes,
                  "graph: edge {} is {} -> {}; node ids must be in [0, {})", i, source[i],
                  destination[i], num_nodes);
}

EdgeList apply_options(std::int64_t num_nodes, std::span<const std::int32_t> source,
                       std::span<const std::int32_t> destination, const GraphOptions& options) {
  const bool drop = options.self_loops == SelfLoops::remove || options.self_loops == SelfLoops::add;
  const bool add =
      options.self_loops == SelfLoops::add || options.self_loops == SelfLoops::add_missing;
  EdgeList edges(source.size() * (options.symmetrize ? 2 : 1) +
                 (add ? static_cast<std::size_t>(num_nodes) : 0));
  std::vector<bool> has_loop(add ? static_cast<std::size_t>(num_nodes) : 0);
  for (std::size_t i = 0; i < source.size(); ++i) {
    const std::int32_t from = source[i], to = destination[i];
    if (from == to) {
      if (drop) continue;
      if (add) has_loop[static_cast<std::size_t>(from)] = true;
    }
    edges.add(from, to, static_cast<std::int64_t>(i));
    if (options.symmetrize && from != to) edges.add(to, from, static_cast<std::int64_t>(i));
  }
  if (add)
    for (std::int32_t node = 0; node < num_nodes; ++node)
      if (!has_loop[static_cast<std::size_t>(node)]) edges.add(node, node, -1);
  return edges;
}

// Where each of the keys 0 ... num_keys - 1 begins in the sorted list; the end is last.
std::vector<std::int64_t> key_offsets(std::int64_t num_keys, std::span<const std::int32_t> keys) {
  std::vector<std::int64_t> offsets(static_cast<std::size_t>(num_keys) + 1);
  for (std::int32_t key : keys) ++offsets[static_cast<std::size_t>(key) + 1];
  for (std::size_t key = 1; key < offsets.size(); ++key) offsets[key] += offsets[key - 1];
  return offsets;
}

// Whether the edges are sorted by (destination, source) as they come.
bool is_sorted(const EdgeList& edges) {
  for (std::size_t i = 1; i < edges.size(); ++i)
    if (std::pair(edges.destination[i], edges.source[i]) <
        std::pair(edges.destination[i - 1], edges.source[i - 1]))
      return false;
  return true;
}

// Sorts by (destination, source), equal edges in the order given: two counting sorts, the second of
// which goes through the edges in the order of their sources.
EdgeList sorted(std::int64_t num_nodes, const EdgeList& edges) {
  std::vector<std::int64_t> by_source(edges.size());
  std::vector<std::int64_t> next = key_offsets(num_nodes, edges.source);
  for (std::size_t i = 0; i < edges.size(); ++i)
    by_source[static_cast<std::size_t>(next[static_cast<std::size_t>(edges.source[i])]++)] =
        static_cast<std::int64_t>(i);
  next = key_offsets(num_nodes, edges.destination);
  EdgeList result(0);
  result.source.resize(edges.size());
  result.destination.resize(edges.size());
  result.place.resize(edges.size());
  for (std::int64_t index : by_source) {
    const auto i = static_cast<std::size_t>(index);
    const auto to =
        static_cast<std::size_t>(next[static_cast<std::size_t>(edges.destination[i])]++);
    result.source[to] = edges.source[i];
    result.destination[to] = edges.destination[i];
    result.place[to] = edges.place[i];
  }
  return result;
}

void remove_duplicates(EdgeList& edges) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < edges.size(); ++i) {
    if (kept > 0 && edges.source[i] == edges.source[kept - 1] &&
        edges.destination[i] == edges.destination[kept - 1])
      continue;
    edges.source[kept] = edges.source[i];
    edges.destination[kept] = edges.destination[i];
    edges.place[kept] = edges.place[i];
    ++kept;
  }
  edges.source.resize(kept);
  edges.destination.resize(kept);
  edges.place.resize(kept);
}

// i32 or i64 elements as node ids.
std::vector<std::int32_t> node_ids(const char* what, const Tensor& ids, std::int64_t begin,
                                   std::int64_t stride, std::int64_t count) {
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
  EdgeList edges = apply_options(num_nodes, source, destination, options);
  if (!is_sorted(edges)) edges = sorted(num_nodes, edges);
  if (options.remove_duplicates) remove_duplicates(edges);
  const auto size = static_cast<std::int64_t>(edges.size());
  return Graph(CsrPattern(num_nodes, num_nodes,
                          from_vector({num_nodes + 1}, key_offsets(num_nodes, edges.destination)),
                          from_vector({size}, edges.source)),
               from_vector({size}, edges.place), static_cast<std::int64_t>(source.size()),
               from_values<std::int64_t>({2}, {0, num_nodes}));
}

const CsrPattern& Graph::pattern() const { return data_->pattern; }
const Tensor& Graph::edge_order() const { return data_->order; }

Tensor Graph::destinations() const {
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
  Tensor result = empty({num_nodes()}, i64);
  const std::int64_t* offset = pattern().offsets().data<std::int64_t>();
  std::int64_t* degree = result.mutable_data<std::int64_t>();
  for (std::int64_t i = 0; i < num_nodes(); ++i) degree[i] = offset[i + 1] - offset[i];
  return result;
}

Tensor Graph::out_degrees() const {
  Tensor result = zeros({num_nodes()}, i64);
  const std::int32_t* source = sources().data<std::int32_t>();
  std::int64_t* degree = result.mutable_data<std::int64_t>();
  for (std::int64_t k = 0; k < num_edges(); ++k) ++degree[source[k]];
  return result;
}

std::int64_t Graph::num_self_loops() const {
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

Graph Graph::batch(std::span<const Graph> graphs) {
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
  Tensor result = empty({num_nodes()}, i32);
  const std::int64_t* offset = graph_offsets().data<std::int64_t>();
  std::int32_t* id = result.mutable_data<std::int32_t>();
  for (std::int64_t g = 0; g < num_graphs(); ++g)
    std::fill(id + offset[g], id + offset[g + 1], static_cast<std::int32_t>(g));
  return result;
}

}  // namespace lipgrad
