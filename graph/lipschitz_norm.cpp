#include <lipgrad/graph/lipschitz_norm.h>

#include <lipgrad/core/check.h>

namespace lipgrad {

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

}  // namespace lipgrad
