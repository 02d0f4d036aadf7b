#include <lipgrad/graph/spectral_attention_norm.h>

#include <cmath>
#include <vector>

#include <lipgrad/core/check.h>
#include <lipgrad/core/op.h>
#include <lipgrad/graph/message_passing.h>
#include <lipgrad/ops/elementwise.h>
#include <lipgrad/ops/shape.h>
#include <lipgrad/ops/spectral_norm.h>

namespace lipgrad {
namespace {

using Vector = std::vector<double>;

double normalize(Vector& x) {
  double sum = 0;
  for (const double v : x) sum += v * v;
  const double size = std::sqrt(sum);
  if (size > 0)
    for (double& v : x) v /= size;
  return size;
}

// The largest singular value of one head's matrix and its vectors.
double power_method(const std::int64_t* offsets, const std::int32_t* sources, const double* z,
                    std::int64_t heads, std::int64_t nodes, Vector& left, Vector& right) {
  left.assign(static_cast<std::size_t>(nodes), 0);
  right.assign(left.size(), 0);
  // Columns' sizes, a little changed, so that no symmetry keeps the start off the vector sought.
  for (std::int64_t e = 0; e < offsets[nodes]; ++e)
    right[static_cast<std::size_t>(sources[e])] += std::abs(z[e * heads]);
  for (std::size_t j = 0; j < right.size(); ++j)
    right[j] *= 1 + 0.25 * std::sin(static_cast<double>(j) + 1);
  if (normalize(right) == 0) return 0;
  double value = 0;
  Vector next(right.size());
  for (int step = 0; step < 3000; ++step) {
    for (std::int64_t i = 0; i < nodes; ++i) {
      double sum = 0;
      for (std::int64_t e = offsets[i]; e < offsets[i + 1]; ++e)
        sum += z[e * heads] * right[static_cast<std::size_t>(sources[e])];
      left[static_cast<std::size_t>(i)] = sum;
    }
    value = normalize(left);
    next.assign(next.size(), 0);
    for (std::int64_t i = 0; i < nodes; ++i)
      for (std::int64_t e = offsets[i]; e < offsets[i + 1]; ++e)
        next[static_cast<std::size_t>(sources[e])] +=
            z[e * heads] * left[static_cast<std::size_t>(i)];
    if (normalize(next) == 0) break;
    double change = 0;
    for (std::size_t j = 0; j < next.size(); ++j) change += std::abs(next[j] - right[j]);
    right.swap(next);
    if (change < 1e-14 * static_cast<double>(nodes)) break;
  }
  return value;
}

struct EdgeSpectralNorms {
  static constexpr auto name = "edge_spectral_norms";
  Graph graph;

  Tensor forward(Ctx& ctx, Inputs in) const {
    const Tensor z = in[0].detach().to(cpu_device).to(f64),
                 offsets = graph.pattern().offsets().to(cpu_device),
                 sources = graph.sources().to(cpu_device);
    const std::int64_t nodes = graph.num_nodes(), heads = z.size(1);
    Tensor values = empty({heads}, f64), left = empty({nodes, heads}, f64),
           right = empty({nodes, heads}, f64);
    Vector u, v;
    for (std::int64_t h = 0; h < heads; ++h) {
      const double value = power_method(offsets.data<std::int64_t>(), sources.data<std::int32_t>(),
                                        z.data<double>() + h, heads, nodes, u, v);
      LIPGRAD_CHECK(std::isfinite(value), "{}: the scores of head {} are not finite", name, h);
      values.mutable_data<double>()[h] = value;
      for (std::int64_t i = 0; i < nodes; ++i) {
        left.mutable_data<double>()[i * heads + h] = u[static_cast<std::size_t>(i)];
        right.mutable_data<double>()[i * heads + h] = v[static_cast<std::size_t>(i)];
      }
    }
    const DType dtype = in[0].dtype();
    ctx.save(left.to(dtype).to(in[0].device()));
    ctx.save(right.to(dtype).to(in[0].device()));
    return values.to(dtype).to(in[0].device());
  }
  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    gx[0] =
        mul(mul(gather_destinations(graph, ctx.saved(0)), gather_sources(graph, ctx.saved(1))), gy);
  }
};

}  // namespace

Tensor edge_spectral_norms(const Graph& graph, const Tensor& scores) {
  constexpr auto op = EdgeSpectralNorms::name;
  check_same_kind(op, {&scores});
  LIPGRAD_CHECK(graph.device() == scores.device(), "{}: the graph is on {}, scores on {}", op,
                graph.device(), scores.device());
  LIPGRAD_CHECK(scores.rank() == 2 && scores.size(0) == graph.num_edges(),
                "{}: scores must be ({}, heads), got {}", op, graph.num_edges(), scores.shape());
  return apply(EdgeSpectralNorms{graph}, scores);
}

Tensor SpectralScoreNorm::operator()(const Tensor& scores) const {
  return div(scores, add(spectral_norm_of(scores), eps));
}
Tensor SpectralScoreNorm::operator()(const Graph& graph, const Tensor& scores) const {
  return div(scores, add(edge_spectral_norms(graph, scores), eps));
}
Tensor SpectralOutputNorm::operator()(const Tensor& scores, const Tensor& out) const {
  return div(out, add(spectral_norm_of(scores), eps));
}
Tensor SpectralOutputNorm::operator()(const Graph& graph, const Tensor& scores,
                                      const Tensor& out) const {
  return div(out, unsqueeze(add(edge_spectral_norms(graph, scores), eps), 1));
}

}  // namespace lipgrad
