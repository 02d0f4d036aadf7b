#pragma once

// Private: how a list of edges becomes the sorted rows of a Graph.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <lipgrad/core/check.h>
#include <lipgrad/core/threads.h>
#include <lipgrad/graph/graph.h>

namespace lipgrad {

// An edge on its way into a graph. Sorting by (key, place) keeps equal edges in the order of the
// list.
struct ListedEdge {
  std::uint64_t key;   // destination, then source
  std::int64_t place;  // in the list; -1 for an added self-loop

  std::int64_t destination() const { return static_cast<std::int64_t>(key >> 32); }
  std::int32_t source() const { return static_cast<std::int32_t>(key & 0xffffffff); }
  friend bool operator<(const ListedEdge& a, const ListedEdge& b) {
    return a.key != b.key ? a.key < b.key : a.place < b.place;
  }
};

inline void check_edges(std::int64_t num_nodes, std::span<const std::int32_t> source,
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

// Calls f(source, destination, place) for every edge that the options make of the list.
template <class F>
void for_each_edge(std::int64_t num_nodes, std::span<const std::int32_t> source,
                   std::span<const std::int32_t> destination, const GraphOptions& options, F&& f) {
  const bool drop = options.self_loops == SelfLoops::remove || options.self_loops == SelfLoops::add;
  const bool add =
      options.self_loops == SelfLoops::add || options.self_loops == SelfLoops::add_missing;
  std::vector<bool> has_loop(add ? static_cast<std::size_t>(num_nodes) : 0);
  for (std::size_t i = 0; i < source.size(); ++i) {
    const std::int32_t from = source[i], to = destination[i];
    const auto place = static_cast<std::int64_t>(i);
    if (from == to) {
      if (drop) continue;
      if (add) has_loop[static_cast<std::size_t>(from)] = true;
    }
    f(from, to, place);
    if (options.symmetrize && from != to) f(to, from, place);
  }
  if (add)
    for (std::int32_t node = 0; node < num_nodes; ++node)
      if (!has_loop[static_cast<std::size_t>(node)]) f(node, node, std::int64_t{-1});
}

// The edges sorted, in buckets of destinations that fit into a core's cache: one sequential pass
// over the list fills them, and each is then sorted on its own.
class EdgeBuckets {
 public:
  EdgeBuckets(std::int64_t num_nodes, std::span<const std::int32_t> source,
              std::span<const std::int32_t> destination, const GraphOptions& options)
      : num_nodes_(num_nodes) {
    constexpr std::int64_t wanted_size = 1 << 15, most = 4096;
    const auto listed = static_cast<std::int64_t>(source.size());
    const std::int64_t wanted = std::clamp(listed / wanted_size, std::int64_t{1}, most);
    while ((num_nodes >> shift_) >= wanted) ++shift_;
    begin_.assign(static_cast<std::size_t>(num_nodes >> shift_) + 2, 0);
    for_each_edge(
        num_nodes, source, destination, options,
        [&](std::int32_t, std::int32_t to, std::int64_t) { ++begin_[(to >> shift_) + 1]; });
    for (std::size_t b = 1; b < begin_.size(); ++b) begin_[b] += begin_[b - 1];
    edges_.resize(static_cast<std::size_t>(begin_.back()));
    std::vector<std::int64_t> next = begin_;
    for_each_edge(num_nodes, source, destination, options,
                  [&](std::int32_t from, std::int32_t to, std::int64_t place) {
                    const std::uint64_t key =
                        static_cast<std::uint64_t>(to) << 32 | static_cast<std::uint32_t>(from);
                    edges_[next[to >> shift_]++] = {key, place};
                  });
    end_.assign(begin_.begin() + 1, begin_.end());
    parallel_for(size(), 1, [&](std::int64_t b, std::int64_t) {
      const auto first = edges_.begin() + begin_[b];
      auto last = edges_.begin() + end_[b];
      if (!std::is_sorted(first, last)) std::sort(first, last);
      if (options.remove_duplicates)
        last = std::unique(first, last,
                           [](const ListedEdge& x, const ListedEdge& y) { return x.key == y.key; });
      end_[b] = last - edges_.begin();
    });
  }

  // Writes offsets (N + 1), sources and places (E each, allocated here).
  void write(Tensor& offsets, Tensor& sources, Tensor& places) const {
    std::vector<std::int64_t> out(static_cast<std::size_t>(size()) + 1);
    for (std::int64_t b = 0; b < size(); ++b) out[b + 1] = out[b] + end_[b] - begin_[b];
    offsets = empty({num_nodes_ + 1}, i64);
    sources = empty({out.back()}, i32);
    places = empty({out.back()}, i64);
    std::int64_t* offset = offsets.mutable_data<std::int64_t>();
    std::int32_t* source = sources.mutable_data<std::int32_t>();
    std::int64_t* place = places.mutable_data<std::int64_t>();
    parallel_for(size(), 1, [&](std::int64_t b, std::int64_t) {
      std::int64_t at = out[b], row = b << shift_;
      const std::int64_t rows_end = std::min((b + 1) << shift_, num_nodes_);
      for (std::int64_t k = begin_[b]; k < end_[b]; ++k, ++at) {
        while (row <= edges_[k].destination()) offset[row++] = at;
        source[at] = edges_[k].source();
        place[at] = edges_[k].place;
      }
      while (row < rows_end) offset[row++] = at;
    });
    offset[num_nodes_] = out.back();
  }

 private:
  std::int64_t size() const { return static_cast<std::int64_t>(end_.size()); }

  std::int64_t num_nodes_;
  int shift_ = 0;  // destination >> shift_ is the number of the bucket
  std::vector<ListedEdge> edges_;
  std::vector<std::int64_t> begin_, end_;
};

}  // namespace lipgrad
