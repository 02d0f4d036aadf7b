#include <lipgrad/graph/ogb.h>

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include <lipgrad/core/error.h>
#include <lipgrad/core/file.h>
#include <lipgrad/graph/ogb_cache.h>
#include <support/data.h>
#include <support/gz.h>
#include <support/temporary_directory.h>

namespace lipgrad {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<std::int64_t>;
using Floats = std::vector<float>;

Ids longs(const Tensor& x) { return x.to_vector<std::int64_t>(); }

// Four nodes, the edges 0-1, 2-1, 1-0 (again) and 3-3, two features of edges.
class Folder {
 public:
  Folder() {
    fs::create_directories(path() + "/raw");
    fs::create_directories(path() + "/split/time");
    set("raw/num-node-list", "4\n");
    set("raw/num-edge-list", "4\n");
    set("raw/edge", "0,1\n2,1\n1,0\n3,3\n");
    set("raw/edge-feat", "1,0.5\n2,-1.5\n3,7\n4,8\n");
    set("raw/node-label", "1\n0\n2\n1\n");
    set("split/time/train", "2\n0\n");
    set("split/time/valid", "1");
    set("split/time/test", "3\n");
  }
  std::string path() const { return directory_ / "tiny"; }
  void set(const std::string& name, const std::string& text) {
    test::write_gz(path() + "/" + name + ".csv.gz", text);
  }
  void remove(const std::string& name) { fs::remove(path() + "/" + name + ".csv.gz"); }
  NodeData load(NodeDataOptions options = {}) const {
    options.progress = false;
    return load_ogb(path(), options);
  }
  // The error, without the folder that it starts with.
  std::string error() const {
    try {
      load({.cache = false});
    } catch (const Error& error) {
      const std::string text = error.what();
      return text.starts_with(path() + "/") ? text.substr(path().size() + 1) : text;
    }
    return "none";
  }
  std::string cache() const { return path() + "/raw/lipgrad.cache"; }

 private:
  test::TemporaryDirectory directory_;
};

void same_data(const NodeData& a, const NodeData& b) {
  CHECK(bitwise_equal(a.graph.sources(), b.graph.sources()));
  CHECK(bitwise_equal(a.graph.pattern().offsets(), b.graph.pattern().offsets()));
  CHECK(bitwise_equal(a.features.to_dense(), b.features.to_dense()));
  CHECK(bitwise_equal(a.labels, b.labels));
  CHECK(a.edge_features.defined() == b.edge_features.defined());
  if (a.edge_features.defined()) CHECK(bitwise_equal(a.edge_features, b.edge_features));
  for (Tensor NodeData::*part : {&NodeData::train, &NodeData::val, &NodeData::test})
    CHECK(bitwise_equal(a.*part, b.*part));
}

void age(const std::string& path) {
  fs::last_write_time(path, fs::last_write_time(path) - std::chrono::hours(1));
}

}  // namespace

TEST_CASE("ogb: both directions, features of edges in the graph's order, the mean for nodes") {
  const Folder folder;
  const NodeData data = folder.load();
  CHECK(data.name == "tiny");
  // Into 0: from 1; into 1: from 0 and 2; into 2: from 1. The self-loop is dropped.
  CHECK(data.graph.sources().to_vector<std::int32_t>() == std::vector<std::int32_t>{1, 0, 2, 1});
  CHECK(longs(data.graph.in_degrees()) == Ids{1, 2, 1, 0});
  CHECK(data.edge_features.to_vector<float>() == Floats{1, 0.5f, 1, 0.5f, 2, -1.5f, 2, -1.5f});
  CHECK(data.features.to_dense().to_vector<float>() ==
        Floats{1, 0.5f, 1.5f, -0.5f, 2, -1.5f, 0, 0});
  CHECK(longs(data.labels) == Ids{1, 0, 2, 1});
  CHECK(data.num_classes == 3);
  CHECK(data.score == NodeScore::accuracy);
  CHECK(longs(data.train) == Ids{0, 2});
  CHECK(longs(data.val) == Ids{1});
  CHECK(longs(data.test) == Ids{3});
  const NodeData loops = folder.load({.self_loops = SelfLoops::add});
  CHECK(loops.graph.num_edges() == 8);
  CHECK(loops.edge_features.to_vector<float>() ==
        Floats{0, 0, 1, 0.5f, 1, 0.5f, 0, 0, 2, -1.5f, 2, -1.5f, 0, 0, 0, 0});
}

TEST_CASE("ogb: features of nodes, dense, sparse and none; labels of tasks") {
  Folder folder;
  folder.set("raw/node-feat", "1,2,-3e-1\n0.5,0,1\n0,0.25,4.0\n1e2,7,-0\n");
  CHECK(folder.load({.sparse_features = false}).features.dense().to_vector<float>() ==
        Floats{1, 2, -0.3f, 0.5f, 0, 1, 0, 0.25f, 4, 100, 7, -0.0f});
  folder.remove("raw/node-feat");
  folder.set("raw/node-feat-sparse", "0,1,2\n0,4,0.5\n3,0,-1\n");
  NodeData data = folder.load({.sparse_features = true});
  CHECK(data.features.cols() == 5);
  CHECK(data.features.to_dense().to_vector<float>() ==
        Floats{0, 2, 0, 0, 0.5f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -1, 0, 0, 0, 0});
  folder.remove("raw/node-feat-sparse");
  folder.remove("raw/edge-feat");
  folder.set("raw/node-label", "0,1\n1,\n0,0\nnan,1\n");
  data = folder.load();
  CHECK(!data.edge_features.defined());
  CHECK(data.features.is_sparse());
  CHECK(data.features.cols() == 4);
  CHECK(data.task == NodeTask::multi_label);
  CHECK(data.score == NodeScore::roc_auc);
  CHECK(data.labels.shape() == Shape({4, 2}));
  CHECK(data.labels.data<float>()[1] == 1);
  CHECK(std::isnan(data.labels.data<float>()[3]));
  CHECK(std::isnan(data.labels.data<float>()[6]));
}

TEST_CASE("ogb: the split's type") {
  Folder folder;
  fs::create_directories(folder.path() + "/split/random");
  for (const char* part : {"train", "valid", "test"})
    folder.set("split/random/" + std::string(part), part[1] == 'r' ? "3" : "");
  CHECK(longs(folder.load().train) == Ids{0, 2});
  CHECK(longs(folder.load({.splits = "random"}).train) == Ids{3});
  fs::rename(folder.path() + "/split/time", folder.path() + "/split/odd");
  CHECK(folder.error() == "split: several splits, odd, random; choose one");
  fs::remove_all(folder.path() + "/split");
  CHECK(folder.error().starts_with("split: no folder with train.csv.gz"));
}

TEST_CASE("ogb: what the files must not hold, by file and line") {
  struct Case {
    const char *file, *text, *error;
  };
  const Case cases[] = {
      {"raw/edge", "0,1\n2,4\n1,0\n3,3\n",
       "line 2: '2,4', expected 2 whole numbers in [0, 4), with commas between"},
      {"raw/edge", "0,1\n2,1\n-1,0\n3,3\n", "line 3: '-1,0', expected 2 whole"},
      {"raw/edge", "0,1\n2,1\n1,0\n3,99999999999999999999999\n", "line 4: '3,9999"},
      {"raw/edge", "0,1\n2,1\n1,0\n3,18446744073709551617\n", "line 4: '3,1844"},
      {"raw/edge", "0,1\n\n1,0\n3,3\n", "line 2: '', expected 2 whole"},
      {"raw/edge", "0,1,2\n2,1\n1,0\n3,3\n", "line 1: '0,1,2', expected 2 whole"},
      {"raw/edge", "0,1\n2\n1,0\n3,3\n", "line 2: '2', expected 2 whole"},
      {"raw/edge", "0,1\n2,1\n1,0\n", "ends after line 3, but there must be 4 by num-edge-list"},
      {"raw/edge", "0,1\n2,1\n1,0\n3,3\n1,2\n",
       "line 5: there are more than the 4 lines of num-edge-list"},
      {"raw/edge", "0,1\n2,1\n1,0\n3,\xff\xfe\n", "line 4: '3,\xff\xfe', expected"},
      {"raw/edge", "0,1\n2,1\n1,0\n3,\x1b[31m\n", "line 4: '3,?[31m', expected"},
      {"raw/num-edge-list", "9000000000\n", "line 1: '9000000000', expected 1 whole number in ["},
      {"raw/num-edge-list", "2000000000\n", "ends after line 4, but there must be 2000000000"},
      {"raw/num-edge-list", "", "ends after line 0, but there must be 1 by one graph"},
      {"raw/num-node-list", "4\n4\n", "line 2: there are more than the 1 lines of one graph"},
      {"raw/num-node-list", "2000000000\n", "ends after line 4, but there must be 2000000000"},
      {"raw/edge-feat", "1,2\n1,nan\n1,2\n1,2\n", "line 2: '1,nan', expected 2 finite numbers"},
      {"raw/edge-feat", "1,2\n1,2\n1,inf\n1,2\n", "line 3: '1,inf', expected 2 finite numbers"},
      {"raw/edge-feat", "1,2\n1,1e39\n1,2\n1,2\n", "line 2: '1,1e39', expected 2 finite"},
      {"raw/edge-feat", "1,2\n1,1e999\n1,2\n1,2\n", "line 2: '1,1e999', expected 2 finite"},
      {"raw/edge-feat", "1,2\n1,\n1,2\n1,2\n", "line 2: '1,', expected 2 finite numbers"},
      {"raw/edge-feat", "1,2\n1,2,3\n1,2\n1,2\n", "line 2: '1,2,3', expected 2 finite"},
      {"raw/edge-feat", "1,2\n1, 2\n1,2\n1,2\n", "line 2: '1, 2', expected 2 finite"},
      {"raw/edge-feat", "1,2\n1,2.3.4\n1,2\n1,2\n", "line 2: '1,2.3.4', expected 2 finite"},
      {"raw/node-label", "1\n0.5\n2\n1\n", "line 2: 0.5, expected a class"},
      {"raw/node-label", "1\n\n2\n1\n", "line 2: nan, expected a class"},
      {"raw/node-label", "1\n4\n2\n1\n", "line 2: 4, expected a class"},
      {"raw/node-label", "1\n-1\n2\n1\n", "line 2: -1, expected a class"},
      {"raw/node-feat-sparse", "0,1,1\n0,1,2\n", "line 2: '0,1,2', expected rows that ascend"},
      {"raw/node-feat-sparse", "1,1,1\n0,2,2\n", "line 2: '0,2,2', expected rows that ascend"},
      {"raw/node-feat-sparse", "0,1,1\n4,2,2\n", "line 2: '4,2,2', expected a row in [0, 4)"},
      {"raw/node-feat-sparse", "0,99999999,1\n", "line 1: '0,99999999,1', expected a row"},
      {"split/time/valid", "4\n", "line 1: '4', expected 1 whole number in [0, 4)"},
      {"split/time/valid", "1\n1\n", "names node 1 twice"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.file);
    CAPTURE(c.text);
    Folder folder;
    folder.set(c.file, c.text);
    const std::string error = folder.error();
    CAPTURE(error);
    // More or fewer nodes are noticed in the labels.
    const std::string file =
        std::string(c.file) == "raw/num-node-list" && c.text[0] == '2'   ? "raw/node-label"
        : std::string(c.file) == "raw/num-edge-list" && c.text[0] == '2' ? "raw/edge"
                                                                         : c.file;
    CHECK(error.starts_with(file + ".csv.gz: " + c.error));
  }
  Folder folder;
  folder.set("split/time/valid", "2\n");
  CHECK(folder.error() == "tiny: the split names node 2 twice or out of order");
  folder.remove("raw/node-label");
  CHECK(folder.error().starts_with("raw/node-label.csv.gz: cannot open: "));
}

TEST_CASE("ogb: gzip data that are damaged, truncated, in several members, or a bomb") {
  Folder folder;
  const std::string path = folder.path() + "/raw/edge.csv.gz";
  const std::string good = test::gz("0,1\n2,1\n1,0\n3,3\n");
  const auto write = [&](const std::string& bytes) {
    write_file(path, std::as_bytes(std::span(bytes)));
  };
  const NodeData expected = folder.load({.cache = false});
  write(test::gz("0,1\n2,") + test::gz("") + test::gz("1\n1,0\n3,3"));
  same_data(folder.load({.cache = false}), expected);
  for (std::size_t size = 0; size < good.size(); ++size) {
    write(good.substr(0, size));
    CHECK(folder.error().starts_with("raw/edge.csv.gz: "));
  }
  CHECK(folder.error() == "raw/edge.csv.gz: truncated: the gzip data end before their end");
  for (std::size_t at = 0; at < good.size(); ++at) {
    if (at >= 4 && at < 10) continue;  // time, flags of speed, system
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x55);
    write(bad);
    CHECK(folder.error().starts_with("raw/edge.csv.gz: "));
  }
  write(good + "x");
  CHECK(folder.error().starts_with("raw/edge.csv.gz: "));
  write("0,1\n2,1\n1,0\n3,3\n");
  CHECK(folder.error().starts_with("raw/edge.csv.gz: damaged gzip data: "));
  // 64 MiB on one line, and as many edges as there is room for.
  write(test::gz(std::string(64 << 20, '1')));
  CHECK(folder.error() == "raw/edge.csv.gz: a line of more than 16777216 bytes");
  std::string lines;
  for (int i = 0; i < 1 << 20; ++i) lines += "0,1\n";
  write(test::gz(lines));
  CHECK(folder.error().starts_with("raw/edge.csv.gz: line 5: there are more than the 4 lines"));
  fs::remove(path);
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  CHECK(folder.error() == "raw/edge.csv.gz: is not a regular file");
}

TEST_CASE("ogb: the cache is read instead of the files, while they are those it was made from") {
  Folder folder;
  const NodeData first = folder.load();
  REQUIRE(fs::exists(folder.cache()));
  const auto written = fs::last_write_time(folder.cache());
  const auto was_read = [&] { return fs::last_write_time(folder.cache()) == written; };
  same_data(folder.load(), first);
  CHECK(was_read());
  // Another time, as after copying, is no change; other bytes are, whatever their number.
  age(folder.path() + "/raw/edge.csv.gz");
  same_data(folder.load(), first);
  CHECK(was_read());
  folder.set("raw/edge", "0,1\n2,1\n1,0\n2,3\n");
  age(folder.cache());
  const auto aged = fs::last_write_time(folder.cache());
  CHECK(folder.load().graph.num_edges() == 6);
  CHECK(fs::last_write_time(folder.cache()) != aged);
  CHECK(folder.load().graph.num_edges() == 6);
  folder.remove("raw/edge-feat");
  CHECK(!folder.load().edge_features.defined());
  // The split is not part of it.
  folder.set("split/time/train", "2\n");
  CHECK(longs(folder.load().train) == Ids{2});
}

TEST_CASE("ogb: a damaged cache is made anew") {
  const Folder folder;
  const NodeData first = folder.load();
  const std::vector<std::byte> good = read_file(folder.cache());
  for (std::size_t at = 0; at < good.size(); at += at < 64 ? 1 : 37) {
    std::vector<std::byte> bad = good;
    bad[at] ^= std::byte{0x10};
    write_file(folder.cache(), bad);
    same_data(folder.load(), first);
    CHECK(read_file(folder.cache()) == good);
  }
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, good.size() / 2, good.size() - 1}) {
    write_file(folder.cache(), std::span(good).first(size));
    same_data(folder.load(), first);
  }
  // One whose checksums are right and whose arrays do not belong together.
  std::vector<CacheSource> sources;
  for (const char* name : {"num-node-list.csv.gz", "num-edge-list.csv.gz", "edge.csv.gz",
                           "edge-feat.csv.gz", "node-label.csv.gz"})
    sources.push_back(source_of(folder.path() + "/raw", name));
  const auto cache_with = [&](const std::vector<NamedTensor>& tensors) {
    write_cache(folder.path() + "/raw", "lipgrad.cache", sources, tensors);
    same_data(folder.load(), first);
  };
  const Tensor one = from_values<std::int64_t>({1}, {4}), ends = zeros({4}, i32);
  cache_with({{"counts", one}});
  cache_with({{"counts", one}, {"source", ends}, {"destination", zeros({3}, i32)}});
  cache_with({{"counts", one},
              {"source", ends},
              {"destination", ends},
              {"labels", zeros({4, 1})},
              {"edge_features", zeros({3, 2})}});
}

TEST_CASE("ogb: without a cache where there can be none, or none is wanted") {
  const Folder folder;
  folder.load({.cache = false});
  CHECK(!fs::exists(folder.cache()));
  fs::permissions(folder.path() + "/raw", fs::perms::owner_read | fs::perms::owner_exec);
  const NodeData data = folder.load();
  CHECK(data.graph.num_edges() == 4);
  if (::geteuid() != 0) CHECK(!fs::exists(folder.cache()));
  fs::permissions(folder.path() + "/raw", fs::perms::owner_all);
}

TEST_CASE("ogb: names, and Planetoid's networks in this form") {
  test::TemporaryDirectory root;
  const Folder folder;
  fs::create_directories(root / "ogb");
  fs::copy(folder.path(), root / "ogb/arxiv", fs::copy_options::recursive);
  const NodeDataOptions options{.root = root.path(), .cache = false, .progress = false};
  CHECK(find_node_data("ogbn-arxiv", options) == root / "ogb/arxiv");
  CHECK(load_node_data("ogbn-arxiv", options).name == "ogbn-arxiv");
  CHECK(load_node_data("ogb/arxiv", options).name == "arxiv");
  CHECK(load_node_data(folder.path() + "/", options).name == "tiny");
  CHECK(!find_node_data("ogbn-proteins", options));
  CHECK_THROWS_WITH_AS(load_node_data("ogbn-proteins", options),
                       doctest::Contains("`tools/fetch_data ogbn-proteins` downloads it"), Error);
  for (const char* name : {"cora", "citeseer", "pubmed"}) {
    if (test::find_data("ogb/" + std::string(name)).empty()) continue;
    const NodeData data = load_node_data("ogb/" + std::string(name), {.cache = false});
    if (std::string(name) == "pubmed") {
      CHECK(data.graph.num_edges() == 2 * 44324);
      CHECK(data.features.cols() == 500);
      continue;
    }
    if (test::find_data("planetoid/ind." + std::string(name) + ".x").empty()) continue;
    NodeData original = load_planetoid(name, {.row_normalize = false});
    CHECK(data.features.is_sparse());
    same_data(data, original);
  }
}

}  // namespace lipgrad
