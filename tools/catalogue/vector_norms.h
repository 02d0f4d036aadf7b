#pragma once

#include <string>
#include <utility>
#include <vector>

#include <lipgrad/graph/lipschitz_norm.h>

namespace lipgrad::catalogue {

// Every combination of where the maximum is taken, whose |a|, and for scores of kind gat which node
// beside the maximum. A small kappa, so that the scores matter, and an eps that finite differences
// can see.
inline std::vector<std::pair<std::string, LipschitzNorm>> vector_norms(bool gat) {
  std::vector<std::pair<std::string, LipschitzNorm>> norms;
  for (const NormScope scope : {NormScope::neighbourhood, NormScope::global})
    for (const bool joint : {false, true})
      for (const bool edge_source : {false, true}) {
        if (edge_source && !gat) continue;
        std::string name = scope == NormScope::global ? "global norm" : "norm";
        if (joint) name += " of all heads";
        if (edge_source) name += " with the source";
        norms.emplace_back(name, LipschitzNorm{.scope = scope,
                                               .joint = joint,
                                               .edge_source = edge_source,
                                               .kappa = 0.5,
                                               .alpha = joint ? 1.5 : 1,
                                               .eps = 1e-2});
      }
  return norms;
}

}  // namespace lipgrad::catalogue
