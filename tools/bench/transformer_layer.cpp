// A TransformerConv layer of 4 heads of 32 features, forward and backward, on a random graph made
// symmetric, f32: times and peak memory; and what its attention moves, against the triad of the
// same run. Compulsory bytes are every array once; gathered bytes count the rows that each edge
// reads, two forward and four backward. Arguments: nodes, edges before they are made symmetric,
// rounds. One JSON object on stdout. compare_pyg_transformer.py runs it beside PyTorch Geometric.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <lipgrad/core/memory.h>
#include <lipgrad/core/random.h>
#include <lipgrad/core/tape.h>
#include <lipgrad/core/threads.h>
#include <lipgrad/graph/dot_attention.h>
#include <lipgrad/graph/transformer_conv.h>

#include "lipgrad/measure.h"

using namespace lipgrad;

namespace {

constexpr std::int64_t heads = 4, features = 32, width = heads * features;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Net : Module {
  Net() : conv(*this, "conv", {.in = width, .out = features, .heads = heads}) {}
  TransformerConv conv;
};

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t nodes = argc > 1 ? std::atoll(argv[1]) : 169343,
                     listed = argc > 2 ? std::atoll(argv[2]) : 1166243;
  const int rounds = argc > 3 ? std::atoi(argv[3]) : 5;
  Generator rng{1};
  const Graph graph(nodes, rand_int({listed, 2}, nodes, rng), {.symmetrize = true});
  graph.reverse();
  const Tensor x = randn({nodes, width}, f32, rng), r = randn({nodes, width}, f32, rng);
  Net net;
  net.initialize(rng);

  // The layer; gradients of x too, as within a deep network.
  std::vector<double> layer;
  const std::int64_t before = memory::counters().live;
  memory::reset_peak();
  for (int i = 0; i <= rounds; ++i) {
    const double start = now();
    Tape tape;
    const Tensor in = tape.watch(x);
    const Tensor y = net.conv.forward(graph, in, Mode::eval());
    tape.backward(y, r);
    if (i > 0) layer.push_back(now() - start);
    net.zero_grad();
  }
  const std::int64_t peak = memory::counters().peak - before;

  // Its attention alone.
  const Tensor q = randn({nodes, heads, features}, f32, rng),
               k = randn({nodes, heads, features}, f32, rng),
               v = randn({nodes, heads, features}, f32, rng);
  const double triad_before = cli::triad_rate(std::int64_t{1} << 24, 0.5).best;
  double forward = 1e9, backward = 1e9;
  for (int i = 0; i <= rounds; ++i) {
    Tape tape;
    const Tensor a = tape.watch(q), b = tape.watch(k), c = tape.watch(v);
    double start = now();
    const Tensor y = dot_attention(graph, a, b, c, {}, {}, Mode::eval());
    forward = std::min(forward, now() - start);
    start = now();
    tape.grad(y, {a, b, c}, r);
    backward = std::min(backward, now() - start);
  }
  const double triad = std::max(triad_before, cli::triad_rate(std::int64_t{1} << 24, 0.5).best);
  const double edges = static_cast<double>(graph.num_edges()), n = static_cast<double>(nodes),
               row = 4.0 * width, stats = 4.0 * heads;
  const double once_forward = n * (4 * row + 3 * stats + 8) + edges * 4,
               once_backward = n * (7 * row + 4 * stats + 16) + edges * 8,
               gathered_forward = edges * (2 * row + 4) + n * (2 * row + 3 * stats + 8),
               gathered_backward = edges * (4 * row + 4 * stats + 8) + n * (7 * row + 4 * stats);
  std::sort(layer.begin(), layer.end());
  std::printf(
      "{\"threads\": %d, \"nodes\": %lld, \"edges\": %lld, \"layer_s\": %.6f, \"layer_best_s\": "
      "%.6f, \"peak_bytes\": %lld, \"forward_s\": %.6f, \"backward_s\": %.6f, \"triad_gb_s\": "
      "%.2f, "
      "\"forward_compulsory\": %.4f, \"forward_gathered\": %.4f, \"backward_compulsory\": %.4f, "
      "\"backward_gathered\": %.4f}\n",
      num_threads(), static_cast<long long>(nodes), static_cast<long long>(graph.num_edges()),
      layer[layer.size() / 2], layer[0], static_cast<long long>(peak), forward, backward, triad,
      1e-9 * once_forward / forward / triad, 1e-9 * gathered_forward / forward / triad,
      1e-9 * once_backward / backward / triad, 1e-9 * gathered_backward / backward / triad);
}
