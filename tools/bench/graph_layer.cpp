// A graph attention layer of 4 heads of 32 features, forward and backward, on a random graph made
// symmetric, f32: times and peak memory; and what its attention moves, against the triad of the
// same run. Compulsory bytes are every array once; gathered bytes count the rows that each edge
// reads too. Arguments: gat, gatv2 or transformer (with -lipschitz after it: under LipschitzNorm),
// nodes, edges before they are made symmetric, rounds. One JSON object on stdout.
// compare_pyg_layer.py runs it beside PyTorch Geometric.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <lipgrad/core/error.h>
#include <lipgrad/core/memory.h>
#include <lipgrad/core/random.h>
#include <lipgrad/core/tape.h>
#include <lipgrad/core/threads.h>
#include <lipgrad/graph/dot_attention.h>
#include <lipgrad/graph/gat_attention.h>
#include <lipgrad/graph/gat_conv.h>
#include <lipgrad/graph/gatv2_attention.h>
#include <lipgrad/graph/gatv2_conv.h>
#include <lipgrad/graph/transformer_conv.h>

#include "lipgrad/measure.h"

using namespace lipgrad;

namespace {

constexpr std::int64_t heads = 4, features = 32, width = heads * features;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Net : Module {
  explicit Net(const std::string& layer, std::optional<LipschitzNorm> norm) {
    if (layer == "gat") {
      conv = std::make_unique<GatConv>(
          *this, "conv",
          GatConvOptions{.in = width, .out = features, .heads = heads, .norm = norm});
    } else if (layer == "gatv2") {
      conv = std::make_unique<Gatv2Conv>(
          *this, "conv",
          Gatv2ConvOptions{.in = width, .out = features, .heads = heads, .norm = norm});
    } else if (layer == "transformer") {
      conv = std::make_unique<TransformerConv>(
          *this, "conv",
          TransformerConvOptions{.in = width, .out = features, .heads = heads, .norm = norm});
    } else {
      throw Error("graph_layer: gat, gatv2 or transformer, not " + layer);
    }
  }
  std::unique_ptr<GraphConv> conv;
};

// The attention alone, of random inputs; its arrays of N x H x D and of N x H that must move once,
// and rows of H x D that each edge gathers.
struct Attention {
  std::vector<Tensor> inputs;
  std::function<Tensor(const std::vector<Tensor>&)> forward;
  double rows_forward, rows_backward, stats_forward, stats_backward, gathers_forward,
      gathers_backward;
};

Attention attention_of(const std::string& layer, const Graph& graph, Generator& rng) {
  const auto node = [&] { return randn({graph.num_nodes(), heads, features}, f32, rng); };
  const auto head = [&] { return randn({heads, features}, f32, rng); };
  if (layer == "gat") {
    return {{node(), head(), head()},
            [&graph](const std::vector<Tensor>& in) {
              return gat_attention(graph, in[0], in[1], in[2], {}, {}, Mode::eval());
            },
            2,
            4,
            4,
            6,
            1,
            1};  // backward: z, the output, its cotangent, dz; gathers cotangents
  }
  if (layer == "gatv2") {
    return {{node(), node(), head()},
            [&graph](const std::vector<Tensor>& in) {
              return gatv2_attention(graph, in[0], in[1], in[2], {}, {}, Mode::eval());
            },
            3,
            6,
            2,
            4,
            1,
            3};  // left and right, the output, its cotangent, both gradients
  }
  return {{node(), node(), node()},
          [&graph](const std::vector<Tensor>& in) {
            return dot_attention(graph, in[0], in[1], in[2], {}, {}, Mode::eval());
          },
          4,
          7,
          3,
          4,
          2,
          4};
}

}  // namespace

int main(int argc, char** argv) try {
  std::string layer = argc > 1 ? argv[1] : "gat";
  std::optional<LipschitzNorm> norm;
  if (const auto at = layer.find("-lipschitz"); at != std::string::npos) {
    layer.resize(at);
    norm.emplace();
  }
  const std::int64_t nodes = argc > 2 ? std::atoll(argv[2]) : 169343,
                     listed = argc > 3 ? std::atoll(argv[3]) : 1166243;
  const int rounds = argc > 4 ? std::atoi(argv[4]) : 5;
  Generator rng{1};
  const Graph graph(nodes, rand_int({listed, 2}, nodes, rng), {.symmetrize = true});
  graph.reverse();
  const Tensor x = randn({nodes, width}, f32, rng), r = randn({nodes, width}, f32, rng);
  Net net(layer, norm);
  net.initialize(rng);

  // The layer; gradients of x too, as within a deep network.
  std::vector<double> times;
  const std::int64_t before = memory::counters().live;
  memory::reset_peak();
  for (int i = 0; i <= rounds; ++i) {
    const double start = now();
    Tape tape;
    const Tensor in = tape.watch(x);
    tape.backward(net.conv->forward(graph, in, Mode::eval()), r);
    if (i > 0) times.push_back(now() - start);
    net.zero_grad();
  }
  const std::int64_t peak = memory::counters().peak - before;
  std::sort(times.begin(), times.end());

  const Attention attention = attention_of(layer, graph, rng);
  const double triad_before = cli::triad_rate(std::int64_t{1} << 24, 0.5).best;
  double forward = 1e9, backward = 1e9;
  for (int i = 0; i <= rounds; ++i) {
    Tape tape;
    std::vector<Tensor> in;
    for (const Tensor& t : attention.inputs) in.push_back(tape.watch(t));
    double start = now();
    const Tensor y = attention.forward(in);
    forward = std::min(forward, now() - start);
    start = now();
    tape.grad(y, in, r);
    backward = std::min(backward, now() - start);
  }
  const double triad = std::max(triad_before, cli::triad_rate(std::int64_t{1} << 24, 0.5).best);
  const double edges = static_cast<double>(graph.num_edges()), n = static_cast<double>(nodes),
               row = 4.0 * width, stats = 4.0 * heads;
  // A list of edges each way: 4 bytes an edge and 8 a node.
  const double once_forward =
                   n * (attention.rows_forward * row + attention.stats_forward * stats + 8) +
                   edges * 4,
               once_backward =
                   n * (attention.rows_backward * row + attention.stats_backward * stats + 16) +
                   edges * 8;
  const auto share = [&](double bytes, double seconds) { return 1e-9 * bytes / seconds / triad; };
  std::printf(
      "{\"layer\": \"%s%s\", \"threads\": %d, \"nodes\": %lld, \"edges\": %lld, \"layer_s\": %.6f, "
      "\"layer_best_s\": %.6f, \"peak_bytes\": %lld, \"forward_s\": %.6f, \"backward_s\": %.6f, "
      "\"triad_gb_s\": %.2f, \"forward_compulsory\": %.4f, \"forward_gathered\": %.4f, "
      "\"backward_compulsory\": %.4f, \"backward_gathered\": %.4f}\n",
      layer.c_str(), norm ? "-lipschitz" : "", num_threads(), static_cast<long long>(nodes),
      static_cast<long long>(graph.num_edges()), times[times.size() / 2], times[0],
      static_cast<long long>(peak), forward, backward, triad, share(once_forward, forward),
      share(once_forward + edges * attention.gathers_forward * row, forward),
      share(once_backward, backward),
      share(once_backward + edges * attention.gathers_backward * row, backward));
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
