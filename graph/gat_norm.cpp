#include <lipgrad/graph/gat_norm.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include <lipgrad/core/check.h>

namespace lipgrad {

VectorScoreNorm vector_score_norm(const char* op, ScoreKind kind, const LipschitzNorm& norm) {
  const bool gat = kind == ScoreKind::gat;
  LIPGRAD_CHECK(gat || kind == ScoreKind::gatv2,
                "{}: scores must be of the kind gat or gatv2, got "
                "kind number {}",
                op, static_cast<int>(kind));
  const char* name = gat ? "gat" : "gatv2";
  LIPGRAD_CHECK(norm.query_norm == QueryNorm::global,
                "{}: scores of the kind {} have no queries: query_norm must be left at global", op,
                name);
  LIPGRAD_CHECK(!norm.pre_scale,
                "{}: pre_scale is for scores that are dot products; those of the kind {} have no "
                "1 / sqrt(D)",
                op, name);
  LIPGRAD_CHECK(gat || !norm.edge_source,
                "{}: edge_source is for scores of the kind gat, whose published code has it; gatv2 "
                "has |l_i| alone",
                op);
  VectorScoreNorm result{norm.scope.value_or(NormScope::neighbourhood) == NormScope::global,
                         norm.joint,
                         norm.edge_source,
                         norm.detach,
                         norm.kappa.value_or(gat ? 4 : 1),
                         norm.eps};
  LIPGRAD_CHECK(result.kappa > 0 && std::isfinite(result.kappa),
                "{}: kappa must be positive and finite, got {}", op, result.kappa);
  LIPGRAD_CHECK(norm.alpha > 0 && std::isfinite(norm.alpha),
                "{}: alpha must be positive and finite, got {}", op, norm.alpha);
  LIPGRAD_CHECK(norm.eps >= 0 && std::isfinite(norm.eps), "{}: eps must be finite and >= 0, got {}",
                op, norm.eps);
  if (norm.target_lipschitz)
    LIPGRAD_CHECK(*norm.target_lipschitz > 0 && std::isfinite(*norm.target_lipschitz),
                  "{}: target_lipschitz must be positive and finite, got {}", op,
                  *norm.target_lipschitz);
  // alpha e / (c + eps) = e / (c / alpha + eps / alpha).
  result.kappa /= norm.alpha;
  result.eps /= norm.alpha;
  return result;
}

double gat_certificate(const Graph& graph, bool self_loops, ScoreKind kind,
                       const LipschitzNorm& norm) {
  const VectorScoreNorm form = vector_score_norm("gat_certificate", kind, norm);
  LIPGRAD_CHECK(
      !form.edge_source || form.global || self_loops,
      "gat_certificate: with edge_source scores of neighbourhoods without self-loops have "
      "no bound: take self-loops, the node's own norm, or the global scope");
  const std::int64_t nodes = graph.num_nodes();
  if (nodes == 0) return 0;
  const Graph host = graph.to(cpu_device);
  const std::int64_t* offsets = host.pattern().offsets().data<std::int64_t>();
  const std::int32_t* source = host.pattern().columns().data<std::int32_t>();
  std::vector<std::int64_t> inside(static_cast<std::size_t>(nodes), 1);  // closed neighbourhoods
  double share = 0;                                                      // max_i m_i / n_i
  for (std::int64_t i = 0; i < nodes; ++i) {
    std::int64_t count = self_loops ? 1 : 0, most = count, run = 0;
    for (std::int64_t e = offsets[i]; e < offsets[i + 1]; ++e) {
      const bool again = e > offsets[i] && source[e] == source[e - 1];
      if (!again && source[e] != i) ++inside[source[e]];
      if (self_loops && source[e] == i) continue;
      run = again ? run + 1 : 1;
      most = std::max(most, run);
      ++count;
    }
    if (count > 0) share = std::max(share, static_cast<double>(most) / static_cast<double>(count));
  }
  const auto most = static_cast<double>(*std::max_element(inside.begin(), inside.end()));
  const double b = 1 / form.kappa, first = std::min(1.0, std::exp(b) * std::sqrt(share));
  const double local = kind == ScoreKind::gat ? (form.global ? 1 + std::numbers::sqrt2 / 2 : 2.0)
                       : form.global          ? std::sqrt(5.0)
                                              : 2 * std::numbers::sqrt2;
  return std::sqrt(most) * (first + local * b) +
         (form.global ? b * std::sqrt(static_cast<double>(nodes)) : 0);
}

}  // namespace lipgrad
