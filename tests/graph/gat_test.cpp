#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <lipgrad/core/error.h>
#include <lipgrad/core/memory.h>
#include <lipgrad/core/npz.h>
#include <lipgrad/core/tape.h>
#include <lipgrad/core/threads.h>
#include <lipgrad/graph/gat_attention.h>
#include <lipgrad/graph/gat_conv.h>
#include <lipgrad/ops/activation.h>
#include <lipgrad/ops/dropout.h>
#include <lipgrad/ops/loss.h>
#include <lipgrad/ops/optimizers.h>
#include <support/data.h>

namespace lipgrad {
namespace {

double difference(const Tensor& a, const Tensor& b) {
  REQUIRE(a.shape() == b.shape());
  const Tensor x = a.detach().to(f64), y = b.detach().to(f64);
  double worst = 0;
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const double d = std::abs(x.data<double>()[i] - y.data<double>()[i]);
    if (!(d <= worst)) worst = d;
  }
  return worst;
}

// Random edges, some nodes among them without any.
Graph random_graph(std::int64_t nodes, std::int64_t edges, Generator& rng,
                   GraphOptions options = {}) {
  const Tensor ends = rand_int({edges, 2}, nodes - nodes / 10, rng);
  return Graph(nodes, ends, options);
}

struct One : Module {
  explicit One(const GatConvOptions& options) : conv(*this, "conv", options) {}
  GatConv conv;
};

}  // namespace

TEST_CASE("GatConv: PyTorch Geometric's values and gradients") {
  const NpzFile file(test::golden("gat/pyg.npz"));
  const auto tensor = [&](const std::string& name) { return to_tensor(file.read(name)); };
  const Graph graph(14, tensor("edges"));
  const std::map<std::string, GatConvOptions> cases{
      {"concat", {.in = 6, .out = 4, .heads = 3}},
      {"mean", {.in = 6, .out = 5, .heads = 4, .concat = false}},
      {"one_head", {.in = 5, .out = 7, .negative_slope = 0.1}},
      {"no_loops", {.in = 5, .out = 8, .heads = 2, .self_loops = false, .bias = false}}};
  for (auto [name, options] : cases) {
    CAPTURE(name);
    options.dtype = f64;
    One net(options);
    for (auto& [path, parameter] : net.conv.named_parameters())
      parameter->set_value(tensor(name + "/" + path));
    for (const bool sparse : {false, true}) {
      net.zero_grad();
      Tape tape;
      const Tensor x = tape.watch(tensor(name + "/x"));
      const Features features = sparse ? Features(CsrMatrix::from_dense(x.detach())) : Features(x);
      const Tensor out = net.conv.forward(graph, features, Mode::eval());
      CHECK(difference(out, tensor(name + "/out")) < 1e-13);
      std::vector<Tensor> wanted;
      std::vector<std::string> names;
      if (!sparse) wanted.push_back(x), names.push_back("x");
      for (auto& [path, parameter] : net.conv.named_parameters())
        wanted.push_back(parameter->value()), names.push_back(path);
      const auto grads = tape.grad(out, wanted, tensor(name + "/r"));
      for (std::size_t i = 0; i < grads.size(); ++i) {
        CAPTURE(names[i]);
        CHECK(difference(grads[i], tensor(name + "/grad." + names[i])) < 1e-12);
      }
    }
  }
}

TEST_CASE("GatConv: parameters, shapes and errors") {
  One net({.in = 5, .out = 4, .heads = 3});
  std::vector<std::string> names;
  for (auto& [path, parameter] : net.named_parameters()) names.push_back(path);
  CHECK(names ==
        std::vector<std::string>{"conv.lin.weight", "conv.att_src", "conv.att_dst", "conv.bias"});
  Generator rng{1};
  net.initialize(rng);
  for (const float b : net.conv.bias->value().to_vector<float>()) CHECK(b == 0);
  // Glorot: uniform within sqrt(6 / (fan in + fan out)).
  const auto within = [](const Tensor& x, double bound) {
    double most = 0;
    for (const float v : x.to_vector<float>()) most = std::max(most, std::abs(double{v}));
    return most <= bound && most > 0.5 * bound;
  };
  CHECK(within(net.conv.lin.weight.value(), std::sqrt(6.0 / 17)));
  CHECK(within(net.conv.att_src.value(), std::sqrt(6.0 / 7)));

  const Graph graph = random_graph(10, 20, rng);
  const Tensor x = randn({10, 5}, f32, rng);
  CHECK(net.conv.forward(graph, x, Mode::eval()).shape() == Shape{10, 12});
  CHECK_THROWS_WITH_AS(net.conv.forward(graph, randn({9, 5}, f32, rng), Mode::eval()),
                       "GatConv: features must be (10, 5) for this graph and layer, got (9, 5)",
                       Error);
  CHECK_THROWS_WITH_AS(One({.in = 5, .out = 0}), doctest::Contains("must be at least 1"), Error);
  const Tensor a = randn({3, 4}, f32, rng);
  CHECK_THROWS_WITH_AS(
      gat_attention(graph, randn({10, 13}, f32, rng), a, a, {}, {}, Mode::eval()),
      doctest::Contains("z must be (10, 12) or (10, 3, 4) for 10 nodes and 3 heads"), Error);
  CHECK_THROWS_WITH_AS(gat_attention(graph, randn({10, 12}, f64, rng), a, a, {}, {}, Mode::eval()),
                       doctest::Contains("gat_attention"), Error);
}

TEST_CASE("gat_attention: self-loops in the kernel are those of a graph that has them") {
  Generator rng{3};
  const Graph graph = random_graph(60, 300, rng);  // has a few of its own
  REQUIRE(graph.num_self_loops() > 0);
  const Tensor a_src = randn({3, 6}, f64, rng), a_dst = randn({3, 6}, f64, rng);
  const Tensor r = randn({60, 18}, f64, rng), z0 = randn({60, 18}, f64, rng);
  Tape tape;
  const Tensor z = tape.watch(z0);
  const Tensor inside = gat_attention(graph, z, a_src, a_dst, {}, {}, Mode::eval());
  const Tensor outside = gat_attention(graph.with_self_loops(), z, a_src, a_dst, {},
                                       {.self_loops = false}, Mode::eval());
  CHECK(difference(inside, outside) < 1e-13);
  CHECK(difference(tape.grad(inside, {z}, r, {.retain = true})[0],
                   tape.grad(outside, {z}, r, {.retain = true})[0]) < 1e-13);
}

TEST_CASE("gat_attention: nodes renamed, the output renamed") {
  Generator rng{4};
  const std::int64_t nodes = 50, edges = 260;
  const Tensor ends = rand_int({edges, 2}, nodes, rng), order = rand_permutation(nodes, rng);
  const Tensor a_src = randn({2, 5}, f64, rng), a_dst = randn({2, 5}, f64, rng);
  const Tensor z = randn({nodes, 10}, f64, rng);
  const std::int64_t* to = order.data<std::int64_t>();
  Tensor moved_ends = ends.clone(), moved_z = z.clone();
  for (std::int64_t i = 0; i < 2 * edges; ++i)
    moved_ends.mutable_data<std::int64_t>()[i] = to[ends.data<std::int64_t>()[i]];
  for (std::int64_t i = 0; i < nodes; ++i)
    std::copy_n(z.data<double>() + 10 * i, 10, moved_z.mutable_data<double>() + 10 * to[i]);
  const Tensor out = gat_attention(Graph(nodes, ends), z, a_src, a_dst, {}, {}, Mode::eval());
  const Tensor moved =
      gat_attention(Graph(nodes, moved_ends), moved_z, a_src, a_dst, {}, {}, Mode::eval());
  for (std::int64_t i = 0; i < nodes; ++i)
    for (std::int64_t c = 0; c < 10; ++c)
      CHECK(moved.data<double>()[10 * to[i] + c] ==
            doctest::Approx(out.data<double>()[10 * i + c]).epsilon(1e-12));
}

TEST_CASE("gat_attention: dropout takes one draw, keeps the mean, and repeats in backward") {
  Generator rng{5};
  const Graph graph = random_graph(40, 400, rng);
  const Tensor a = zeros({2, 4}, f64);  // all weights alike
  const Tensor z = ones({40, 8}, f64);
  const auto drop = [&](double p, std::uint64_t seed) {
    Generator g{seed};
    const Tensor y = gat_attention(graph, z, a, a, {}, {.dropout = p}, Mode::train(g));
    CHECK(g.next_draw() == (p > 0 ? 1 : 0));
    return y;
  };
  const Tensor all = drop(0, 1);
  for (const double y : all.to_vector<double>()) CHECK(y == doctest::Approx(1));
  double mean = 0;
  for (std::uint64_t seed = 0; seed < 50; ++seed)
    for (const double y : drop(0.6, seed).to_vector<double>()) mean += y / (50 * 320);
  CHECK(mean == doctest::Approx(1).epsilon(0.02));
  CHECK(bitwise_equal(drop(0.6, 7), drop(0.6, 7)));
  CHECK_FALSE(bitwise_equal(drop(0.6, 7), drop(0.6, 8)));
  for (const double y : drop(1, 7).to_vector<double>()) CHECK(y == 0);
  // With all scores alike the output is linear in z: <grad, z> = <out, r>, if the mask is the same.
  Tape tape;
  Generator g{9};
  const Tensor zs = tape.watch(randn({40, 8}, f64, rng)), r = randn({40, 8}, f64, rng);
  const Tensor y = gat_attention(graph, zs, a, a, {}, {.dropout = 0.6}, Mode::train(g));
  const Tensor gz = tape.grad(y, {zs}, r)[0];
  double left = 0, right = 0;
  for (std::int64_t i = 0; i < 320; ++i) {
    left += gz.data<double>()[i] * zs.data<double>()[i];
    right += y.data<double>()[i] * r.data<double>()[i];
  }
  CHECK(left == doctest::Approx(right).epsilon(1e-12));
}

TEST_CASE("gat_attention: peak memory has no term of edges times features") {
  Generator rng{6};
  const std::int64_t nodes = 20000, edges = 300000, heads = 4, features = 32;
  const Graph graph = random_graph(nodes, edges, rng);
  graph.reverse();
  const std::int64_t node_sized = nodes * heads * features * 4;
  One net({.in = 16, .out = features, .heads = heads, .attention_dropout = 0.5});
  net.initialize(rng);
  const Tensor x = randn({nodes, 16}, f32, rng), r = randn({nodes, heads * features}, f32, rng);
  const auto step = [&] {
    Tape tape;
    const Tensor y = net.conv.forward(graph, x, Mode::train(rng));
    tape.backward(y, r);
    net.zero_grad();
  };
  step();
  const std::int64_t before = memory::counters().live;
  memory::reset_peak();
  step();
  const double peak = static_cast<double>(memory::counters().peak - before);
  MESSAGE("peak over the input: ", peak / 1e6, " MB, ", peak / static_cast<double>(node_sized),
          " node-sized tensors; one edge-sized would be ",
          static_cast<double>(edges) / static_cast<double>(nodes));
  CHECK(peak <= 4.0 * static_cast<double>(node_sized));
  CHECK(memory::counters().live == before);
}

}  // namespace lipgrad
