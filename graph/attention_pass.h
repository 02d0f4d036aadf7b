#pragma once

// Private: what fused attention of every kind has in common: the edges as kernels take them, and
// the dropout of its weights, whose mask is drawn anew in backward instead of being kept.

#include <cstdint>

#include <lipgrad/core/launch.h>
#include <lipgrad/core/random.h>
#include <lipgrad/core/tensor.h>
#include <lipgrad/graph/graph.h>
#include <lipgrad/graph/kernels/gat.h>

namespace lipgrad {

// Form: GatForm, or a form derived from it.
template <class Form>
struct AttentionPass {
  Graph graph;
  Form form;  // without the mask
  double dropout = 0;
  std::uint64_t seed = 0, draw = 0;

  // Takes one draw of the mode's generator, unless nothing is to be dropped.
  void drop(double probability, Mode mode) {
    if (!mode.is_train() || probability == 0) return;
    dropout = probability;
    form.keep_scale = probability < 1 ? 1 / (1 - probability) : 0;
    seed = mode.rng().seed();
    draw = mode.rng().take_draw();
  }

  GatGraph view(bool reverse) const {
    const CsrPattern& edges = graph.pattern();
    GatGraph g;
    g.targets = g.sources = graph.num_nodes();
    g.edges = graph.num_edges();
    g.offsets = edges.offsets().template data<std::int64_t>();
    g.source = edges.columns().template data<std::int32_t>();
    if (reverse) {
      g.reverse_offsets = graph.reverse().offsets().template data<std::int64_t>();
      g.reverse_target = graph.reverse().columns().template data<std::int32_t>();
      g.reverse_edge = graph.reverse_order().template data<std::int64_t>();
    }
    return g;
  }

  // The mask of this op's draw, a bit for each edge and head; undefined without dropout.
  Tensor draw_keep(Device device) const {
    if (dropout == 0) return {};
    const std::int64_t edges = graph.num_edges() + (form.self_loops ? graph.num_nodes() : 0);
    Tensor keep = empty({edges, (form.heads + 7) / 8}, u8, device);
    LIPGRAD_LAUNCH(device, gat_keep, edges, form.heads, dropout, seed, draw,
                   keep.mutable_data<std::uint8_t>());
    return keep;
  }
  Form with(const Tensor& keep) const {
    Form masked = form;
    if (keep.defined()) masked.keep = keep.data<std::uint8_t>();
    return masked;
  }
};

}  // namespace lipgrad
