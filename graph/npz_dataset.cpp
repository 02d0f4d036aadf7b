#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>

#include <lipgrad/core/check.h>
#include <lipgrad/core/npz.h>
#include <lipgrad/graph/dataset_parts.h>

namespace lipgrad {

namespace {

using detail::finish_features;
using detail::identity_features;
using detail::selected_ids;

// The row of each entry.
Tensor row_of_each(const CsrPattern& pattern) {
  Tensor rows = empty({pattern.nnz()}, i32);
  const std::int64_t* offset = pattern.offsets().data<std::int64_t>();
  std::int32_t* row = rows.mutable_data<std::int32_t>();
  for (std::int64_t i = 0; i < pattern.rows(); ++i)
    std::fill(row + offset[i], row + offset[i + 1], static_cast<std::int32_t>(i));
  return rows;
}

// The arrays of one .npz data set, with errors that name the file.
class NpzData {
 public:
  NpzData(const NpzFile& file, const NodeDataOptions& options)
      : path_(file.file()), file_(file), options_(options) {}

  NodeData load() {
    NodeData data;
    data.name = std::filesystem::path(path_).stem().string();
    try {
      if (file_.contains("node_features"))
        fill_heterophilous(data);
      else if (file_.contains("adj_indptr"))
        fill_shchur(data);
      else if (file_.contains("x_indptr"))
        fill_plain(data);
      else if (file_.contains("y_multi"))
        fill_multi_label(data);
      else
        fail(
            "{}: no data set in a known layout: none of the arrays node_features, adj_indptr, "
            "x_indptr, y_multi",
            path_);
      if (data.task == NodeTask::multi_class) set_classes(data);
      // As the paper that published this layout judges its two data sets of two classes.
      if (file_.contains("node_features") && data.num_classes == 2) data.score = NodeScore::roc_auc;
      check_node_data(data);
    } catch (const Error& error) {
      // Checks deeper down do not know the file.
      if (std::string_view(error.what()).starts_with(path_)) throw;
      fail("{}: {}", path_, error.what());
    }
    return data;
  }

 private:
  void fill_plain(NodeData& data) {
    set_features(data, "x_shape", "x_indptr", "x_indices", "x_data");
    set_graph(data);
    data.labels = integers("y");
    set_split(data);
  }

  // Nodes that have labels and edges, and nothing else: each gets a feature of its own.
  void fill_multi_label(NodeData& data) {
    const Tensor labels = tensor("y_multi", 2);
    LIPGRAD_CHECK(!is_floating(labels.dtype()), "{}: 'y_multi' holds {}, expected integers", path_,
                  labels.dtype());
    const std::int64_t nodes = labels.size(0);
    // The graph's memory is bounded by the labels'.
    LIPGRAD_CHECK(labels.numel() > 0, "{}: 'y_multi' is empty: {}", path_, labels.shape());
    data.labels = labels.to(f32);
    data.num_classes = labels.size(1);
    data.task = NodeTask::multi_label;
    data.score = NodeScore::f1_micro;
    data.features = identity_features(nodes, options_);
    set_graph(data);
    set_split(data);
  }

  void set_split(NodeData& data) const {
    Tensor* const split[] = {&data.train, &data.val, &data.test};
    const char* const masks[] = {"train_mask", "val_mask", "test_mask"};
    for (int part = 0; part < 3; ++part) {
      const Tensor mask = tensor(masks[part], 1);
      *split[part] = selected(masks[part], mask, 0, mask.numel(), data.graph.num_nodes());
    }
  }

  void fill_heterophilous(NodeData& data) {
    // The labels first: they take memory, while a million rows of no features take none.
    data.labels = integers("node_labels");
    const Tensor features = tensor("node_features", 2);
    LIPGRAD_CHECK(features.size(0) == data.labels.numel(),
                  "{}: 'node_features' has the shape {}, but there are {} labels", path_,
                  features.shape(), data.labels.numel());
    data.features = finish_features(features.to(f32), options_, false);
    set_graph(data);
    Tensor* const split[] = {&data.train, &data.val, &data.test};
    const char* const masks[] = {"train_masks", "val_masks", "test_masks"};
    for (int part = 0; part < 3; ++part) {
      const Tensor mask = tensor(masks[part], 2);
      LIPGRAD_CHECK(options_.split >= 0 && options_.split < mask.size(0),
                    "{}: split {} is asked for; it has splits 0 to {}", path_, options_.split,
                    mask.size(0) - 1);
      *split[part] = selected(masks[part], mask, options_.split * mask.size(1), mask.size(1),
                              data.graph.num_nodes());
    }
  }

  void fill_shchur(NodeData& data) {
    const CsrPattern adjacency = pattern("adj_shape", "adj_indptr", "adj_indices");
    LIPGRAD_CHECK(adjacency.rows() == adjacency.cols(), "{}: adj is {} x {}, not square", path_,
                  adjacency.rows(), adjacency.cols());
    data.graph =
        Graph(adjacency.rows(), row_of_each(adjacency), adjacency.columns(), graph_options());
    set_features(data, "attr_shape", "attr_indptr", "attr_indices", "attr_data");
    data.labels = integers("labels");
    data.train = data.val = data.test = empty({0}, i64);
  }

  Tensor tensor(const char* name, int rank) const {
    const NpyArray array = file_.read(name);
    LIPGRAD_CHECK(array.shape.rank() == rank, "{}: '{}' has the shape {}, expected rank {}", path_,
                  name, array.shape, rank);
    return to_tensor(array);
  }

  Tensor integers(const char* name) const {
    const Tensor values = tensor(name, 1);
    LIPGRAD_CHECK(!is_floating(values.dtype()), "{}: '{}' holds {}, expected integers", path_, name,
                  values.dtype());
    return values.to(i64);
  }

  CsrPattern pattern(const char* shape, const char* offsets, const char* columns) const {
    const Tensor sizes = integers(shape);
    LIPGRAD_CHECK(sizes.numel() == 2, "{}: '{}' has {} elements, expected 2", path_, shape,
                  sizes.numel());
    const Tensor wide = integers(columns);
    const std::int64_t* column = wide.data<std::int64_t>();
    for (std::int64_t k = 0; k < wide.numel(); ++k)
      LIPGRAD_CHECK(column[k] >= 0 && column[k] < sizes.data<std::int64_t>()[1],
                    "{}: '{}' holds {} at {}, expected less than {}", path_, columns, column[k], k,
                    sizes.data<std::int64_t>()[1]);
    return CsrPattern(sizes.data<std::int64_t>()[0], sizes.data<std::int64_t>()[1],
                      integers(offsets), wide.to(i32));
  }

  void set_features(NodeData& data, const char* shape, const char* offsets, const char* columns,
                    const char* values) const {
    data.features = finish_features(
        CsrMatrix(pattern(shape, offsets, columns), tensor(values, 1).to(f32)), options_, false);
  }

  void set_graph(NodeData& data) const {
    data.graph = Graph(data.features.rows(), tensor("edges", 2), graph_options());
  }

  GraphOptions graph_options() const {
    return {.symmetrize = true, .remove_duplicates = true, .self_loops = options_.self_loops};
  }

  // The places in [0, count) where the mask, from `begin` on, is not zero.
  Tensor selected(const char* name, const Tensor& mask, std::int64_t begin, std::int64_t count,
                  std::int64_t nodes) const {
    LIPGRAD_CHECK(mask.dtype() == u8 && count == nodes,
                  "{}: '{}' must be bool or u8 for each of {} nodes, got {} of shape {}", path_,
                  name, nodes, mask.dtype(), mask.shape());
    return selected_ids(mask.data<std::uint8_t>() + begin, count);
  }

  // As many classes as the labels name; more than nodes can only be damage.
  void set_classes(NodeData& data) const {
    const std::int64_t* label = data.labels.data<std::int64_t>();
    const std::int64_t count = data.labels.numel();
    const std::int64_t largest = count > 0 ? *std::max_element(label, label + count) : -1;
    LIPGRAD_CHECK(largest < count, "{}: a label of {} among {} nodes", path_, largest, count);
    data.num_classes = largest + 1;
  }

  const std::string& path_;
  const NpzFile& file_;
  const NodeDataOptions& options_;
};

}  // namespace

NodeData load_npz_dataset(const std::string& path, const NodeDataOptions& options) {
  return load_npz_dataset(NpzFile(path), options);
}

NodeData load_npz_dataset(const NpzFile& file, const NodeDataOptions& options) {
  return NpzData(file, options).load();
}

}  // namespace lipgrad
