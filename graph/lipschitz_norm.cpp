#include <lipgrad/graph/lipschitz_norm.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include <lipgrad/core/check.h>
#include <lipgrad/core/op.h>
#include <lipgrad/graph/gat_norm.h>
#include <lipgrad/graph/message_passing.h>
#include <lipgrad/graph/segment.h>
#include <lipgrad/ops/elementwise.h>
#include <lipgrad/ops/reduce.h>
#include <lipgrad/ops/shape.h>

namespace lipgrad {
namespace {

struct RowNorms {
  static constexpr auto name = "row_norms";

  Tensor forward(Ctx& ctx, Inputs in) const {
    const Tensor norms = sqrt(sum(square(in[0]), {-1}));
    ctx.save(in[0]);
    ctx.save(norms);
    return norms;
  }
  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    // (A norm below sqrt of the least number is that of zeros.)
    const Tensor factor = div(gy, clamp(ctx.saved(1), 1e-18, INFINITY));
    gx[0] = mul(ctx.saved(0), unsqueeze(factor, factor.rank()));
  }
};

double beta_of(const LipschitzNorm& norm, std::int64_t features) {
  const double tau = norm.pre_scale ? 1 / std::sqrt(static_cast<double>(features)) : 1;
  return norm.alpha * tau / norm.kappa.value_or(1);
}

bool is_global(const LipschitzNorm& norm) {
  return norm.scope.value_or(NormScope::global) == NormScope::global;
}

// The largest of norms (N, H) over all nodes, (1, H), or over the sources of each node, (N, H).
Tensor largest(const Graph& graph, const Tensor& norms, const LipschitzNorm& norm,
               bool self_loops) {
  if (norms.size(0) == 0) return norms;
  if (is_global(norm)) return max(norms, {0}, true);
  const Tensor near = neighbor_max(graph, norms);
  return self_loops ? maximum(near, norms) : near;
}

// sqrt(degree) of each node, (N, 1).
Tensor root_degrees(const Graph& graph, bool self_loops, DType dtype) {
  const Tensor counts = graph.in_degrees().to(cpu_device);
  const std::int64_t nodes = graph.num_nodes();
  std::vector<double> roots(static_cast<std::size_t>(nodes));
  std::vector<double> loops(roots.size());
  if (self_loops) {  // those of the graph count as the one that is added
    std::fill(loops.begin(), loops.end(), 1.0);
    const Tensor sources = graph.sources().to(cpu_device),
                 targets = graph.destinations().to(cpu_device);
    for (std::int64_t e = 0; e < graph.num_edges(); ++e)
      if (sources.data<std::int32_t>()[e] == targets.data<std::int32_t>()[e])
        loops[static_cast<std::size_t>(sources.data<std::int32_t>()[e])] -= 1;
  }
  for (std::size_t i = 0; i < roots.size(); ++i)
    roots[i] = std::sqrt(static_cast<double>(counts.data<std::int64_t>()[i]) + loops[i]);
  return from_vector({nodes, 1}, roots).to(dtype).to(graph.device());
}

// u: (N, H) or sizes of 1 in place of N, H.
Tensor query_norm(const Graph& graph, const Tensor& q, const LipschitzNorm& norm, bool self_loops) {
  Tensor norms = row_norms(q);  // (N, H)
  if (norm.joint) norms = unsqueeze(row_norms(norms), 1);
  if (norm.query_norm == QueryNorm::per_node) return norms;
  if (norm.query_norm == QueryNorm::edge_expanded)
    norms = mul(norms, root_degrees(graph, self_loops, q.dtype()));
  return unsqueeze(row_norms(transpose(norms)), 0);
}

void check_numbers(const char* op, const LipschitzNorm& norm) {
  LIPGRAD_CHECK(norm.kappa.value_or(1) > 0 && std::isfinite(norm.kappa.value_or(1)),
                "{}: kappa must be positive and finite, got {}", op, norm.kappa.value_or(1));
  LIPGRAD_CHECK(norm.eps >= 0 && std::isfinite(norm.eps), "{}: eps must be finite and >= 0, got {}",
                op, norm.eps);
  LIPGRAD_CHECK(std::isfinite(norm.alpha), "{}: alpha must be finite, got {}", op, norm.alpha);
}

void check(const char* op, const Graph& graph, const Tensor& q, const Tensor& k,
           const LipschitzNorm& norm) {
  check_same_kind(op, {&q, &k});
  LIPGRAD_CHECK(q.rank() == 3 && q.size(0) == graph.num_nodes() && q.shape() == k.shape(),
                "{}: tensors must be ({}, heads, features) all, got {} and {}", op,
                graph.num_nodes(), q.shape(), k.shape());
  check_numbers(op, norm);
}

// kappa c + eps.
Tensor denominator(const Tensor& c, const LipschitzNorm& norm) {
  return add(mul(norm.detach ? c.detach() : c, norm.kappa.value_or(1)), norm.eps);
}

// alpha tau / (kappa c + eps), (N, H).
Tensor scale_of(const Tensor& c, const Tensor& q, const LipschitzNorm& norm) {
  const Tensor scale = div(beta_of(norm, q.size(2)) * norm.kappa.value_or(1), denominator(c, norm));
  return broadcast_to(scale, {q.size(0), q.size(1)});
}

}  // namespace

LipschitzNorm LipschitzNorm::reference_code_2022(ScoreKind kind) {
  LIPGRAD_CHECK(kind == ScoreKind::gat || kind == ScoreKind::dot_uvw,
                "LipschitzNorm: the reference code has scores of kinds gat and dot_uvw only, got "
                "kind number {}",
                static_cast<int>(kind));
  LipschitzNorm norm;
  norm.scope = NormScope::neighbourhood;
  if (kind == ScoreKind::gat) {
    norm.joint = norm.edge_source = true;
  } else {
    norm.query_norm = QueryNorm::edge_expanded;
    norm.pre_scale = true;
  }
  return norm;
}

Tensor row_norms(const Tensor& x) {
  LIPGRAD_CHECK(x.rank() >= 1, "row_norms: x must have a dimension, got {}", x.shape());
  return apply(RowNorms{}, x);
}

Tensor lipschitz_scale(const Graph& graph, const Tensor& q, const Tensor& k, const Tensor& v,
                       const LipschitzNorm& norm, bool self_loops, const Tensor& edge_bound) {
  check("lipschitz_scale", graph, q, k, norm);
  check("lipschitz_scale", graph, q, v, norm);
  if (q.size(0) == 0) return empty({0, q.size(1)}, q.dtype(), q.device());
  const Tensor u = query_norm(graph, q, norm, self_loops);
  Tensor of_k = largest(graph, row_norms(k), norm, self_loops),
         of_v = largest(graph, row_norms(v), norm, self_loops);
  if (edge_bound.defined()) {
    check_same_kind("lipschitz_scale", {&q, &edge_bound});
    of_k = add(of_k, edge_bound);
    of_v = add(of_v, edge_bound);
  }
  return scale_of(maximum(maximum(mul(u, of_k), mul(u, of_v)), mul(of_k, of_v)), q, norm);
}

Tensor lipschitz_scale_linear(const Graph& graph, const Tensor& q, const Tensor& k,
                              const LipschitzNorm& norm, bool self_loops) {
  check("lipschitz_scale_linear", graph, q, k, norm);
  if (q.size(0) == 0) return empty({0, q.size(1)}, q.dtype(), q.device());
  const Tensor u = query_norm(graph, q, norm, self_loops),
               v = largest(graph, row_norms(k), norm, self_loops);
  return scale_of(mul(u, v), q, norm);
}

Tensor lipschitz_scores(const Graph& graph, const Tensor& scores, const Tensor& x, double lipschitz,
                        const LipschitzNorm& norm) {
  constexpr auto op = "lipschitz_scores";
  check_same_kind(op, {&scores, &x});
  check_numbers(op, norm);
  LIPGRAD_CHECK(scores.rank() == 2 && scores.size(0) == graph.num_edges(),
                "{}: scores must be ({}, heads), got {}", op, graph.num_edges(), scores.shape());
  LIPGRAD_CHECK((x.rank() == 2 || (x.rank() == 3 && x.size(1) == scores.size(1))) &&
                    x.size(0) == graph.num_nodes(),
                "{}: x must be ({}, features) or ({}, {}, features), got {}", op, graph.num_nodes(),
                graph.num_nodes(), scores.size(1), x.shape());
  LIPGRAD_CHECK(lipschitz >= 0 && std::isfinite(lipschitz),
                "{}: the Lipschitz constant must be finite and >= 0, got {}", op, lipschitz);
  if (scores.numel() == 0) return scores;
  const Tensor rows = segment_max(abs(scores), graph.pattern().offsets());  // (N, H)
  const Tensor whole = unsqueeze(row_norms(transpose(rows)), 0);
  Tensor norms = row_norms(x);
  if (norms.rank() == 1) norms = unsqueeze(norms, 1);
  const Tensor c = maximum(whole, mul(max(norms, {0}, true), lipschitz));
  return mul(scores, div(norm.alpha, denominator(c, norm)));
}

std::optional<double> certificate(const Graph& graph, ScoreKind kind, const LipschitzNorm& norm,
                                  bool self_loops, std::int64_t features) {
  if (kind == ScoreKind::gat || kind == ScoreKind::gatv2) {
    if (norm.edge_source && !self_loops && norm.scope != NormScope::global) return {};
    return gat_certificate(graph, self_loops, kind, norm);
  }
  if (norm.joint || norm.query_norm == QueryNorm::edge_expanded) return {};
  const bool global = is_global(norm);
  if (kind == ScoreKind::generic && !global) return {};
  const double beta = std::abs(beta_of(norm, features));

  const Tensor offsets = graph.pattern().offsets().to(cpu_device),
               sources = graph.sources().to(cpu_device);
  const std::int64_t nodes = graph.num_nodes();
  // Of a node j: sum over the edges j -> i of min(1, e^(2 beta) / |N(i)|), and their number.
  std::vector<double> weight(static_cast<std::size_t>(nodes)), count(weight.size());
  for (std::int64_t i = 0; i < nodes; ++i) {
    const std::int64_t begin = offsets.data<std::int64_t>()[i],
                       end = offsets.data<std::int64_t>()[i + 1];
    const std::int32_t* from = sources.data<std::int32_t>();
    std::int64_t degree = self_loops ? 1 : 0;
    for (std::int64_t e = begin; e < end; ++e) degree += !(self_loops && from[e] == i);
    const double share = std::min(1.0, std::exp(2 * beta) / static_cast<double>(degree));
    const auto add = [&](std::int64_t j) {
      weight[static_cast<std::size_t>(j)] += share;
      count[static_cast<std::size_t>(j)] += 1;
    };
    if (self_loops) add(i);
    for (std::int64_t e = begin; e < end; ++e)
      if (!(self_loops && from[e] == i)) add(from[e]);
  }
  if (nodes == 0) return 0.0;
  const double of_values = std::sqrt(*std::max_element(weight.begin(), weight.end()));
  double of_scores = kind == ScoreKind::linear_uv ? std::sqrt(2.0) : 2;
  if (kind != ScoreKind::generic && norm.query_norm == QueryNorm::per_node) {
    // All rows share the largest key and value of the graph.
    const double shared = global ? static_cast<double>(nodes)
                                 : std::max(1.0, *std::max_element(count.begin(), count.end()));
    of_scores *= std::sqrt(shared);
  } else if (kind == ScoreKind::dot_uvw && !global) {
    of_scores *= std::sqrt(2.0);
  }
  return of_values + of_scores * beta;
}

}  // namespace lipgrad
