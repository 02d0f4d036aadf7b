#include <lipgrad/graph/generated_ogb.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include <lipgrad/core/check.h>
#include <lipgrad/core/philox.h>
#include <lipgrad/core/threads.h>
#include <lipgrad/graph/dataset_parts.h>

namespace lipgrad {
namespace {

// What random numbers are for: each purpose has a stream of its own.
enum Stream : std::uint64_t { kOrder, kNodes, kWeights, kEdges, kFeatures, kMeans, kLabels };

// The four words of item `index` of a stream. All that follows are whole numbers, or sums, products
// and roots, which are the same everywhere.
struct Words {
  PhiloxBlock block;

  Words(std::uint64_t seed, std::uint64_t stream, std::uint64_t index)
      : block(philox(seed, stream, index)) {}
  std::uint64_t wide(int k) const {
    return std::uint64_t{block.word[2 * k]} << 32 | block.word[2 * k + 1];
  }
  double unit(int k) const { return (static_cast<double>(block.word[k]) + 0.5) / 4294967296.0; }
  // Eight numbers of 16 bits.
  std::uint32_t half(int k) const { return block.word[k / 2] >> (16 * (k % 2)) & 0xffff; }
  // Nearly normal, of mean 0 and variance 1: the sum of eight uniform numbers.
  float normal() const {
    std::int32_t sum = 0;
    for (int k = 0; k < 8; ++k) sum += static_cast<std::int32_t>(half(k));
    return static_cast<float>(2 * sum - 8 * 65535) * static_cast<float>(1.0 / 107018.2);
  }
};

std::uint64_t scaled(std::uint64_t bits, std::uint64_t bound) {
  return static_cast<std::uint64_t>(static_cast<unsigned __int128>(bits) * bound >> 64);
}

std::vector<std::int32_t> permutation(std::int64_t n, std::uint64_t seed, std::uint64_t stream) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i)
    order[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i);
  for (std::int64_t i = n; i > 1; --i)
    std::swap(order[static_cast<std::size_t>(i - 1)],
              order[scaled(Words(seed, stream, static_cast<std::uint64_t>(i)).wide(0),
                           static_cast<std::uint64_t>(i))]);
  return order;
}

// Draws items with given weights: a table leads to the place, or close to it.
class Urn {
 public:
  void add(std::int32_t item, std::uint64_t weight) {
    items_.push_back(item);
    sums_.push_back((sums_.empty() ? 0 : sums_.back()) + weight);
  }
  void finish() {
    if (total() == 0) return;
    while ((sums_.back() >> shift_) > 2 * sums_.size()) ++shift_;
    first_.resize((sums_.back() >> shift_) + 2);
    std::size_t place = 0;
    for (std::size_t slot = 0; slot < first_.size(); ++slot) {
      while (place + 1 < sums_.size() && sums_[place] <= slot << shift_) ++place;
      first_[slot] = static_cast<std::uint32_t>(place);
    }
  }
  std::uint64_t total() const { return sums_.empty() ? 0 : sums_.back(); }
  std::int32_t draw(std::uint64_t bits) const {
    const std::uint64_t at = scaled(bits, sums_.back());
    std::size_t place = first_[at >> shift_];
    while (sums_[place] <= at) ++place;
    return items_[place];
  }

 private:
  std::vector<std::int32_t> items_;
  std::vector<std::uint64_t> sums_;
  std::vector<std::uint32_t> first_;
  int shift_ = 0;
};

// Pairs of nodes, each once, drawn until there are enough. `draw(i)` is the i-th candidate, or
// (-1, -1) for none.
class Pairs {
 public:
  template <class Draw>
  Pairs(const char* what, std::int64_t nodes, std::int64_t wanted, Draw draw)
      : rows_(static_cast<std::size_t>(nodes) + 1) {
    std::vector<std::uint64_t> keys = candidates(0, wanted, draw);
    build(keys, nodes);
    std::int64_t drawn = wanted;
    while (size() < wanted) {
      const std::int64_t missing = wanted - size();
      LIPGRAD_CHECK(drawn < 64 * wanted + 1024, "{}: {} edges are too many for {} nodes", what,
                    wanted, nodes);
      const std::int64_t next = std::max<std::int64_t>(missing, 256);
      keys = candidates(drawn, next, draw);
      drawn += next;
      std::vector<std::uint64_t> fresh;
      std::vector<std::uint64_t> seen;
      std::sort(keys.begin(), keys.end());
      keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
      for (const std::uint64_t key : keys)
        if (!contains(key)) fresh.push_back(key);
      if (static_cast<std::int64_t>(fresh.size()) > missing)
        fresh.resize(static_cast<std::size_t>(missing));
      std::vector<std::uint64_t> merged(extra_.size() + fresh.size());
      std::merge(extra_.begin(), extra_.end(), fresh.begin(), fresh.end(), merged.begin());
      extra_ = std::move(merged);
    }
  }

  std::int64_t size() const { return static_cast<std::int64_t>(seconds_.size() + extra_.size()); }
  // Calls f(first, second) for each.
  template <class F>
  void for_each(F&& f) const {
    for (std::size_t row = 0; row + 1 < rows_.size(); ++row)
      for (std::int64_t k = rows_[row]; k < rows_[row + 1]; ++k)
        f(static_cast<std::int32_t>(row), seconds_[static_cast<std::size_t>(k)]);
    for (const std::uint64_t key : extra_)
      f(static_cast<std::int32_t>(key >> 32), static_cast<std::int32_t>(key & 0xffffffff));
  }

 private:
  static constexpr std::int64_t kGrain = 1 << 14;

  template <class Draw>
  static std::vector<std::uint64_t> candidates(std::int64_t begin, std::int64_t count,
                                               const Draw& draw) {
    std::vector<std::uint64_t> keys(static_cast<std::size_t>(count));
    parallel_for(count, kGrain, [&](std::int64_t from, std::int64_t to) {
      for (std::int64_t i = from; i < to; ++i) {
        const auto [first, second] = draw(static_cast<std::uint64_t>(begin + i));
        keys[static_cast<std::size_t>(i)] =
            static_cast<std::uint64_t>(static_cast<std::uint32_t>(first)) << 32 |
            static_cast<std::uint32_t>(second);
      }
    });
    std::erase_if(keys, [](std::uint64_t key) { return key >> 63 != 0; });
    return keys;
  }

  // Sorted rows, without repetitions.
  void build(const std::vector<std::uint64_t>& keys, std::int64_t nodes) {
    std::vector<std::int64_t> start(static_cast<std::size_t>(nodes) + 1), end;
    for (const std::uint64_t key : keys) ++start[(key >> 32) + 1];
    for (std::size_t r = 1; r < start.size(); ++r) start[r] += start[r - 1];
    end = start;
    std::vector<std::int32_t> second(keys.size());
    for (const std::uint64_t key : keys)
      second[static_cast<std::size_t>(end[key >> 32]++)] =
          static_cast<std::int32_t>(key & 0xffffffff);
    parallel_for(nodes, 64, [&](std::int64_t begin, std::int64_t stop) {
      for (std::int64_t r = begin; r < stop; ++r) {
        const auto row = static_cast<std::size_t>(r);
        std::sort(second.begin() + start[row], second.begin() + end[row]);
        end[row] =
            std::unique(second.begin() + start[row], second.begin() + end[row]) - second.begin();
      }
    });
    std::int64_t to = 0;
    for (std::size_t r = 0; r + 1 < rows_.size(); ++r) {
      rows_[r] = to;
      std::copy(second.begin() + start[r], second.begin() + end[r], second.begin() + to);
      to += end[r] - start[r];
    }
    rows_.back() = to;
    second.resize(static_cast<std::size_t>(to));
    seconds_ = std::move(second);
  }

  bool contains(std::uint64_t key) const {
    const auto row = static_cast<std::size_t>(key >> 32);
    return std::binary_search(seconds_.begin() + rows_[row], seconds_.begin() + rows_[row + 1],
                              static_cast<std::int32_t>(key & 0xffffffff)) ||
           std::binary_search(extra_.begin(), extra_.end(), key);
  }

  std::vector<std::int64_t> rows_;
  std::vector<std::int32_t> seconds_;
  std::vector<std::uint64_t> extra_;
};

Graph graph_of(const Pairs& pairs, std::int64_t nodes, SelfLoops self_loops, bool symmetric) {
  std::vector<std::int32_t> source, destination;
  source.reserve(static_cast<std::size_t>(pairs.size()));
  destination.reserve(static_cast<std::size_t>(pairs.size()));
  pairs.for_each([&](std::int32_t u, std::int32_t v) {
    source.push_back(u);
    destination.push_back(v);
  });
  return Graph(nodes, source, destination,
               {.symmetrize = true, .remove_duplicates = !symmetric, .self_loops = self_loops});
}

// The nodes of a random order, cut into three parts of given shares.
void set_split(NodeData& data, std::uint64_t seed, double train, double val) {
  const std::int64_t nodes = data.graph.num_nodes();
  const std::vector<std::int32_t> order = permutation(nodes, seed, kOrder);
  const auto rounded = [&](double share) {
    return static_cast<std::int64_t>(share * static_cast<double>(nodes) + 0.5);
  };
  const std::int64_t first = std::min(nodes, rounded(train)),
                     second = std::min(nodes, first + rounded(val));
  const auto part = [&](std::int64_t begin, std::int64_t end) {
    std::vector<std::int64_t> ids(order.begin() + begin, order.begin() + end);
    std::sort(ids.begin(), ids.end());
    return detail::vector_tensor(ids);
  };
  data.train = part(0, first);
  data.val = part(first, second);
  data.test = part(second, nodes);
}

void check_sizes(const char* op, std::int64_t nodes, std::int64_t edges) {
  LIPGRAD_CHECK(nodes >= 2 && nodes <= std::numeric_limits<std::int32_t>::max() && edges >= 0 &&
                    edges <= nodes * (nodes - 1) / 8,
                "{}: {} edges among {} nodes", op, edges, nodes);
}

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace

NodeData generated_arxiv(const GeneratedArxivOptions& o, std::uint64_t seed) {
  constexpr auto op = "generated_arxiv";
  check_sizes(op, o.num_nodes, o.num_edges);
  LIPGRAD_CHECK(o.num_classes >= 1 && o.num_classes <= o.num_nodes && o.num_features >= 1 &&
                    o.homophily >= 0 && o.homophily <= 1,
                "{}: {} classes of {} features, homophily {}", op, o.num_classes, o.num_features,
                o.homophily);
  const std::int64_t n = o.num_nodes, classes = o.num_classes, width = o.num_features;
  Urn topics;
  for (std::int64_t c = 0; c < classes; ++c)
    topics.add(static_cast<std::int32_t>(c),
               (std::uint64_t{1} << 20) / static_cast<std::uint64_t>(c + 2));
  topics.finish();
  std::vector<std::int32_t> topic(at(n));
  Tensor labels = empty({n}, i64);
  for (std::int64_t i = 0; i < n; ++i) {
    const Words w(seed, kNodes, static_cast<std::uint64_t>(i));
    topic[at(i)] = topics.draw(w.wide(0));
    // One label in ten says nothing.
    const Words l(seed, kLabels, static_cast<std::uint64_t>(i));
    labels.mutable_data<std::int64_t>()[i] =
        w.unit(2) < 0.1 ? topics.draw(l.wide(0)) : topic[at(i)];
  }
  Urn citing, cited;
  std::vector<Urn> cited_of(at(classes));
  const std::vector<std::int32_t> by_fame = permutation(n, seed, kWeights);
  std::vector<std::uint64_t> fame(at(n)), sums(at(classes));
  for (std::int64_t r = 0; r < n; ++r) {
    const std::int32_t node = by_fame[at(r)];
    const double rank = static_cast<double>(r) + 1.25, root = std::sqrt(rank);
    fame[at(node)] = static_cast<std::uint64_t>(4294967296.0 / (root * std::sqrt(root)));
    sums[at(topic[at(node)])] += fame[at(node)];
  }
  for (std::int64_t node = 0; node < n; ++node) {
    // A paper that would be cited by most of its topic is known beyond it instead.
    const std::uint64_t own = std::min(fame[at(node)], sums[at(topic[at(node)])] / 20);
    const double beyond = static_cast<double>(fame[at(node)] - own) * o.homophily;
    cited_of[at(topic[at(node)])].add(static_cast<std::int32_t>(node), own);
    cited.add(
        static_cast<std::int32_t>(node),
        fame[at(node)] + static_cast<std::uint64_t>(beyond / std::max(1 - o.homophily, 0.01)));
    const double fourth =
        std::sqrt(std::sqrt(Words(seed, kNodes, static_cast<std::uint64_t>(node)).unit(3)));
    citing.add(static_cast<std::int32_t>(node),
               static_cast<std::uint64_t>(65536.0 / (fourth * std::sqrt(fourth))));
  }
  citing.finish();
  cited.finish();
  for (Urn& urn : cited_of) urn.finish();
  const Pairs pairs(op, n, o.num_edges, [&](std::uint64_t i) {
    const Words a(seed, kEdges, 2 * i), b(seed, kEdges, 2 * i + 1);
    const std::int32_t from = citing.draw(a.wide(0));
    const Urn& own = cited_of[at(topic[at(from)])];
    const Urn& urn = b.unit(0) < o.homophily && own.total() > 0 ? own : cited;
    const std::int32_t to = urn.draw(a.wide(1));
    return from == to ? std::pair{-1, -1} : std::pair{from, to};
  });
  NodeData data;
  data.name = "generated-arxiv";
  data.graph = graph_of(pairs, n, o.self_loops, false);
  Tensor features = empty({n, width}, f32), means = empty({classes, width}, f32);
  for (std::int64_t k = 0; k < classes * width; ++k)
    means.mutable_data<float>()[k] =
        0.3f * Words(seed, kMeans, static_cast<std::uint64_t>(k)).normal();
  float* x = features.mutable_data<float>();
  const float* mean = means.data<float>();
  parallel_for(n, 256, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      for (std::int64_t c = 0; c < width; ++c)
        x[i * width + c] =
            0.3f * (mean[topic[at(i)] * width + c] +
                    Words(seed, kFeatures, static_cast<std::uint64_t>(i * width + c)).normal());
  });
  data.features = Features(features);
  data.labels = labels;
  data.num_classes = classes;
  set_split(data, seed, 90941.0 / 169343, 29799.0 / 169343);
  check_node_data(data);
  return data;
}

NodeData generated_proteins(const GeneratedProteinsOptions& o, std::uint64_t seed) {
  constexpr auto op = "generated_proteins";
  constexpr std::int64_t kinds = 8;  // of species, and of roles
  check_sizes(op, o.num_nodes, o.num_edges);
  LIPGRAD_CHECK(o.num_edge_features >= 1 && o.num_edge_features <= 8 && o.num_tasks >= 2,
                "{}: {} features of edges, {} tasks; expected 1 to 8, and 2 or more", op,
                o.num_edge_features, o.num_tasks);
  const std::int64_t n = o.num_nodes, width = o.num_edge_features;
  std::vector<std::uint8_t> species(at(n)), role(at(n));
  for (std::int64_t i = 0; i < n; ++i) {
    const Words w(seed, kNodes, static_cast<std::uint64_t>(i));
    species[at(i)] = static_cast<std::uint8_t>(w.block.word[0] % kinds);
    role[at(i)] = static_cast<std::uint8_t>(w.block.word[1] % kinds);
  }
  Urn all;
  std::vector<Urn> of_species(at(kinds));
  const std::vector<std::int32_t> by_degree = permutation(n, seed, kWeights);
  // The expected order statistics of n exponentially distributed numbers: 1/r + ... + 1/n.
  double weight = 0;
  for (std::int64_t r = n; r >= 1; --r) {
    weight += 1.0 / static_cast<double>(r);
    const std::int32_t node = by_degree[at(r - 1)];
    const auto whole = static_cast<std::uint64_t>(weight * 1048576.0);
    all.add(node, whole);
    of_species[species[at(node)]].add(node, whole);
  }
  all.finish();
  for (Urn& urn : of_species) urn.finish();
  NodeData data;
  data.name = "generated-proteins";
  {
    const Pairs pairs(op, n, o.num_edges, [&](std::uint64_t i) {
      const Words a(seed, kEdges, 2 * i), b(seed, kEdges, 2 * i + 1);
      const std::int32_t u = all.draw(a.wide(0));
      const std::int32_t v = (b.unit(0) < 0.4 ? of_species[species[at(u)]] : all).draw(a.wide(1));
      return u == v ? std::pair{-1, -1} : std::pair{std::min(u, v), std::max(u, v)};
    });
    data.graph = graph_of(pairs, n, o.self_loops, true);
  }
  // What the two ends contribute to each feature of an edge, from 0 to 65535.
  std::uint32_t part[2][kinds][8];
  for (std::uint64_t which = 0; which < 2; ++which)
    for (std::uint64_t k = 0; k < kinds; ++k) {
      const Words w(seed, kMeans, which * kinds + k);
      for (int c = 0; c < 8; ++c) part[which][k][c] = w.half(c);
    }
  data.edge_features = empty({data.graph.num_edges(), width}, f32);
  float* feature = data.edge_features.mutable_data<float>();
  const std::int64_t* offset = data.graph.pattern().offsets().data<std::int64_t>();
  const std::int32_t* source = data.graph.sources().data<std::int32_t>();
  parallel_for(n, 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t v = begin; v < end; ++v)
      for (std::int64_t k = offset[v]; k < offset[v + 1]; ++k) {
        const std::int64_t u = source[k];
        // The same for both directions.
        const Words noise(seed, kFeatures,
                          static_cast<std::uint64_t>(std::min(u, v)) << 32 |
                              static_cast<std::uint64_t>(std::max(u, v)));
        for (std::int64_t c = 0; c < width; ++c) {
          const std::uint32_t sum = part[0][species[at(u)]][c] + part[0][species[at(v)]][c] +
                                    part[1][role[at(u)]][c] + part[1][role[at(v)]][c] +
                                    4 * noise.half(static_cast<int>(c));
          // In thousandths, as in ogbn-proteins.
          feature[k * width + c] =
              u == v ? 0.0f : static_cast<float>(std::uint64_t{sum} * 1000 / (8 * 65536)) / 1000.0f;
        }
      }
  });
  data.features = Features(detail::mean_of_edges(data.graph, data.edge_features));
  data.task = NodeTask::multi_label;
  data.score = NodeScore::roc_auc;
  data.num_classes = o.num_tasks;
  data.labels = empty({n, o.num_tasks}, f32);
  float* label = data.labels.mutable_data<float>();
  parallel_for(n, 256, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      for (std::int64_t t = 0; t < o.num_tasks; ++t) {
        // Likely in a quarter of the species and a quarter of the roles.
        const auto likely = [&](std::int64_t which, std::int64_t kind) {
          return Words(seed, kMeans,
                       static_cast<std::uint64_t>(64 + (which * o.num_tasks + t) * kinds + kind))
                     .unit(0) < 0.25;
        };
        const double chance =
            0.03 + 0.35 * likely(0, species[at(i)]) + 0.35 * likely(1, role[at(i)]);
        label[i * o.num_tasks + t] =
            Words(seed, kLabels, static_cast<std::uint64_t>(i * o.num_tasks + t)).unit(0) < chance;
      }
  });
  set_split(data, seed, 86619.0 / 132534, 21236.0 / 132534);
  check_node_data(data);
  return data;
}

}  // namespace lipgrad
