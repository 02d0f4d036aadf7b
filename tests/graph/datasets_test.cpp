#include <lipgrad/graph/datasets.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include <lipgrad/core/error.h>
#include <lipgrad/core/file.h>
#include <lipgrad/core/npz.h>
#include <support/data.h>
#include <support/environment.h>
#include <support/errors.h>
#include <support/temporary_directory.h>

namespace lipgrad {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<std::int64_t>;

using test::contains;
using test::error_of;

Ids longs(const Tensor& x) { return x.to_vector<std::int64_t>(); }

std::int64_t sum(const Tensor& x) {
  const Ids values = longs(x.to(i64));
  return std::accumulate(values.begin(), values.end(), std::int64_t{0});
}

Ids histogram(const NodeData& data) {
  Ids counts(static_cast<std::size_t>(data.num_classes));
  for (std::int64_t label : longs(data.labels)) ++counts[static_cast<std::size_t>(label)];
  return counts;
}

// What a data set's description gives to check a reader by: sums over its edges u < v, its feature
// columns and labels, and the largest degree.
struct Sums {
  std::int64_t nodes, features, edges, u, v, columns, labels, max_degree, busiest;
  Ids classes;
  std::int64_t train;
};

void check_sums(const NodeData& data, const Sums& expected) {
  CHECK(data.graph.num_nodes() == expected.nodes);
  CHECK(data.features.rows() == expected.nodes);
  CHECK(data.features.cols() == expected.features);
  CHECK(data.graph.num_edges() == 2 * expected.edges);
  CHECK(data.graph.num_self_loops() == 0);
  const auto from = data.graph.sources().to_vector<std::int32_t>(),
             to = data.graph.destinations().to_vector<std::int32_t>();
  std::int64_t u = 0, v = 0;
  for (std::size_t k = 0; k < from.size(); ++k)
    if (from[k] < to[k]) {
      u += from[k];
      v += to[k];
    }
  CHECK(u == expected.u);
  CHECK(v == expected.v);
  if (expected.columns > 0)
    CHECK(sum(data.features.sparse().pattern().columns()) == expected.columns);
  CHECK(sum(data.labels) == expected.labels);
  CHECK(histogram(data) == expected.classes);
  const Ids degree = longs(data.graph.in_degrees());
  const auto most = std::max_element(degree.begin(), degree.end());
  CHECK(*most == expected.max_degree);
  CHECK(most - degree.begin() == expected.busiest);
  CHECK(longs(data.graph.out_degrees()) == degree);
  CHECK(data.train.numel() == expected.train);
  CHECK(data.val.numel() == 500);
  CHECK(data.test.numel() == 1000);
}

const Sums kCora{2708,     1433, 5278, 4700087, 9120131,
                 39016843, 7781, 168,  1358,    {351, 217, 418, 818, 426, 298, 180},
                 140};
const Sums kCiteseer{3327,      3703, 4552, 4921161, 9933735,
                     191362100, 8953, 99,   1422,    {264, 590, 668, 701, 596, 508},
                     120};

void same_data(const NodeData& a, const NodeData& b) {
  CHECK(bitwise_equal(a.graph.sources(), b.graph.sources()));
  CHECK(bitwise_equal(a.graph.pattern().offsets(), b.graph.pattern().offsets()));
  CHECK(bitwise_equal(a.features.sparse().pattern().offsets(),
                      b.features.sparse().pattern().offsets()));
  CHECK(bitwise_equal(a.features.sparse().pattern().columns(),
                      b.features.sparse().pattern().columns()));
  CHECK(bitwise_equal(a.features.sparse().values(), b.features.sparse().values()));
  CHECK(bitwise_equal(a.labels, b.labels));
  CHECK(bitwise_equal(a.train, b.train));
  CHECK(bitwise_equal(a.val, b.val));
  CHECK(bitwise_equal(a.test, b.test));
}

}  // namespace

TEST_CASE("planetoid: a small data set with all peculiarities of the real ones") {
  const std::string root = test::golden("planetoid");
  const NodeData data = load_planetoid("tiny", {.root = root, .row_normalize = false});
  CHECK(data.name == "tiny");
  CHECK(data.graph.num_nodes() == 14);
  CHECK(data.graph.num_edges() == 24);
  CHECK(data.graph.num_self_loops() == 0);
  CHECK(longs(data.graph.in_degrees()) == Ids{2, 2, 3, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 0});
  CHECK(data.num_classes == 3);
  CHECK(longs(data.labels) == Ids{0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 0, 0, 1});
  CHECK(longs(data.train) == Ids{0, 1, 2});
  CHECK(longs(data.val) == Ids{3, 4, 5, 6, 7, 8});
  CHECK(longs(data.test) == Ids{9, 10, 12, 13});
  REQUIRE(!data.features.is_sparse());  // a third of the elements are nonzero
  const auto x = data.features.dense().to_vector<float>();
  for (int node = 0; node < 14; ++node)
    for (int j = 0; j < 6; ++j) {
      const bool has = node != 5 && node != 11 && (j == node % 6 || j == (node + 2) % 6);
      CHECK(x[node * 6 + j] == (has ? 1 + static_cast<float>(node) / 4 : 0));
    }
  const NodeData sparse = load_planetoid("tiny", {.root = root, .sparse_features = true});
  CHECK(sparse.features.is_sparse());
  const auto rows = sparse.features.to_dense().to_vector<float>();
  CHECK(rows[0] == 0.5f);
  CHECK(rows[9 * 6 + 3] == 0.5f);
  CHECK(rows[5 * 6] == 0);
  CHECK(load_planetoid("tiny", {.root = root, .self_loops = SelfLoops::add}).graph.num_edges() ==
        24 + 14);
}

TEST_CASE("planetoid: parts that do not fit together are named") {
  test::TemporaryDirectory dir;
  const auto attempt = [&](const char* part, const std::string& content) {
    for (const auto& entry : fs::directory_iterator(test::golden("planetoid")))
      if (entry.path().filename().string().starts_with("ind."))
        fs::copy_file(entry.path(), dir / entry.path().filename().string(),
                      fs::copy_options::overwrite_existing);
    write_file(dir / ("ind.tiny." + std::string(part)), std::as_bytes(std::span(content)));
    const std::string error = error_of([&] { load_planetoid("tiny", {.root = dir.path()}); });
    return error.starts_with(dir / "ind.tiny.") ? error.substr((dir / "ind.tiny.").size()) : error;
  };
  const auto content = [](const char* part) {
    const auto bytes = read_file(test::golden(std::string("planetoid/ind.tiny.") + part));
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  CHECK(attempt("test.index", "12\n9\n13\n10\n") == "");
  CHECK(attempt("test.index", "12\r\n9\r\n13\r\n10") == "");
  CHECK(attempt("test.index", "12\n9\n13\n") ==
        "ally, y, ty hold 9, 3, 4 labels, which does not fit the 14 nodes of graph and the 3 of "
        "test.index");
  CHECK(attempt("test.index", "12\n9\n13\n9\n") ==
        "test.index: line 4: node 9 is repeated or not in [9, 14)");
  CHECK(attempt("test.index", "12\n9\n13\n14\n") ==
        "test.index: line 4: node 14 is repeated or not in [9, 14)");
  CHECK(attempt("test.index", "12\n9\n13\n8\n") ==
        "test.index: line 4: node 8 is repeated or not in [9, 14)");
  CHECK(attempt("test.index", "12\n9\nx\n10\n") == "test.index: line 3 is not a number");
  CHECK(attempt("test.index", "12 9\n13\n10\n") == "test.index: line 1 is not a number");
  CHECK(attempt("graph", content("x")) == "graph: expected a dict, found csr_matrix");
  CHECK(attempt("ally", content("x")) == "ally: expected array, found csr_matrix");
  CHECK(attempt("x", content("y")) == "x: expected csr_matrix, found array");
  CHECK(attempt("y", content("ally")) == "x: features of 3 nodes, expected 9");
  CHECK(attempt("tx", content("x")) == "tx: features of 3 nodes, expected 4");
  CHECK(attempt("ty", content("y")).starts_with("ally, y, ty hold 9, 3, 3 labels"));
  CHECK(attempt("ally", content("ty")).starts_with("ally, y, ty hold 4, 3, 4 labels") == false);
  std::string two_ones = content("y");
  const std::size_t first = two_ones.find(std::string("\1\0\0\0\0\0\0\0\0\0\0\0", 12));
  REQUIRE(first != std::string::npos);
  two_ones[first + 4] = 1;
  CHECK(attempt("y", two_ones) == "y: row 0 of the labels is not one 1 and zeros");
  std::string bad_edge = content("graph");
  const std::size_t neighbour = bad_edge.rfind("K\x0b");  // 12 -> 11, the last list but one
  REQUIRE(neighbour != std::string::npos);
  bad_edge[neighbour + 1] = 14;
  CHECK(attempt("graph", bad_edge) == "graph: node 12 has the neighbour 14, not in [0, 14)");
}

TEST_CASE("planetoid: where files are looked for, and what is said when they are missing") {
  test::TemporaryDirectory dir;
  const test::EnvironmentVariable data("LIPGRAD_DATA", dir / "data"), home("HOME", dir.path());
  CHECK(error_of([] { load_planetoid("cora"); }) ==
        "cora: no file ind.cora.x in " + (dir / "data/planetoid") + ", " + (dir / "data") + ", " +
            (dir / ".cache/lipgrad/planetoid") + ", " + (dir / ".cache/lipgrad") +
            "; `tools/fetch_data cora` downloads it");
  CHECK(error_of([&] { load_planetoid("tiny", {.root = dir / "r"}); }) ==
        "tiny: no file ind.tiny.x in " + (dir / "r/planetoid") + ", " + (dir / "r") +
            "; known are cora, citeseer, pubmed");
  // First the cache, then, once it is there, $LIPGRAD_DATA.
  for (const char* folder : {".cache/lipgrad/planetoid", "data/planetoid"}) {
    fs::create_directories(dir / folder);
    fs::copy(test::golden("planetoid"), dir / folder);
    CHECK(load_planetoid("tiny").graph.num_nodes() == 14);
  }
  fs::remove(dir / "data/planetoid/ind.tiny.ally");
  CHECK(load_planetoid("tiny").graph.num_nodes() == 14);
  fs::remove(dir / ".cache/lipgrad/planetoid/ind.tiny.ally");
  CHECK(error_of([] { load_planetoid("tiny"); }) ==
        "tiny: " + (dir / "data/planetoid/ind.tiny.ally") +
            " is missing; known are cora, citeseer, pubmed");
}

TEST_CASE("node data: unknown names list the known ones") {
  const std::string error = error_of([] { load_node_data("coral"); });
  CHECK(error.starts_with("unknown data set 'coral'; known are cora, citeseer, pubmed, "));
  CHECK(error.ends_with(
      ", generated-proteins, or the path of a .npz file or of a folder with raw/edge.csv.gz"));
  CHECK(load_node_data("generated").graph.num_nodes() == 2708);
  CHECK(error_of([] { load_node_data("nowhere/x.npz"); }) ==
        "nowhere/x.npz: cannot open: No such file or directory");
  test::TemporaryDirectory dir;
  CHECK(contains(error_of([&] { load_node_data("texas", {.root = dir.path()}); }),
                 "texas: no file texas.npz in "));
}

TEST_CASE("planetoid: Cora and CiteSeer, and the same from .npz") {
  for (const Sums& sums : {kCora, kCiteseer}) {
    const std::string name = sums.nodes == 2708 ? "cora" : "citeseer";
    if (test::find_data("planetoid/ind." + name + ".graph").empty()) continue;
    const NodeData data = load_node_data(name, {.row_normalize = false});
    check_sums(data, sums);
    if (const std::string path = test::find_data("npz/" + name + ".npz"); !path.empty()) {
      const NodeData other = load_node_data(path);
      check_sums(other, sums);
      same_data(data, other);
    }
    // Row sums of normalised features are 1, or 0 where there are none.
    const NodeData normal = load_planetoid(name);
    const std::int64_t* offset = normal.features.sparse().pattern().offsets().data<std::int64_t>();
    const float* value = normal.features.sparse().values().data<float>();
    int wrong = 0, empty = 0;
    for (std::int64_t i = 0; i < normal.graph.num_nodes(); ++i) {
      double total = 0;
      for (std::int64_t k = offset[i]; k < offset[i + 1]; ++k) total += value[k];
      empty += offset[i] == offset[i + 1];
      wrong += offset[i] != offset[i + 1] && std::abs(total - 1) > 1e-5;
    }
    CHECK(wrong == 0);
    CHECK(empty == (name == "cora" ? 0 : 15));
  }
}

TEST_CASE("planetoid: PubMed") {
  // ind.pubmed.allx is a large file and may be missing; what the others hold is checked then.
  const std::string folder = test::find_data("planetoid");
  if (folder.empty()) return;
  if (fs::exists(folder + "/ind.pubmed.allx")) {
    check_sums(
        load_planetoid("pubmed"),
        {19717, 500, 44324, 287591832, 576852855, 0, 23489, 171, 11450, {4103, 7739, 7875}, 60});
  } else if (fs::exists(folder + "/ind.pubmed.x")) {
    CHECK(contains(error_of([&] { load_planetoid("pubmed", {.root = folder}); }),
                   "ind.pubmed.allx is missing; `tools/fetch_data pubmed` downloads it"));
  }
  if (const std::string path = test::find_data("npz/pubmed_partial_features.npz"); !path.empty())
    check_sums(
        load_npz_dataset(path),
        {19717, 500, 44324, 287591832, 576852855, 0, 23489, 171, 11450, {4103, 7739, 7875}, 60});
}

TEST_CASE("node data: the other .npz data sets at hand") {
  struct Expected {
    const char* name;
    std::int64_t nodes, edges, features, classes;
  };
  for (const Expected& expected : {Expected{"npz/karate_club", 34, 78, 34, 4},
                                   {"npz/amazon_photo", 7650, 119081, 745, 8},
                                   {"npz/cora_ml", 2995, 8158, 2879, 7},
                                   {"heterophilous/texas", 183, 279, 1703, 5},
                                   {"heterophilous/minesweeper", 10000, 39402, 7, 2},
                                   {"heterophilous/actor", 7600, 26659, 932, 5}}) {
    const std::string path = test::find_data(std::string(expected.name) + ".npz");
    if (path.empty()) continue;
    CAPTURE(expected.name);
    const NodeData data = load_node_data(path);
    CHECK(data.graph.num_nodes() == expected.nodes);
    CHECK(data.graph.num_edges() == 2 * expected.edges);
    CHECK(data.features.cols() == expected.features);
    CHECK(data.num_classes == expected.classes);
    CHECK(data.train.numel() > 0);
    const std::string short_name = fs::path(expected.name).filename().string();
    CHECK(load_node_data(short_name).graph.num_edges() == 2 * expected.edges);
  }
  if (const std::string path = test::find_data("heterophilous/texas.npz"); !path.empty()) {
    const NodeData first = load_npz_dataset(path), second = load_npz_dataset(path, {.split = 9});
    CHECK(longs(first.train) != longs(second.train));
    CHECK(first.train.numel() + first.val.numel() + first.test.numel() == 183);
    CHECK(contains(error_of([&] { load_npz_dataset(path, {.split = 10}); }),
                   "split 10 is asked for; it has splits 0 to 9"));
  }
}

TEST_CASE("node data: what a data set is judged by") {
  if (const std::string path = test::find_data("npz/ppi_human_multilabel.npz"); !path.empty()) {
    const NodeData data = load_node_data("ppi_human_multilabel");
    CHECK(data.task == NodeTask::multi_label);
    CHECK(data.score == NodeScore::f1_micro);
    CHECK(data.labels.shape() == Shape({3890, 50}));
    CHECK(data.num_classes == 50);
    CHECK(data.graph.num_edges() == 2 * 37845);
    CHECK(data.features.is_sparse());
    CHECK(data.features.sparse().nnz() == 3890);
    CHECK(data.features.cols() == 3890);
    CHECK(data.train.numel() + data.val.numel() + data.test.numel() == 3890);
  }
  for (const char* name : {"minesweeper", "tolokers"}) {
    if (test::find_data("heterophilous/" + std::string(name) + ".npz").empty()) continue;
    const NodeData data = load_node_data(name, {.split = 3});
    CHECK(data.task == NodeTask::multi_class);
    CHECK(data.score == NodeScore::roc_auc);
    CHECK(data.train.numel() == data.graph.num_nodes() / 2);
  }
  if (!test::find_data("heterophilous/texas.npz").empty())
    CHECK(load_node_data("texas").score == NodeScore::accuracy);
  if (!test::find_data("npz/pubmed_partial_features.npz").empty())
    CHECK(load_node_data("pubmed_partial_features").graph.num_edges() == 2 * 44324);
}

TEST_CASE("node data: geom-gcn's splits") {
  CHECK(contains(error_of([] { load_node_data("texas", {.splits = "geom-gcn"}); }),
                 "those of geom-gcn are for cora, citeseer, pubmed"));
  test::TemporaryDirectory dir;
  for (const auto& entry : fs::directory_iterator(test::golden("planetoid")))
    fs::copy_file(entry.path(), dir / entry.path().filename().string());
  const auto load = [&](std::int64_t split) {
    return load_planetoid("tiny", {.root = dir.path(), .split = split, .splits = "geom-gcn"});
  };
  CHECK(contains(error_of([&] { load(0); }), "tiny: no file tiny_split_0.6_0.2_0.npz in "));
  CHECK(contains(error_of([&] { load(10); }), "geom-gcn has splits 0 to 9"));
  CHECK(contains(error_of([&] { load_planetoid("tiny", {.root = dir.path(), .splits = "other"}); }),
                 "no splits are called 'other'"));
  fs::create_directory(dir / "geom_gcn_splits");
  const auto mask = [](std::vector<std::int64_t> ids) {
    Tensor chosen = zeros({14}, u8);
    for (const std::int64_t id : ids) chosen.mutable_data<std::uint8_t>()[id] = 1;
    return chosen;
  };
  const auto save = [&](const Tensor& test) {
    save_npz(dir / "geom_gcn_splits/tiny_split_0.6_0.2_3.npz",
             {{"train_mask", mask({1, 5, 13})}, {"val_mask", mask({0})}, {"test_mask", test}});
  };
  save(mask({4, 7}));
  CHECK(longs(load(3).train) == Ids{1, 5, 13});
  CHECK(longs(load(3).val) == Ids{0});
  CHECK(longs(load(3).test) == Ids{4, 7});
  save(mask({5}));
  CHECK(contains(error_of([&] { load(3); }), "the split names node 5 twice"));
  save(zeros({13}, u8));
  CHECK(contains(error_of([&] { load(3); }), "for each of 14 nodes"));
  if (test::find_data("geom_gcn_splits").empty()) return;
  const NodeData cora = load_node_data("cora", {.split = 9, .splits = "geom-gcn"});
  CHECK(cora.train.numel() == 1192);
  CHECK(cora.val.numel() == 796);
  CHECK(cora.test.numel() == 497);
}

TEST_CASE("generated citation graph: as asked, and the same for the same seed") {
  const NodeData data = generated_citation_graph({}, 7);
  check_node_data(data);
  CHECK(data.graph.num_nodes() == 2708);
  CHECK(data.graph.num_edges() == 2 * 5278);
  CHECK(data.graph.num_self_loops() == 0);
  CHECK(data.features.is_sparse());
  CHECK(data.features.cols() == 1433);
  CHECK(data.train.numel() == 140);
  CHECK(data.val.numel() == 500);
  CHECK(data.test.numel() == 1000);
  same_data(data, generated_citation_graph({}, 7));
  CHECK(!bitwise_equal(data.labels, generated_citation_graph({}, 8).labels));
  const auto from = data.graph.sources().to_vector<std::int32_t>(),
             to = data.graph.destinations().to_vector<std::int32_t>();
  const Ids label = longs(data.labels), degree = longs(data.graph.in_degrees());
  double within = 0;
  for (std::size_t k = 0; k < from.size(); ++k) within += label[from[k]] == label[to[k]];
  CHECK(within / from.size() == doctest::Approx(0.72).epsilon(0.05));
  CHECK(*std::max_element(degree.begin(), degree.end()) > 50);
  CHECK(data.features.sparse().nnz() / 2708.0 == doctest::Approx(18).epsilon(0.1));
  CHECK(*std::min_element(label.begin(), label.end()) == 0);
  // These sums are the same on every machine.
  CHECK(sum(data.labels) == 8598);
  CHECK(sum(data.graph.sources()) == 14057956);

  CitationGraphOptions small{.num_nodes = 60,
                             .num_edges = 100,
                             .num_features = 40,
                             .num_classes = 2,
                             .homophily = 1,
                             .words = 5,
                             .train_per_class = 5,
                             .num_val = 10,
                             .num_test = 20};
  CHECK(generated_citation_graph(small).graph.num_edges() == 200);
  small.homophily = 0;
  CHECK(generated_citation_graph(small).graph.num_edges() == 200);
  small.num_edges = 60 * 59 / 16;
  small.num_classes = 30;
  small.homophily = 1;
  small.train_per_class = 1;
  CHECK(generated_citation_graph(small).graph.num_edges() == 2 * small.num_edges);
  small.num_edges = 100000;
  CHECK_THROWS_AS(generated_citation_graph(small), Error);
  small.num_edges = 10;
  small.num_test = 60;
  CHECK(contains(error_of([&] { generated_citation_graph(small); }), "are more than 60"));
}

}  // namespace lipgrad
