#include <lipgrad/graph/datasets.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string_view>
#include <utility>

#include <lipgrad/core/check.h>
#include <lipgrad/core/file.h>
#include <lipgrad/core/npz.h>
#include <lipgrad/graph/planetoid.h>

namespace lipgrad {
namespace {

constexpr std::array kPlanetoidNames = {"cora", "citeseer", "pubmed"};
constexpr std::array kNpzNames = {"amazon_photo",
                                  "coauthor_cs",
                                  "cora_ml",
                                  "karate_club",
                                  "actor",
                                  "chameleon",
                                  "squirrel",
                                  "chameleon_filtered",
                                  "squirrel_filtered",
                                  "texas",
                                  "cornell",
                                  "wisconsin",
                                  "minesweeper",
                                  "tolokers"};
constexpr std::array kPlanetoidParts = {"x",    "y",    "tx",    "ty",
                                        "allx", "ally", "graph", "test.index"};

bool exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

// The folders themselves and, before each, its subfolders.
std::vector<std::string> search_folders(const NodeDataOptions& options,
                                        std::initializer_list<const char*> subfolders) {
  std::vector<std::string> folders;
  for (const std::string& folder : node_data_folders(options)) {
    for (const char* sub : subfolders) folders.push_back(folder + "/" + sub);
    folders.push_back(folder);
  }
  return folders;
}

std::vector<std::string> planetoid_folders(const NodeDataOptions& options) {
  return search_folders(options, {"planetoid"});
}

std::vector<std::string> npz_folders(const NodeDataOptions& options) {
  return search_folders(options, {"npz", "heterophilous"});
}

bool is_one_of(std::span<const char* const> names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string join(const auto& texts) { return fmt::format("{}", fmt::join(texts, ", ")); }

template <class T>
Tensor vector_tensor(const std::vector<T>& values) {
  return from_vector({static_cast<std::int64_t>(values.size())}, values);
}

// Dense or sparse, normalised or not, as the options say.
Features finish_features(Features features, const NodeDataOptions& options, bool normalize) {
  bool sparse = features.is_sparse();
  if (options.sparse_features) {
    sparse = *options.sparse_features;
  } else {
    const std::int64_t all = features.rows() * features.cols();
    std::int64_t nonzero;
    if (features.is_sparse()) {
      nonzero = features.sparse().nnz();
    } else {
      const float* x = features.dense().data<float>();
      nonzero = all - std::count(x, x + all, 0.0f);
    }
    sparse = nonzero < all / 4;
  }
  if (sparse && !features.is_sparse()) features = CsrMatrix::from_dense(features.dense());
  if (!sparse && features.is_sparse()) features = features.to_dense();
  return options.row_normalize.value_or(normalize) ? row_normalize(features) : features;
}

// The row of each entry.
Tensor row_of_each(const CsrPattern& pattern) {
  Tensor rows = empty({pattern.nnz()}, i32);
  const std::int64_t* offset = pattern.offsets().data<std::int64_t>();
  std::int32_t* row = rows.mutable_data<std::int32_t>();
  for (std::int64_t i = 0; i < pattern.rows(); ++i)
    std::fill(row + offset[i], row + offset[i + 1], static_cast<std::int32_t>(i));
  return rows;
}

CsrMatrix csr(std::int64_t rows, std::int64_t cols, Tensor offsets, Tensor columns, Tensor values) {
  return CsrMatrix(CsrPattern(rows, cols, std::move(offsets), std::move(columns)),
                   std::move(values));
}

}  // namespace

namespace {

// The first folder in which all parts of the network are, as the start of their paths; else empty,
// and `partial` names a file that is missing where others are.
std::string find_planetoid(const std::string& name, const std::vector<std::string>& folders,
                           std::string& partial) {
  for (const std::string& folder : folders) {
    const std::string start = folder + "/ind." + name + ".";
    const auto missing = std::find_if(kPlanetoidParts.begin(), kPlanetoidParts.end(),
                                      [&](const char* part) { return !exists(start + part); });
    if (missing == kPlanetoidParts.end()) return start;
    if (partial.empty() && missing != kPlanetoidParts.begin()) partial = start + *missing;
  }
  return {};
}

std::string find_npz(const std::string& name, const std::vector<std::string>& folders) {
  for (const std::string& folder : folders)
    if (const std::string path = folder + "/" + name + ".npz"; exists(path)) return path;
  return {};
}

}  // namespace

NodeData load_planetoid(const std::string& name, const NodeDataOptions& options) {
  const std::vector<std::string> folders = planetoid_folders(options);
  std::string partial;
  const std::string prefix = find_planetoid(name, folders, partial);
  const std::string help = is_one_of(kPlanetoidNames, name)
                               ? fmt::format("`tools/fetch_data {}` downloads it", name)
                               : fmt::format("known are {}", join(kPlanetoidNames));
  LIPGRAD_CHECK(!prefix.empty() || partial.empty(), "{}: {} is missing; {}", name, partial, help);
  LIPGRAD_CHECK(!prefix.empty(), "{}: no file ind.{}.x in {}; {}", name, name, join(folders), help);

  const PlanetoidData raw =
      parse_planetoid(prefix, [](const std::string& file) { return read_file(file); });
  NodeData data;
  data.name = name;
  data.graph =
      Graph(raw.num_nodes, raw.source, raw.destination,
            {.symmetrize = true, .remove_duplicates = true, .self_loops = options.self_loops});
  data.features =
      finish_features(csr(raw.num_nodes, raw.num_features, vector_tensor(raw.row_offsets),
                          vector_tensor(raw.columns), vector_tensor(raw.values)),
                      options, true);
  data.labels = vector_tensor(raw.labels);
  data.num_classes = raw.num_classes;
  data.train = vector_tensor(raw.train);
  data.val = vector_tensor(raw.val);
  data.test = vector_tensor(raw.test);
  check_node_data(data);
  return data;
}

namespace {

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
      else
        fail(
            "{}: no data set in a known layout: none of the arrays node_features, adj_indptr, "
            "x_indptr",
            path_);
      set_classes(data);
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
    const std::uint8_t* chosen = mask.data<std::uint8_t>() + begin;
    std::vector<std::int64_t> ids;
    for (std::int64_t i = 0; i < count; ++i)
      if (chosen[i] != 0) ids.push_back(i);
    return vector_tensor(ids);
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

NodeData load_node_data(const std::string& name, const NodeDataOptions& options) {
  if (name.ends_with(".npz")) return load_npz_dataset(name, options);
  if (is_one_of(kPlanetoidNames, name)) return load_planetoid(name, options);
  if (name == "generated") {
    CitationGraphOptions generated;
    generated.sparse_features = options.sparse_features.value_or(true);
    generated.row_normalize = options.row_normalize.value_or(true);
    generated.self_loops = options.self_loops;
    return generated_citation_graph(generated);
  }
  LIPGRAD_CHECK(is_one_of(kNpzNames, name),
                "unknown data set '{}'; known are {}, or the path of a .npz file", name,
                join(known_node_data()));
  const std::vector<std::string> folders = npz_folders(options);
  const std::string path = find_npz(name, folders);
  LIPGRAD_CHECK(!path.empty(), "{}: no file {}.npz in {}", name, name, join(folders));
  return load_npz_dataset(path, options);
}

std::vector<std::string> known_node_data() {
  std::vector<std::string> names(kPlanetoidNames.begin(), kPlanetoidNames.end());
  names.insert(names.end(), kNpzNames.begin(), kNpzNames.end());
  names.emplace_back("generated");
  return names;
}

std::optional<std::string> find_node_data(const std::string& name, const NodeDataOptions& options) {
  std::string path, partial;
  if (is_one_of(kPlanetoidNames, name))
    path = find_planetoid(name, planetoid_folders(options), partial);
  else if (is_one_of(kNpzNames, name))
    path = find_npz(name, npz_folders(options));
  return path.empty() ? std::nullopt : std::optional(path);
}

std::vector<std::string> node_data_folders(const NodeDataOptions& options) {
  if (!options.root.empty()) return {options.root};
  std::vector<std::string> folders;
  const char* data = std::getenv("LIPGRAD_DATA");
  const char* home = std::getenv("HOME");
  if (data && *data) folders.emplace_back(data);
  if (home && *home) folders.push_back(std::string(home) + "/.cache/lipgrad");
  return folders;
}

}  // namespace lipgrad
