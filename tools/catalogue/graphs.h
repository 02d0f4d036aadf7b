#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <lipgrad/core/module.h>
#include <lipgrad/core/random.h>
#include <lipgrad/graph/graph.h>
#include <lipgrad/ops/elementwise.h>

#include "catalogue/catalogue.h"

namespace lipgrad::catalogue {

// A graph with repeated edges, self-loops, a node that all others point to, and nodes 3 and 7
// without edges.
inline Graph graph_of(std::int64_t nodes, std::int64_t edges) {
  Generator rng{17};
  const Tensor drawn = rand_int({edges, 2}, nodes > 0 ? nodes : 1, rng);
  std::vector<std::int64_t> ends;
  const auto add = [&](std::int64_t from, std::int64_t to) {
    if (from == 3 || from == 7 || to == 3 || to == 7) return;
    ends.push_back(from);
    ends.push_back(to);
  };
  for (std::int64_t k = 0; k < edges; ++k) {
    const std::int64_t from = drawn.data<std::int64_t>()[2 * k],
                       to = drawn.data<std::int64_t>()[2 * k + 1];
    add(from, to);
    if (k % 5 == 0) add(from, to);
    if (k % 7 == 0) add(from, from);
  }
  for (std::int64_t node = 1; node < nodes; ++node) add(node, 0);
  const auto count = static_cast<std::int64_t>(ends.size() / 2);
  return Graph(nodes, from_vector({count, 2}, ends));
}

// A case of a module on the 9 nodes of a graph, forward(module, x (9, in)), with random values for
// all its parameters.
template <class M, class Forward>
void add_module(Catalogue& c, const char* op, const char* kind,
                std::function<std::shared_ptr<M>()> make, std::int64_t in, Forward forward) {
  Case one;
  one.op = op;
  one.kind = kind;
  one.make = [=](Generator& rng) {
    const std::shared_ptr<M> module = make();
    // Biases too: at zeros, nodes that dropout leaves without features sit on ELU's kink. Half as
    // large as normal ones: scores that saturate have gradients that nobody can see.
    for (Parameter* p : module->parameters()) p->set_value(mul(randn(p->shape(), f64, rng), 0.5));
    return Instance{{randn({9, in}, f64, rng)},
                    [=](Inputs inputs) { return std::vector<Tensor>{forward(*module, inputs[0])}; },
                    module};
  };
  c.add(std::move(one));
}

}  // namespace lipgrad::catalogue
