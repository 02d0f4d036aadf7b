#include <lipgrad/graph/dataset_parts.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include <lipgrad/core/threads.h>

namespace lipgrad {

Features detail::finish_features(Features features, const NodeDataOptions& options,
                                 bool normalize) {
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

Tensor detail::selected_ids(const std::uint8_t* mask, std::int64_t count) {
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < count; ++i)
    if (mask[i] != 0) ids.push_back(i);
  return vector_tensor(ids);
}

Features detail::identity_features(std::int64_t nodes, const NodeDataOptions& options) {
  std::vector<std::int64_t> offsets(static_cast<std::size_t>(nodes) + 1);
  std::vector<std::int32_t> columns(static_cast<std::size_t>(nodes));
  std::iota(offsets.begin(), offsets.end(), 0);
  std::iota(columns.begin(), columns.end(), 0);
  const CsrMatrix identity(CsrPattern(nodes, nodes, vector_tensor(offsets), vector_tensor(columns)),
                           ones({nodes}));
  return options.sparse_features.value_or(true) ? Features(identity)
                                                : Features(identity.to_dense());
}

Tensor detail::mean_of_edges(const Graph& graph, const Tensor& edge_features) {
  const std::int64_t width = edge_features.size(1);
  Tensor means = empty({graph.num_nodes(), width}, f32);
  const std::int64_t* offset = graph.pattern().offsets().data<std::int64_t>();
  const std::int32_t* source = graph.sources().data<std::int32_t>();
  const float* from = edge_features.data<float>();
  float* to = means.mutable_data<float>();
  parallel_for(graph.num_nodes(), 64, [&](std::int64_t begin, std::int64_t end) {
    std::vector<double> sum(static_cast<std::size_t>(width));
    for (std::int64_t i = begin; i < end; ++i) {
      std::fill(sum.begin(), sum.end(), 0.0);
      std::int64_t count = 0;
      for (std::int64_t k = offset[i]; k < offset[i + 1]; ++k) {
        if (source[k] == i) continue;
        ++count;
        for (std::int64_t c = 0; c < width; ++c)
          sum[static_cast<std::size_t>(c)] += static_cast<double>(from[k * width + c]);
      }
      for (std::int64_t c = 0; c < width; ++c)
        to[i * width + c] =
            static_cast<float>(sum[static_cast<std::size_t>(c)] /
                               static_cast<double>(std::max<std::int64_t>(count, 1)));
    }
  });
  return means;
}

}  // namespace lipgrad
