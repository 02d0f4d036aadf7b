#include <vector>

#include <lipgrad/core/tape.h>
#include <lipgrad/graph/gat_attention.h>

#include "bench.h"

namespace lipgrad::bench {
namespace {

struct Size {
  std::int64_t nodes, edges, heads, features;
};
// Cora's two layers (8 heads of 8, then 1 of 7), and a layer at the size of ogbn-arxiv.
constexpr Size sizes[] = {{2708, 10556, 8, 8}, {2708, 10556, 1, 7}, {169343, 2500000, 4, 32}};

// Random edges in both directions; a third of them begin at few nodes, as in a citation network.
Graph random_graph(const Size& size) {
  Generator rng{1};
  const std::int64_t half = size.edges / 2;
  Tensor ends = rand_int({half, 2}, size.nodes, rng);
  const Tensor cited = rand_uniform({half}, 0, 1, f64, rng);
  std::int64_t* end = ends.mutable_data<std::int64_t>();
  for (std::int64_t k = 0; k < half; k += 3) {
    const double u = cited.data<double>()[k];
    end[2 * k] = static_cast<std::int64_t>(u * u * u * double(size.nodes));
  }
  return Graph(size.nodes, ends, {.symmetrize = true});
}

struct Layer {
  explicit Layer(const Size& size)
      : graph(random_graph(size)),
        z(normal({size.nodes, size.heads * size.features})),
        a_src(normal({size.heads, size.features})),
        a_dst(normal({size.heads, size.features})),
        bias(normal({size.heads * size.features})),
        grad(normal(z.shape())) {
    graph.reverse();
  }
  Graph graph;
  Tensor z, a_src, a_dst, bias, grad;
};

const Layer& layer(std::int64_t number) {
  static std::vector<std::pair<std::int64_t, Layer>> made;
  for (const auto& [key, value] : made)
    if (key == number) return value;
  made.clear();  // one graph at a time
  return made.emplace_back(number, Layer(sizes[number])).second;
}

// Arguments: number of the size, dropout of the weights in percent, threads. "edge/s" counts the
// self-loops, "byte/s" the features of every edge's source once.
void forward(benchmark::State& state) {
  const Layer& l = layer(state.range(0));
  const Threads threads(state.range(2));
  Generator rng{2};
  const GatAttentionOptions options{.dropout = double(state.range(1)) / 100};
  for (auto _ : state)
    benchmark::DoNotOptimize(
        gat_attention(l.graph, l.z, l.a_src, l.a_dst, l.bias, options, Mode::train(rng)));
  const double edges = double(l.graph.num_edges() + l.graph.num_nodes());
  state.counters["edge/s"] = per_second(edges);
  state.counters["byte/s"] = per_second(4 * edges * double(l.z.size(1)));
}
void step(benchmark::State& state) {
  const Layer& l = layer(state.range(0));
  const Threads threads(state.range(2));
  Generator rng{2};
  const GatAttentionOptions options{.dropout = double(state.range(1)) / 100};
  for (auto _ : state) {
    Tape tape;
    const Tensor z = tape.watch(l.z), a_src = tape.watch(l.a_src), a_dst = tape.watch(l.a_dst),
                 bias = tape.watch(l.bias);
    const Tensor y = gat_attention(l.graph, z, a_src, a_dst, bias, options, Mode::train(rng));
    benchmark::DoNotOptimize(tape.grad(y, {z, a_src, a_dst, bias}, l.grad));
  }
  const double edges = double(l.graph.num_edges() + l.graph.num_nodes());
  state.counters["edge/s"] = per_second(edges);
  state.counters["byte/s"] = per_second(3 * 4 * edges * double(l.z.size(1)));
}

void arguments(benchmark::internal::Benchmark* b) {
  for (std::int64_t size : {0, 1, 2})
    for (std::int64_t threads : {1, 2}) {
      b->Args({size, 0, threads});
      b->Args({size, 60, threads});
    }
  b->UseRealTime()->Unit(benchmark::kMicrosecond);
}
BENCHMARK(forward)->Name("gat_forward_f32")->Apply(arguments);
BENCHMARK(step)->Name("gat_step_f32")->Apply(arguments);

}  // namespace
}  // namespace lipgrad::bench
