// Trains a small graph attention network for some steps; fails unless the loss falls.
#include <cstdio>

#include <lipgrad/lipgrad.h>

using namespace lipgrad;

struct Net : Module {
  GatConv a{*this, "a", {.in = 50, .out = 8, .heads = 2}};
  GatConv b{*this, "b", {.in = 16, .out = 3}};
  Tensor forward(const Graph& g, const Features& x, Mode mode) {
    return b.forward(g, elu(a.forward(g, x, mode)), mode);
  }
};

int main() try {
  const NodeData data = generated_citation_graph({.num_nodes = 200,
                                                  .num_edges = 600,
                                                  .num_features = 50,
                                                  .num_classes = 3,
                                                  .words = 8,
                                                  .num_val = 50,
                                                  .num_test = 50});
  Generator rng{1};
  Net net;
  net.initialize(rng);
  Adam optimizer{net, {.lr = 1e-2}};
  double first = 0, last = 0;
  for (int step = 0; step < 30; ++step) {
    Tape tape;
    const Tensor logits = net.forward(data.graph, data.features, Mode::train(rng));
    const Tensor loss = cross_entropy(logits, data.labels, {.rows = data.train});
    tape.backward(loss);
    optimizer.step();
    optimizer.zero_grad();
    last = loss.item();
    if (step == 0) first = last;
  }
  std::printf("lipgrad %s: loss %.3f, then %.3f\n", kVersion, first, last);
  // An error of the library is caught here by its type.
  try {
    matmul(zeros({2, 3}), zeros({2, 3}));
    return 2;
  } catch (const Error&) {
  }
  return last < 0.8 * first ? 0 : 1;
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
