#include <lipgrad/graph/generated_graph.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <unordered_set>
#include <vector>

#include <lipgrad/core/check.h>
#include <lipgrad/core/philox.h>

namespace lipgrad {
namespace {

// Random whole numbers. Weights and sums are integers throughout, and square roots and quotients
// are exact to the last bit everywhere, so that no machine draws differently.
class Draws {
 public:
  Draws(std::uint64_t seed, std::uint64_t stream) : seed_(seed), stream_(stream) {}

  std::uint32_t word() {
    if (next_ % 4 == 0) block_ = philox(seed_, stream_, next_ / 4);
    return block_.word[next_++ % 4];
  }
  // In [0, bound), for bounds far below 2^64.
  std::uint64_t below(std::uint64_t bound) {
    const std::uint64_t high = word(), bits = high << 32 | word();
    return static_cast<std::uint64_t>(static_cast<unsigned __int128>(bits) * bound >> 64);
  }
  bool chance(double probability) {
    return static_cast<double>(word()) < probability * 4294967296.0;
  }

 private:
  std::uint64_t seed_, stream_, next_ = 0;
  PhiloxBlock block_{};
};

// Draws items with given weights.
class Urn {
 public:
  void add(std::int64_t item, std::uint64_t weight) {
    items_.push_back(item);
    sums_.push_back((sums_.empty() ? 0 : sums_.back()) + weight);
  }
  bool empty() const { return items_.empty(); }
  std::int64_t draw(Draws& draws) const {
    const std::uint64_t at = draws.below(sums_.back());
    return items_[static_cast<std::size_t>(std::upper_bound(sums_.begin(), sums_.end(), at) -
                                           sums_.begin())];
  }

 private:
  std::vector<std::int64_t> items_;
  std::vector<std::uint64_t> sums_;
};

std::vector<std::int64_t> permutation(std::int64_t n, Draws& draws) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) order[static_cast<std::size_t>(i)] = i;
  for (std::int64_t i = n; i > 1; --i)
    std::swap(order[static_cast<std::size_t>(i - 1)],
              order[draws.below(static_cast<std::uint64_t>(i))]);
  return order;
}

void check_options(const CitationGraphOptions& o) {
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  LIPGRAD_CHECK(
      o.num_nodes >= 1 && o.num_nodes <= most && o.num_classes >= 1 && o.num_classes <= o.num_nodes,
      "generated_citation_graph: {} nodes of {} classes", o.num_nodes, o.num_classes);
  // Above a few per cent of all pairs, drawing new edges would take ever longer.
  LIPGRAD_CHECK(o.num_edges >= 0 && o.num_edges <= o.num_nodes * (o.num_nodes - 1) / 16,
                "generated_citation_graph: {} edges are too many for {} nodes", o.num_edges,
                o.num_nodes);
  LIPGRAD_CHECK(o.num_features >= o.num_classes && o.num_features <= most && o.words >= 0 &&
                    o.words <= o.num_features / 4,
                "generated_citation_graph: {} words a node of {} features and {} classes; expected "
                "a feature a class or more and at most a quarter of them a node",
                o.words, o.num_features, o.num_classes);
  LIPGRAD_CHECK(o.homophily >= 0 && o.homophily <= 1 && o.topic >= 0 && o.topic <= 1,
                "generated_citation_graph: homophily {} and topic {} must be in [0, 1]",
                o.homophily, o.topic);
  LIPGRAD_CHECK(o.train_per_class >= 0 && o.num_val >= 0 && o.num_test >= 0 &&
                    o.train_per_class <= o.num_nodes && o.num_val <= o.num_nodes &&
                    o.num_test <= o.num_nodes &&
                    o.train_per_class * o.num_classes + o.num_val + o.num_test <= o.num_nodes,
                "generated_citation_graph: {} training nodes in each of {} classes, {} validation "
                "and {} test nodes are more than {}",
                o.train_per_class, o.num_classes, o.num_val, o.num_test, o.num_nodes);
}

// Classes of unequal size: weights from 1 to 4, as in Cora.
std::vector<std::int64_t> draw_labels(const CitationGraphOptions& o, Draws draws) {
  Urn classes;
  for (std::int64_t c = 0; c < o.num_classes; ++c)
    classes.add(c, 1 + static_cast<std::uint64_t>(c * 5 % 4));
  std::vector<std::int64_t> labels(static_cast<std::size_t>(o.num_nodes));
  for (std::int64_t& label : labels) label = classes.draw(draws);
  return labels;
}

std::int64_t draw_node(std::int64_t num_nodes, Draws& draws) {
  return static_cast<std::int64_t>(draws.below(static_cast<std::uint64_t>(num_nodes)));
}

Graph draw_graph(const CitationGraphOptions& o, const std::vector<std::int64_t>& labels,
                 Draws draws) {
  Urn all;
  std::vector<Urn> own(static_cast<std::size_t>(o.num_classes));
  for (std::int64_t i = 0; i < o.num_nodes; ++i) {
    // A weight of u^(-1/2) with u uniform has the density of a power law of exponent 3.
    const double u = (static_cast<double>(draws.word()) + 1) / 4294967296.0;
    const double weight = std::min(1024 / std::sqrt(u), 1024.0 * 64);
    all.add(i, static_cast<std::uint64_t>(weight));
    own[static_cast<std::size_t>(labels[static_cast<std::size_t>(i)])].add(
        i, static_cast<std::uint64_t>(weight));
  }
  std::unordered_set<std::uint64_t> seen;
  std::vector<std::int32_t> source, destination;
  while (static_cast<std::int64_t>(source.size()) < o.num_edges) {
    const bool same_class = draws.chance(o.homophily);
    // A class may be too small, or a hub too busy, for one more edge: after many failures any class
    // will do, and then any two nodes.
    for (int failures = 0;; ++failures) {
      const std::int64_t u = failures < 1000 ? all.draw(draws) : draw_node(o.num_nodes, draws);
      const std::int64_t label = labels[static_cast<std::size_t>(u)];
      const std::int64_t v = failures >= 1000 ? draw_node(o.num_nodes, draws)
                             : same_class && failures < 100
                                 ? own[static_cast<std::size_t>(label)].draw(draws)
                                 : all.draw(draws);
      const bool wrong_class =
          failures < 100 && (labels[static_cast<std::size_t>(v)] == label) != same_class;
      const auto [low, high] = std::minmax(u, v);
      const std::uint64_t pair =
          static_cast<std::uint64_t>(low) << 32 | static_cast<std::uint64_t>(high);
      if (u == v || wrong_class || !seen.insert(pair).second) continue;
      source.push_back(static_cast<std::int32_t>(u));
      destination.push_back(static_cast<std::int32_t>(v));
      break;
    }
  }
  return Graph(o.num_nodes, source, destination, {.symmetrize = true, .self_loops = o.self_loops});
}

Features draw_features(const CitationGraphOptions& o, const std::vector<std::int64_t>& labels,
                       Draws draws) {
  Urn all;
  std::vector<Urn> own(static_cast<std::size_t>(o.num_classes));
  const std::vector<std::int64_t> by_popularity = permutation(o.num_features, draws);
  for (std::size_t rank = 0; rank < by_popularity.size(); ++rank) {
    // Zipf's law, flattened for the most frequent words.
    const std::uint64_t weight = (std::uint64_t{1} << 32) / (rank + 10);
    all.add(by_popularity[rank], weight);
    own[rank % own.size()].add(by_popularity[rank], weight);
  }
  std::vector<std::int64_t> offsets{0};
  std::vector<std::int32_t> columns, words;
  for (const std::int64_t label : labels) {
    // From half to one and a half times the average, and at least one.
    const auto wanted = static_cast<std::size_t>(
        std::max<std::int64_t>(1, (o.words + 1) / 2) +
        static_cast<std::int64_t>(draws.below(static_cast<std::uint64_t>(o.words) + 1)));
    words.clear();
    for (int tries = 0; words.size() < wanted && tries < 10000; ++tries) {
      const Urn& urn = draws.chance(o.topic) ? own[static_cast<std::size_t>(label)] : all;
      const auto word = static_cast<std::int32_t>(urn.draw(draws));
      if (std::find(words.begin(), words.end(), word) == words.end()) words.push_back(word);
    }
    std::sort(words.begin(), words.end());
    columns.insert(columns.end(), words.begin(), words.end());
    offsets.push_back(static_cast<std::int64_t>(columns.size()));
  }
  const auto count = static_cast<std::int64_t>(columns.size());
  const CsrMatrix sparse(
      CsrPattern(o.num_nodes, o.num_features, from_vector({o.num_nodes + 1}, offsets),
                 from_vector({count}, columns)),
      ones({count}));
  const Features features = o.sparse_features ? Features(sparse) : Features(sparse.to_dense());
  return o.row_normalize ? row_normalize(features) : features;
}

}  // namespace

NodeData generated_citation_graph(const CitationGraphOptions& options, std::uint64_t seed) {
  check_options(options);
  const std::vector<std::int64_t> labels = draw_labels(options, Draws(seed, 0));
  NodeData data;
  data.name = "generated";
  data.graph = draw_graph(options, labels, Draws(seed, 1));
  data.features = draw_features(options, labels, Draws(seed, 2));
  data.labels = from_vector({options.num_nodes}, labels);
  data.num_classes = options.num_classes;
  std::vector<std::int64_t> taken(static_cast<std::size_t>(options.num_classes));
  std::vector<std::int64_t> train, val, test;
  for (std::int64_t i = 0; i < options.num_nodes; ++i) {
    if (taken[static_cast<std::size_t>(labels[static_cast<std::size_t>(i)])]++ <
        options.train_per_class)
      train.push_back(i);
    else if (static_cast<std::int64_t>(val.size()) < options.num_val)
      val.push_back(i);
    else if (static_cast<std::int64_t>(test.size()) < options.num_test)
      test.push_back(i);
  }
  const auto tensor = [](const std::vector<std::int64_t>& ids) {
    return from_vector({static_cast<std::int64_t>(ids.size())}, ids);
  };
  data.train = tensor(train);
  data.val = tensor(val);
  data.test = tensor(test);
  check_node_data(data);
  return data;
}

}  // namespace lipgrad
