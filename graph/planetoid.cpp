#include <lipgrad/graph/planetoid.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <numeric>
#include <string_view>
#include <utility>

#include <lipgrad/core/check.h>
#include <lipgrad/graph/pickle.h>

namespace lipgrad {
namespace {

constexpr std::int64_t kValidationNodes = 500;

struct Labels {
  std::int64_t num_classes;
  std::vector<std::int64_t> classes;

  std::int64_t rows() const { return static_cast<std::int64_t>(classes.size()); }
};

class Parser {
 public:
  Parser(const std::string& prefix,
         const std::function<std::vector<std::byte>(const std::string& file)>& read)
      : prefix_(prefix), read_(read) {}

  PlanetoidData parse() {
    read_graph();
    const Labels known = read_labels("ally"), train = read_labels("y"), test = read_labels("ty");
    const std::vector<std::int64_t> test_ids = read_test_ids(known.rows());
    LIPGRAD_CHECK(known.rows() <= data_.num_nodes && train.rows() <= known.rows() &&
                      test.rows() == static_cast<std::int64_t>(test_ids.size()),
                  "{}ally, y, ty hold {}, {}, {} labels, which does not fit the {} nodes of graph "
                  "and the {} of test.index",
                  prefix_, known.rows(), train.rows(), test.rows(), data_.num_nodes,
                  test_ids.size());
    LIPGRAD_CHECK(train.num_classes == known.num_classes && test.num_classes == known.num_classes,
                  "{}ally, y, ty have {}, {}, {} classes; expected as many", prefix_,
                  known.num_classes, train.num_classes, test.num_classes);
    data_.num_classes = known.num_classes;
    data_.labels.assign(static_cast<std::size_t>(data_.num_nodes), 0);
    std::copy(known.classes.begin(), known.classes.end(), data_.labels.begin());
    // The row of allx or tx each node has its features from; none for the nodes left out.
    std::vector<std::int64_t> row(static_cast<std::size_t>(data_.num_nodes), -1);
    std::iota(row.begin(), row.begin() + known.rows(), 0);
    for (std::size_t i = 0; i < test_ids.size(); ++i) {
      const auto node = static_cast<std::size_t>(test_ids[i]);
      row[node] = known.rows() + static_cast<std::int64_t>(i);
      data_.labels[node] = test.classes[i];
    }
    fill_features(known.rows(), train.rows(), row);
    const std::int64_t val_end = std::min(train.rows() + kValidationNodes, known.rows());
    data_.train.resize(static_cast<std::size_t>(train.rows()));
    std::iota(data_.train.begin(), data_.train.end(), 0);
    data_.val.resize(static_cast<std::size_t>(val_end - train.rows()));
    std::iota(data_.val.begin(), data_.val.end(), train.rows());
    data_.test = test_ids;
    std::sort(data_.test.begin(), data_.test.end());
    return std::move(data_);
  }

 private:
  std::string path(const char* part) const { return prefix_ + part; }

  // graph: a dict from every node to the list of its neighbours.
  void read_graph() {
    const Pickle pickle(read_(path("graph")), path("graph"));
    const PickleValue lists = pickle.root();
    LIPGRAD_CHECK(lists.kind() == PickleKind::dict, "{}: expected a dict, found {}", pickle.file(),
                  name_of(lists.kind()));
    const std::int64_t nodes = lists.size();
    std::vector<bool> seen(static_cast<std::size_t>(nodes));
    // The same list may stand under every node, at two bytes each: count before anything is stored.
    std::int64_t edges = 0;
    for (std::int64_t i = 0; i < nodes; ++i) edges += lists.value(i).size();
    const auto bytes = static_cast<std::int64_t>(pickle.size());
    LIPGRAD_CHECK(edges <= bytes, "{}: {} edges in a file of {} bytes", pickle.file(), edges,
                  bytes);
    data_.source.reserve(static_cast<std::size_t>(edges));
    data_.destination.reserve(static_cast<std::size_t>(edges));
    for (std::int64_t i = 0; i < nodes; ++i) {
      const std::int64_t node = lists.key(i).integer();
      LIPGRAD_CHECK(node >= 0 && node < nodes && !seen[static_cast<std::size_t>(node)],
                    "{}: node {} is repeated or not in [0, {})", pickle.file(), node, nodes);
      seen[static_cast<std::size_t>(node)] = true;
      const PickleValue neighbours = lists.value(i);
      for (std::int64_t k = 0; k < neighbours.size(); ++k) {
        const std::int64_t other = neighbours[k].integer();
        LIPGRAD_CHECK(other >= 0 && other < nodes,
                      "{}: node {} has the neighbour {}, not in [0, {})", pickle.file(), node,
                      other, nodes);
        data_.source.push_back(static_cast<std::int32_t>(node));
        data_.destination.push_back(static_cast<std::int32_t>(other));
      }
    }
    data_.num_nodes = nodes;
  }

  // y, ty, ally: int32 of shape (rows, classes), one 1 in each row.
  Labels read_labels(const char* part) {
    const Pickle pickle(read_(path(part)), path(part));
    const PickleArray array = pickle.root().array();
    LIPGRAD_CHECK(array.dtype == i32 && array.shape.rank() == 2 && array.shape[1] > 0,
                  "{}: expected labels as i32 of shape (nodes, classes), found {} of shape {}",
                  pickle.file(), array.dtype, array.shape);
    Labels labels{array.shape[1], {}};
    labels.classes.reserve(static_cast<std::size_t>(array.shape[0]));
    const std::byte* at = array.bytes.data();
    for (std::int64_t i = 0; i < array.shape[0]; ++i) {
      std::int64_t found = -1, ones = 0;
      for (std::int64_t c = 0; c < labels.num_classes; ++c, at += 4) {
        std::int32_t value;
        std::memcpy(&value, at, 4);
        if (value == 0) continue;
        found = c;
        ones += value == 1 ? 1 : 2;
      }
      LIPGRAD_CHECK(ones == 1, "{}: row {} of the labels is not one 1 and zeros", pickle.file(), i);
      labels.classes.push_back(found);
    }
    return labels;
  }

  // test.index: one node id a line.
  std::vector<std::int64_t> read_test_ids(std::int64_t first) {
    const std::string file = path("test.index");
    const std::vector<std::byte> bytes = read_(file);
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    std::vector<std::int64_t> ids;
    std::vector<bool> seen(static_cast<std::size_t>(data_.num_nodes));
    const char *at = text.data(), *end = at + text.size();
    for (std::int64_t line = 1; at != end; ++line) {
      std::int64_t id = -1;
      const auto [next, error] = std::from_chars(at, end, id);
      LIPGRAD_CHECK(error == std::errc() && (next == end || *next == '\n' || *next == '\r'),
                    "{}: line {} is not a number", file, line);
      LIPGRAD_CHECK(id >= first && id < data_.num_nodes && !seen[static_cast<std::size_t>(id)],
                    "{}: line {}: node {} is repeated or not in [{}, {})", file, line, id, first,
                    data_.num_nodes);
      seen[static_cast<std::size_t>(id)] = true;
      ids.push_back(id);
      at = next;
      if (at != end && *at == '\r') ++at;
      if (at != end && *at == '\n') ++at;
    }
    return ids;
  }

  PickleCsr read_features(const char* part, std::int64_t rows) {
    const Pickle pickle(read_(path(part)), path(part));
    PickleCsr csr = pickle.root().csr();
    LIPGRAD_CHECK(csr.rows == rows, "{}: features of {} nodes, expected {}", pickle.file(),
                  csr.rows, rows);
    return csr;
  }

  void fill_features(std::int64_t known, std::int64_t train, const std::vector<std::int64_t>& row) {
    const auto test = static_cast<std::int64_t>(
        std::count_if(row.begin(), row.end(), [&](std::int64_t r) { return r >= known; }));
    // x repeats the first rows of allx: only its size is of use.
    const std::int64_t columns_of_x = read_features("x", train).cols;
    const PickleCsr all = read_features("allx", known), tested = read_features("tx", test);
    LIPGRAD_CHECK(all.cols == tested.cols && all.cols == columns_of_x,
                  "{}allx, tx, x have {}, {}, {} features; expected as many", prefix_, all.cols,
                  tested.cols, columns_of_x);
    data_.num_features = all.cols;
    data_.row_offsets.reserve(row.size() + 1);
    data_.row_offsets.push_back(0);
    data_.columns.reserve(all.columns.size() + tested.columns.size());
    data_.values.reserve(all.columns.size() + tested.columns.size());
    std::vector<std::pair<std::int32_t, float>> entries;
    for (std::int64_t r : row) {
      const PickleCsr& from = r < known ? all : tested;
      const auto i = static_cast<std::size_t>(r < known ? r : r - known);
      entries.clear();
      if (r >= 0)
        for (std::int64_t k = from.row_offsets[i]; k < from.row_offsets[i + 1]; ++k)
          entries.emplace_back(from.columns[static_cast<std::size_t>(k)],
                               from.values[static_cast<std::size_t>(k)]);
      std::stable_sort(entries.begin(), entries.end(),
                       [](const auto& a, const auto& b) { return a.first < b.first; });
      for (const auto& [column, value] : entries) {
        data_.columns.push_back(column);
        data_.values.push_back(value);
      }
      data_.row_offsets.push_back(static_cast<std::int64_t>(data_.columns.size()));
    }
  }

  const std::string& prefix_;
  const std::function<std::vector<std::byte>(const std::string& file)>& read_;
  PlanetoidData data_;
};

}  // namespace

PlanetoidData parse_planetoid(
    const std::string& prefix,
    const std::function<std::vector<std::byte>(const std::string& file)>& read) {
  return Parser(prefix, read).parse();
}

}  // namespace lipgrad
