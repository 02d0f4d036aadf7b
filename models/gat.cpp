#include <lipgrad/models/gat.h>

#include <utility>

#include <lipgrad/core/check.h>
#include <lipgrad/ops/activation.h>
#include <lipgrad/ops/dropout.h>

namespace lipgrad {

Gat::Gat(const GatOptions& options) : options_(options) { build(); }
Gat::Gat(Module& parent, std::string name, const GatOptions& options)
    : Module(parent, std::move(name)), options_(options) {
  build();
}

void Gat::build() {
  const GatOptions& o = options_;
  LIPGRAD_CHECK(o.layers >= 1, "Gat: layers must be at least 1, got {}", o.layers);
  LIPGRAD_CHECK(o.dropout >= 0 && o.dropout <= 1, "Gat: dropout must be from 0 to 1, got {}",
                o.dropout);
  for (std::int64_t layer = 0; layer < o.layers; ++layer) {
    const bool last = layer + 1 == o.layers;
    conv.emplace_back(GatConvOptions{.in = layer == 0 ? o.in : o.heads * o.hidden,
                                     .out = last ? o.out : o.hidden,
                                     .heads = last ? o.out_heads : o.heads,
                                     .concat = !last,
                                     .negative_slope = o.negative_slope,
                                     .attention_dropout = o.attention_dropout,
                                     .dtype = o.dtype});
  }
}

Tensor Gat::forward(const Graph& graph, const Features& x, Mode mode) const {
  const ModuleScope scope(path());
  Tensor h = conv[0].forward(graph, dropout(x, options_.dropout, mode), mode);
  for (std::size_t layer = 1; layer < conv.size(); ++layer)
    h = conv[layer].forward(graph, dropout(elu(h), options_.dropout, mode), mode);
  return h;
}

}  // namespace lipgrad
