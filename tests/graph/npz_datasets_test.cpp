#include <doctest/doctest.h>

#include <map>
#include <string>
#include <vector>

#include <lipgrad/core/npz.h>
#include <lipgrad/graph/datasets.h>
#include <support/data.h>
#include <support/errors.h>
#include <support/temporary_directory.h>

namespace lipgrad {
namespace {

using Ids = std::vector<std::int64_t>;
using test::contains;
using test::error_of;

Ids longs(const Tensor& x) { return x.to_vector<std::int64_t>(); }

}  // namespace

TEST_CASE("node data: .npz in all layouts, and what is wrong in them") {
  test::TemporaryDirectory dir;
  const std::string path = dir / "set.npz";
  std::map<std::string, Tensor> plain{{"x_shape", from_values<std::int32_t>({2}, {3, 4})},
                                      {"x_indptr", from_values<std::int32_t>({4}, {0, 1, 1, 3})},
                                      {"x_indices", from_values<std::int32_t>({3}, {2, 0, 3})},
                                      {"x_data", from_values<float>({3}, {1, 2, 3})},
                                      {"edges", from_values<std::int32_t>({2, 2}, {0, 1, 1, 2})},
                                      {"y", from_values<std::int32_t>({3}, {0, 1, 0})},
                                      {"train_mask", from_values<std::uint8_t>({3}, {1, 0, 0})},
                                      {"val_mask", from_values<std::uint8_t>({3}, {0, 1, 0})},
                                      {"test_mask", from_values<std::uint8_t>({3}, {0, 0, 1})}};
  const auto load = [&](const std::map<std::string, Tensor>& arrays) {
    save_npz(path, arrays);
    return load_node_data(path);
  };
  const auto wrong = [&](const char* name, const Tensor& value) {
    auto changed = plain;
    changed[name] = value;
    const std::string error = error_of([&] { load(changed); });
    return error.starts_with(path + ": ") ? error.substr(path.size() + 2) : "no path: " + error;
  };
  const NodeData data = load(plain);
  CHECK(data.name == "set");
  CHECK(data.graph.num_edges() == 4);
  CHECK(longs(data.labels) == Ids{0, 1, 0});
  CHECK(longs(data.test) == Ids{2});
  CHECK(data.features.to_dense().to_vector<float>() ==
        std::vector<float>{0, 0, 1, 0, 0, 0, 0, 0, 2, 0, 0, 3});
  CHECK(wrong("edges", from_values<std::int32_t>({1, 2}, {0, 3})) ==
        "graph: edge 0 is 0 -> 3; node ids must be in [0, 3)");
  CHECK(wrong("y", from_values<std::int32_t>({3}, {0, -1, 0})) ==
        "set: node 1 has the label -1; labels must be in [0, 1)");
  CHECK(wrong("y", from_values<std::int64_t>({3}, {0, std::int64_t{1} << 40, 0})) ==
        "a label of 1099511627776 among 3 nodes");
  CHECK(
      contains(wrong("y", from_values<std::int32_t>({2}, {0, 0})), "labels must be i64 of shape"));
  CHECK(wrong("y", ones({3})) == "'y' holds f32, expected integers");
  CHECK(contains(wrong("val_mask", from_values<std::uint8_t>({3}, {1, 1, 0})),
                 "the split names node 0 twice"));
  CHECK(contains(wrong("val_mask", from_values<std::uint8_t>({2}, {1, 1})), "for each of 3 nodes"));
  CHECK(contains(wrong("x_indices", from_values<std::int64_t>({3}, {2, 0, 4294967296})),
                 "'x_indices' holds 4294967296 at 2, expected less than 4"));
  CHECK(contains(wrong("x_indptr", from_values<std::int32_t>({4}, {0, 2, 1, 3})), "descend"));
  CHECK(contains(wrong("x_shape", from_values<std::int32_t>({2}, {2, 4})), "offsets must be"));
  auto missing = plain;
  missing.erase("edges");
  CHECK(contains(error_of([&] { load(missing); }), "no array 'edges'; it holds: "));

  const Tensor masks = from_values<std::uint8_t>({2, 3}, {1, 0, 0, 0, 0, 1});
  std::map<std::string, Tensor> heterophilous{
      {"node_features", from_values<float>({3, 2}, {1, 2, 3, 4, 5, 6})},
      {"node_labels", from_values<std::int64_t>({3}, {1, 0, 2})},
      {"edges", from_values<std::int64_t>({1, 2}, {2, 0})},
      {"train_masks", masks},
      {"val_masks", zeros({2, 3}, u8)},
      {"test_masks", zeros({2, 3}, u8)}};
  CHECK(longs(load(heterophilous).train) == Ids{0});
  CHECK(longs(load_npz_dataset(path, {.split = 1}).train) == Ids{2});
  CHECK(!load(heterophilous).features.is_sparse());
  heterophilous["node_features"] = zeros({1000000000, 0});
  CHECK(contains(error_of([&] { load(heterophilous); }), "but there are 3 labels"));

  // Two classes are judged by ROC-AUC in this layout.
  heterophilous["node_features"] = ones({3, 2});
  heterophilous["node_labels"] = from_values<std::int64_t>({3}, {1, 0, 0});
  CHECK(load(heterophilous).score == NodeScore::roc_auc);

  std::map<std::string, Tensor> several{
      {"y_multi", from_values<std::uint8_t>({3, 2}, {0, 1, 1, 1, 0, 0})},
      {"edges", from_values<std::int32_t>({1, 2}, {2, 0})},
      {"train_mask", from_values<std::uint8_t>({3}, {1, 0, 0})},
      {"val_mask", from_values<std::uint8_t>({3}, {0, 1, 0})},
      {"test_mask", from_values<std::uint8_t>({3}, {0, 0, 1})}};
  const NodeData labelled = load(several);
  CHECK(labelled.task == NodeTask::multi_label);
  CHECK(labelled.labels.to_vector<float>() == std::vector<float>{0, 1, 1, 1, 0, 0});
  CHECK(labelled.features.to_dense().to_vector<float>() ==
        std::vector<float>{1, 0, 0, 0, 1, 0, 0, 0, 1});
  several["y_multi"] = from_values<std::uint8_t>({3, 2}, {0, 1, 1, 1, 0, 2});
  CHECK(contains(error_of([&] { load(several); }), "node 2 has 2 for label 1; expected 0, 1"));
  several["y_multi"] = zeros({1000000000, 0}, u8);
  CHECK(contains(error_of([&] { load(several); }), "'y_multi' is empty"));

  // The same layouts as numpy writes them.
  for (const auto& [name, nodes, edges] :
       {std::tuple{"plain", 5, 6}, {"heterophilous", 5, 6}, {"shchur", 4, 4}}) {
    const NodeData written = load_node_data(test::golden(std::string("npz/") + name + "_data.npz"));
    CHECK(written.graph.num_nodes() == nodes);
    CHECK(written.graph.num_edges() == edges);
  }

  NodeData shchur = load({{"adj_shape", from_values<std::int64_t>({2}, {3, 3})},
                          {"adj_indptr", from_values<std::int32_t>({4}, {0, 1, 3, 3})},
                          {"adj_indices", from_values<std::int32_t>({3}, {1, 0, 1})},
                          {"adj_data", ones({3})},
                          {"attr_shape", from_values<std::int64_t>({2}, {3, 50})},
                          {"attr_indptr", from_values<std::int32_t>({4}, {0, 1, 1, 2})},
                          {"attr_indices", from_values<std::int32_t>({2}, {49, 0})},
                          {"attr_data", ones({2})},
                          {"labels", from_values<std::uint8_t>({3}, {0, 1, 1})}});
  CHECK(shchur.graph.num_edges() == 2);
  CHECK(shchur.features.is_sparse());
  CHECK(shchur.train.numel() == 0);
  Generator rng(1);
  random_split(shchur, 1, 1, rng);
  check_node_data(shchur);
  CHECK(shchur.train.numel() == 2);
  CHECK(shchur.val.numel() == 1);
  CHECK(shchur.test.numel() == 0);
}

}  // namespace lipgrad
