#include <lipgrad/graph/ogb.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <lipgrad/core/check.h>
#include <lipgrad/core/log.h>
#include <lipgrad/core/threads.h>
#include <lipgrad/graph/csv_gz.h>
#include <lipgrad/graph/dataset_parts.h>
#include <lipgrad/graph/ogb_cache.h>

namespace lipgrad {
namespace {

namespace fs = std::filesystem;

constexpr auto kEdges = "edge.csv.gz", kNodeCount = "num-node-list.csv.gz",
               kEdgeCount = "num-edge-list.csv.gz", kNodeFeatures = "node-feat.csv.gz",
               kSparseFeatures = "node-feat-sparse.csv.gz", kEdgeFeatures = "edge-feat.csv.gz",
               kLabels = "node-label.csv.gz", kCache = "lipgrad.cache";
// Files of fewer lines are read in no time.
constexpr std::int64_t kShownLines = 1 << 20;

bool exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// What the files hold, in their order. Undefined: absent.
struct Raw {
  Tensor counts;                           // {nodes}, i64
  Tensor source, destination;              // (edges), i32
  Tensor edge_features;                    // (edges, F'), f32
  Tensor features;                         // (nodes, F), f32
  Tensor offsets, columns, values, width;  // sparse features: CSR, and {F}, i64
  Tensor labels;                           // (nodes, tasks), f32

  static constexpr std::array kNames = {"counts",   "source",  "destination", "edge_features",
                                        "features", "offsets", "columns",     "values",
                                        "width",    "labels"};
  std::array<Tensor*, kNames.size()> all() {
    return {&counts,  &source,  &destination, &edge_features, &features,
            &offsets, &columns, &values,      &width,         &labels};
  }

  // Whether a cache holds what files can hold. Ids and labels are checked where they are used.
  bool fits() const {
    const auto is = [](const Tensor& x, DType dtype, int rank) {
      return x.defined() && x.dtype() == dtype && x.rank() == rank;
    };
    const auto absent_or = [&](const Tensor& x, std::int64_t rows) {
      return !x.defined() || (is(x, f32, 2) && x.size(0) == rows);
    };
    if (!is(counts, i64, 1) || counts.numel() != 1) return false;
    const std::int64_t nodes = counts.data<std::int64_t>()[0];
    return nodes >= 0 && is(source, i32, 1) && is(destination, i32, 1) &&
           source.numel() == destination.numel() && is(labels, f32, 2) && labels.size(0) == nodes &&
           absent_or(edge_features, source.numel()) && absent_or(features, nodes) &&
           (!offsets.defined() || (is(offsets, i64, 1) && is(columns, i32, 1) &&
                                   is(values, f32, 1) && is(width, i64, 1) && width.numel() == 1));
  }
};

class OgbFolder {
 public:
  OgbFolder(const std::string& folder, const NodeDataOptions& options)
      : folder_(folder),
        raw_(folder + "/raw"),
        options_(options),
        shows_(options.progress.value_or(::isatty(STDERR_FILENO) != 0)) {
    for (const char* name :
         {kNodeCount, kEdgeCount, kEdges, kNodeFeatures, kSparseFeatures, kEdgeFeatures, kLabels}) {
      const std::string_view optional = name;
      const bool may_lack =
          optional == kNodeFeatures || optional == kSparseFeatures || optional == kEdgeFeatures;
      if (optional == kSparseFeatures && has(kNodeFeatures)) continue;
      if (!may_lack || exists(raw_ + "/" + name)) sources_.push_back(source_of(raw_, name));
    }
  }

  Raw read() {
    Raw raw;
    std::string reason;
    if (options_.cache) {
      const std::vector<NamedTensor> cached = read_cache(raw_, kCache, sources_, reason);
      for (const auto& [name, tensor] : cached)
        for (std::size_t i = 0; i < Raw::kNames.size(); ++i)
          if (name == Raw::kNames[i]) *raw.all()[i] = tensor;
      if (!cached.empty() && raw.fits()) return raw;
      if (!cached.empty()) reason = "its arrays do not fit together";
      raw = {};
      if (!reason.empty()) note(fmt::format("{}/{} is made anew: {}", raw_, kCache, reason));
    }
    read_files(raw);
    if (options_.cache) write(raw);
    return raw;
  }

  // The names of the split's three files, without endings, as tensors of sorted ids.
  void read_split(NodeData& data) const {
    const std::string type = split_type();
    Tensor* const parts[] = {&data.train, &data.val, &data.test};
    const char* const names[] = {"train", "valid", "test"};
    for (int part = 0; part < 3; ++part) {
      GzText text(fmt::format("{}/split/{}/{}.csv.gz", folder_, type, names[part]));
      Tensor ids = read_csv_ids(text, 1, data.graph.num_nodes())[0].to(i64);
      std::int64_t* id = ids.mutable_data<std::int64_t>();
      std::sort(id, id + ids.numel());
      const std::int64_t* twice = std::adjacent_find(id, id + ids.numel());
      LIPGRAD_CHECK(twice == id + ids.numel(), "{}: names node {} twice", text.file(), *twice);
      *parts[part] = ids;
    }
  }

  const std::string& raw_folder() const { return raw_; }

 private:
  bool has(const char* name) const {
    return std::any_of(sources_.begin(), sources_.end(),
                       [&](const CacheSource& source) { return source.name == name; });
  }

  void note(const std::string& text) const {
    if (options_.progress.value_or(true)) fmt::print(stderr, "{}\n", text);
  }

  std::string split_type() const {
    if (!options_.splits.empty()) return options_.splits;
    std::vector<std::string> types;
    std::error_code error;
    for (fs::directory_iterator it(folder_ + "/split", error), end; !error && it != end;
         it.increment(error))
      if (exists(it->path().string() + "/train.csv.gz"))
        types.push_back(it->path().filename().string());
    LIPGRAD_CHECK(!types.empty(),
                  "{}/split: no folder with train.csv.gz, valid.csv.gz and "
                  "test.csv.gz",
                  folder_);
    if (types.size() == 1) return types[0];
    for (const char* usual : {"time", "species", "public"})
      if (std::find(types.begin(), types.end(), usual) != types.end()) return usual;
    std::sort(types.begin(), types.end());
    fail("{}/split: several splits, {}; choose one", folder_, fmt::join(types, ", "));
  }

  // Reads a file of raw/ with f(text), and keeps its checksum.
  template <class F>
  auto read_file(const char* name, F&& f) {
    GzText text(raw_ + "/" + name);
    auto result = f(text);
    for (CacheSource& source : sources_)
      if (source.name == name) source.crc = text.crc();
    return result;
  }

  // The one number in a file.
  std::int64_t read_count(const char* name) {
    return read_file(name, [](GzText& text) {
      const Tensor count =
          read_csv_ids(text, 1, std::int64_t{1} << 31, {.count = 1, .source = "one graph"})[0];
      return std::int64_t{count.data<std::int32_t>()[0]};
    });
  }

  // What there must be in a file, shown with the lines before it as progress.
  CsvRows rows(const char* name, std::int64_t count, const char* source) {
    CsvRows rows{.count = count, .source = source};
    if (progress_)
      rows.progress = [this, name,
                       before = std::exchange(lines_, lines_ + count)](std::int64_t done) {
        progress_->update(before + done, {LogValue("file", name)});
      };
    return rows;
  }

  void read_files(Raw& raw) {
    const std::int64_t nodes = read_count(kNodeCount), edges = read_count(kEdgeCount);
    const std::int64_t total =
        edges * (has(kEdgeFeatures) ? 2 : 1) + nodes * (has(kNodeFeatures) ? 2 : 1);
    if (shows_ && total >= kShownLines)
      progress_.emplace(Progress::Options{.total = total, .unit = "line"});
    raw.counts = from_values<std::int64_t>({1}, {nodes});
    const CsvRows edge_rows = rows(kEdges, edges, kEdgeCount);
    auto ends =
        read_file(kEdges, [&](GzText& text) { return read_csv_ids(text, 2, nodes, edge_rows); });
    raw.source = std::move(ends[0]);
    raw.destination = std::move(ends[1]);
    const auto floats = [&](const char* name, bool missing, std::int64_t count,
                            const char* source) {
      const CsvRows lines = rows(name, count, source);
      return read_file(name, [&](GzText& text) { return read_csv_floats(text, missing, lines); });
    };
    if (has(kEdgeFeatures)) raw.edge_features = floats(kEdgeFeatures, false, edges, kEdgeCount);
    // Labels before features: they take memory for each node, which sparse features need not.
    raw.labels = floats(kLabels, true, nodes, kNodeCount);
    if (has(kNodeFeatures)) raw.features = floats(kNodeFeatures, false, nodes, kNodeCount);
    if (has(kSparseFeatures)) {
      CsvTriples sparse =
          read_file(kSparseFeatures, [&](GzText& text) { return read_csv_triples(text, nodes); });
      raw.offsets = std::move(sparse.offsets);
      raw.columns = std::move(sparse.columns);
      raw.values = std::move(sparse.values);
      raw.width = from_values<std::int64_t>({1}, {sparse.num_columns});
    }
    if (progress_) progress_->finish();
  }

  void write(Raw& raw) const {
    std::vector<NamedTensor> tensors;
    for (std::size_t i = 0; i < Raw::kNames.size(); ++i)
      if (raw.all()[i]->defined()) tensors.push_back({Raw::kNames[i], *raw.all()[i]});
    try {
      write_cache(raw_, kCache, sources_, tensors);
    } catch (const Error& error) {
      // A folder that cannot be written to is nothing to speak of.
      if (::access(raw_.c_str(), W_OK) == 0) note(fmt::format("no cache: {}", error.what()));
    }
  }

  const std::string folder_, raw_;
  const NodeDataOptions& options_;
  const bool shows_;
  std::vector<CacheSource> sources_;
  std::optional<Progress> progress_;
  std::int64_t lines_ = 0;
};

// Row k: the features of the list's edge that edge k of the graph comes from.
Tensor in_edge_order(const Graph& graph, const Tensor& listed) {
  const std::int64_t width = listed.size(1);
  Tensor features = empty({graph.num_edges(), width}, f32);
  const float* from = listed.data<float>();
  float* to = features.mutable_data<float>();
  const Tensor& order = graph.edge_order();
  const std::int64_t* place = order.data<std::int64_t>();
  parallel_for(graph.num_edges(), 1 << 14, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t k = begin; k < end; ++k) {
      if (place[k] < 0)
        std::fill_n(to + k * width, width, 0.0f);
      else
        std::copy_n(from + place[k] * width, width, to + k * width);
    }
  });
  return features;
}

// One column: classes. Several: tasks.
void set_labels(NodeData& data, const Tensor& labels, const std::string& file) {
  const std::int64_t nodes = labels.size(0), tasks = labels.size(1);
  const float* label = labels.data<float>();
  if (tasks > 1) {
    data.task = NodeTask::multi_label;
    data.score = NodeScore::roc_auc;
    data.labels = labels;
    data.num_classes = tasks;
    return;
  }
  Tensor classes = empty({nodes}, i64);
  std::int64_t* to = classes.mutable_data<std::int64_t>();
  for (std::int64_t i = 0; i < nodes; ++i) {
    LIPGRAD_CHECK(
        label[i] >= 0 && label[i] < static_cast<float>(nodes) && label[i] == std::floor(label[i]),
        "{}: line {}: {}, expected a class from 0 to at most the number of nodes", file, i + 1,
        label[i]);
    to[i] = static_cast<std::int64_t>(label[i]);
    data.num_classes = std::max(data.num_classes, to[i] + 1);
  }
  data.labels = classes;
}

}  // namespace

NodeData load_ogb(const std::string& folder, const NodeDataOptions& options) {
  OgbFolder files(folder, options);
  Raw raw = files.read();
  NodeData data;
  data.name = fs::path(folder).lexically_normal().filename().string();
  if (data.name.empty()) data.name = fs::path(folder).lexically_normal().parent_path().filename();
  const std::int64_t nodes = raw.counts.data<std::int64_t>()[0];
  set_labels(data, raw.labels, files.raw_folder() + "/" + kLabels);
  data.graph =
      Graph(nodes, raw.source, raw.destination,
            {.symmetrize = true, .remove_duplicates = true, .self_loops = options.self_loops});
  raw.source = raw.destination = Tensor();
  if (raw.edge_features.defined()) {
    data.edge_features = in_edge_order(data.graph, raw.edge_features);
    raw.edge_features = Tensor();
  }
  Features features;
  if (raw.features.defined())
    features = Features(raw.features);
  else if (raw.offsets.defined())
    features = CsrMatrix(
        CsrPattern(nodes, raw.width.data<std::int64_t>()[0], raw.offsets, raw.columns), raw.values);
  else if (data.edge_features.defined())
    features = Features(detail::mean_of_edges(data.graph, data.edge_features));
  data.features = features.defined() ? detail::finish_features(features, options, false)
                                     : detail::identity_features(nodes, options);
  files.read_split(data);
  check_node_data(data);
  return data;
}

}  // namespace lipgrad
