#include <lipgrad/graph/datasets.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <span>
#include <string_view>
#include <utility>

#include <lipgrad/core/check.h>
#include <lipgrad/core/data_folders.h>
#include <lipgrad/core/file.h>
#include <lipgrad/core/npz.h>
#include <lipgrad/graph/dataset_parts.h>
#include <lipgrad/graph/generated_ogb.h>
#include <lipgrad/graph/ogb.h>
#include <lipgrad/graph/planetoid.h>

namespace lipgrad {
namespace {

constexpr std::array kPlanetoidNames = {"cora", "citeseer", "pubmed"};
constexpr std::array kNpzNames = {"amazon_photo",
                                  "coauthor_cs",
                                  "cora_ml",
                                  "karate_club",
                                  "pubmed_partial_features",
                                  "ppi_human_multilabel",
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
constexpr std::array kOgbNames = {"ogbn-arxiv", "ogbn-proteins"};
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

std::vector<std::string> split_folders(const NodeDataOptions& options) {
  return search_folders(options, {"geom_gcn_splits"});
}

bool is_one_of(std::span<const char* const> names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

using detail::finish_features;
using detail::selected_ids;
using detail::vector_tensor;

std::string join(const auto& texts) { return fmt::format("{}", fmt::join(texts, ", ")); }

CsrMatrix csr(std::int64_t rows, std::int64_t cols, Tensor offsets, Tensor columns, Tensor values) {
  return CsrMatrix(CsrPattern(rows, cols, std::move(offsets), std::move(columns)),
                   std::move(values));
}

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

std::string first_with(const std::string& file, const std::vector<std::string>& folders) {
  for (const std::string& folder : folders)
    if (const std::string path = folder + "/" + file; exists(path)) return path;
  return {};
}

bool is_ogb(const std::string& folder) { return exists(folder + "/raw/edge.csv.gz"); }

// The folder of a name such as "ogbn-arxiv", or of a path as it is or below a data folder; else
// empty.
std::string find_ogb(const std::string& name, const NodeDataOptions& options) {
  if (!is_one_of(kOgbNames, name)) {
    if (is_ogb(name)) return name;
    for (const std::string& folder : node_data_folders(options))
      if (is_ogb(folder + "/" + name)) return folder + "/" + name;
    return {};
  }
  const std::string plain = name.substr(std::string_view("ogbn-").size());
  for (const std::string& folder : search_folders(options, {"ogb"}))
    for (const std::string& known : {"ogbn_" + plain, name, plain})
      if (is_ogb(folder + "/" + known)) return folder + "/" + known;
  return {};
}

void check_splits(const std::string& name, const NodeDataOptions& options) {
  LIPGRAD_CHECK(options.splits.empty() || options.splits == "geom-gcn",
                "{}: no splits are called '{}'; expected geom-gcn, or none", name, options.splits);
  LIPGRAD_CHECK(options.splits.empty() || (options.split >= 0 && options.split < 10),
                "{}: split {} is asked for; geom-gcn has splits 0 to 9", name, options.split);
}

}  // namespace

// Replaces the split by one of geom-gcn's.
void use_geom_gcn_split(NodeData& data, const NodeDataOptions& options) {
  check_splits(data.name, options);
  const std::string file = fmt::format("{}_split_0.6_0.2_{}.npz", data.name, options.split);
  const std::vector<std::string> folders = split_folders(options);
  const std::string path = first_with(file, folders);
  LIPGRAD_CHECK(!path.empty(), "{}: no file {} in {}; `tools/fetch_data geom-gcn` downloads it",
                data.name, file, join(folders));
  const NpzFile split(path);
  Tensor* const parts[] = {&data.train, &data.val, &data.test};
  const char* const masks[] = {"train_mask", "val_mask", "test_mask"};
  for (int part = 0; part < 3; ++part) {
    const Tensor mask = to_tensor(split.read(masks[part]));
    LIPGRAD_CHECK(mask.dtype() == u8 && mask.shape() == Shape{data.graph.num_nodes()},
                  "{}: '{}' must be bool or u8 for each of {} nodes, got {}", path, masks[part],
                  data.graph.num_nodes(), mask.str());
    *parts[part] = selected_ids(mask.data<std::uint8_t>(), mask.numel());
  }
}

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
  if (!options.splits.empty()) use_geom_gcn_split(data, options);
  check_node_data(data);
  return data;
}

NodeData load_node_data(const std::string& name, const NodeDataOptions& options) {
  if (is_one_of(kPlanetoidNames, name)) return load_planetoid(name, options);
  const bool is_path = name.ends_with(".npz"), is_npz = is_path || is_one_of(kNpzNames, name);
  LIPGRAD_CHECK(options.splits.empty() || (!is_npz && !name.starts_with("generated")),
                "{}: no splits are called '{}'; those of geom-gcn are for {}", name, options.splits,
                join(kPlanetoidNames));
  if (is_path) return load_npz_dataset(name, options);
  if (is_npz) {
    const std::vector<std::string> folders = npz_folders(options);
    const std::string path = first_with(name + ".npz", folders);
    LIPGRAD_CHECK(!path.empty(), "{}: no file {}.npz in {}", name, name, join(folders));
    return load_npz_dataset(path, options);
  }
  if (name == "generated") {
    CitationGraphOptions generated;
    generated.sparse_features = options.sparse_features.value_or(true);
    generated.row_normalize = options.row_normalize.value_or(true);
    generated.self_loops = options.self_loops;
    return generated_citation_graph(generated);
  }
  if (name == "generated-arxiv") return generated_arxiv({.self_loops = options.self_loops});
  if (name == "generated-proteins") return generated_proteins({.self_loops = options.self_loops});
  const std::string folder = find_ogb(name, options);
  const bool published = is_one_of(kOgbNames, name);
  LIPGRAD_CHECK(!folder.empty() || !published,
                "{}: no folder with raw/edge.csv.gz in {}; `tools/fetch_data {}` downloads it",
                name, join(search_folders(options, {"ogb"})), name);
  LIPGRAD_CHECK(!folder.empty(),
                "unknown data set '{}'; known are {}, or the path of a .npz file or of a folder "
                "with raw/edge.csv.gz",
                name, join(known_node_data()));
  NodeData data = load_ogb(folder, options);
  if (published) data.name = name;
  return data;
}

std::vector<std::string> known_node_data() {
  std::vector<std::string> names(kPlanetoidNames.begin(), kPlanetoidNames.end());
  names.insert(names.end(), kNpzNames.begin(), kNpzNames.end());
  names.insert(names.end(), kOgbNames.begin(), kOgbNames.end());
  for (const char* name : {"generated", "generated-arxiv", "generated-proteins"})
    names.emplace_back(name);
  return names;
}

std::optional<std::string> find_node_data(const std::string& name, const NodeDataOptions& options) {
  std::string path, partial;
  if (is_one_of(kPlanetoidNames, name))
    path = find_planetoid(name, planetoid_folders(options), partial);
  else if (is_one_of(kNpzNames, name))
    path = first_with(name + ".npz", npz_folders(options));
  else if (is_one_of(kOgbNames, name))
    path = find_ogb(name, options);
  return path.empty() ? std::nullopt : std::optional(path);
}

std::vector<std::string> node_data_folders(const NodeDataOptions& options) {
  return data_folders(options.root);
}

}  // namespace lipgrad
