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
#include <lipgrad/graph/gat_norm.h>
#include <lipgrad/graph/gatv2_attention.h>
#include <lipgrad/graph/gatv2_conv.h>
#include <lipgrad/ops/elementwise.h>
#include <lipgrad/ops/index.h>
#include <lipgrad/ops/shape.h>
#include <lipgrad/ops/spectral_norm.h>
#include <support/data.h>
#include <support/tensors.h>

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

// Edges between different pairs of nodes, self-loops among them.
Graph random_graph(std::int64_t nodes, std::int64_t edges) {
  Generator rng{8};
  const Tensor pair = rand_permutation(nodes * nodes, rng);
  std::vector<std::int64_t> ends;
  for (std::int64_t e = 0; e < edges; ++e) {
    ends.push_back(pair.data<std::int64_t>()[e] / nodes);
    ends.push_back(pair.data<std::int64_t>()[e] % nodes);
  }
  return Graph(nodes, from_vector({edges, 2}, ends));
}

struct One : Module {
  explicit One(const Gatv2ConvOptions& options) : conv(*this, "conv", options) {}
  Gatv2Conv conv;
};

}  // namespace

TEST_CASE("Gatv2Conv: PyTorch Geometric's values and gradients") {
  const NpzFile file(test::golden("gatv2/pyg.npz"));
  const auto tensor = [&](const std::string& name) { return to_tensor(file.read(name)); };
  const Graph graph(14, tensor("edges"));
  const std::map<std::string, Gatv2ConvOptions> cases{
      {"concat", {.in = 6, .out = 4, .heads = 3}},
      {"mean", {.in = 6, .out = 5, .heads = 4, .concat = false}},
      {"one_head", {.in = 5, .out = 7, .negative_slope = 0.1}},
      {"no_loops", {.in = 5, .out = 8, .heads = 2, .self_loops = false, .bias = false}},
      {"shared", {.in = 5, .out = 3, .heads = 4, .share_weights = true}},
      {"edges", {.in = 6, .out = 4, .heads = 3, .edge_features = 3}},
      {"edges_mean",
       {.in = 4, .out = 5, .heads = 2, .concat = false, .share_weights = true, .edge_features = 2}},
      {"edges_no_loops", {.in = 4, .out = 3, .heads = 2, .self_loops = false, .edge_features = 5}}};
  for (auto [name, options] : cases) {
    CAPTURE(name);
    options.dtype = f64;
    One net(options);
    for (auto& [path, parameter] : net.conv.named_parameters())
      parameter->set_value(tensor(name + "/" + path));
    Tape tape;
    const Tensor x = tape.watch(tensor(name + "/x"));
    Tensor e, ordered;
    if (options.edge_features > 0) {
      e = tape.watch(tensor(name + "/e"));
      ordered = gather(e, graph.edge_order());
    }
    const Tensor out = net.conv.forward(graph, x, ordered, Mode::eval());
    CHECK(difference(out, tensor(name + "/out")) < 1e-12);
    std::vector<Tensor> wanted{x};
    std::vector<std::string> names{"x"};
    if (e.defined()) wanted.push_back(e), names.push_back("e");
    for (auto& [path, parameter] : net.conv.named_parameters())
      wanted.push_back(parameter->value()), names.push_back(path);
    const auto grads = tape.grad(out, wanted, tensor(name + "/r"));
    for (std::size_t i = 0; i < grads.size(); ++i) {
      CAPTURE(names[i]);
      CHECK(difference(grads[i], tensor(name + "/grad." + names[i])) < 1e-10);
    }
  }
}

TEST_CASE("gatv2_attention: LipschitzNorm's scores by the definition, their bound and scales") {
  // right = diag(c), so that out[i, j] / c[j] is the weight of edge j -> i, and log ratios of a
  // node's weights are differences of its scores.
  const std::int64_t n = 12;
  const Graph graph = random_graph(n, 70);
  Generator rng{6};
  for (const bool global : {false, true})
    for (const bool joint : {false, true}) {
      const GatAttentionOptions options{
          .norm = LipschitzNorm{.scope = global ? NormScope::global : NormScope::neighbourhood,
                                .joint = joint,
                                .kappa = 0.8,
                                .alpha = 1.6}};
      double worst = 0;
      for (int trial = 0; trial < 20; ++trial) {
        Tensor right = zeros({n, n}, f64);
        const Tensor left = mul(randn({n, n}, f64, rng), std::exp(trial % 5 - 2.0)),
                     a = randn({1, n}, f64, rng);
        for (std::int64_t i = 0; i < n; ++i)
          right.mutable_data<double>()[i * n + i] = std::exp(std::sin(7.0 * double(i + trial)));
        const auto attend = [&](double of_x, double of_a) {
          return gatv2_attention(graph, mul(left, of_x), mul(right, of_x), mul(a, of_a), {},
                                 options, Mode::eval());
        };
        const Tensor out = attend(1, 1);
        CHECK(difference(attend(1, 1e4), out) < 1e-9);
        CHECK(difference(attend(100, 1), mul(out, 100.0)) < 1e-9);
        double a_length = 0;
        for (const double x : a.to_vector<double>()) a_length += x * x;
        for (std::int64_t i = 0; i < n; ++i) {
          std::vector<std::int64_t> in{i};
          for (std::int64_t e = graph.pattern().offsets().data<std::int64_t>()[i];
               e < graph.pattern().offsets().data<std::int64_t>()[i + 1]; ++e)
            if (const std::int64_t j = graph.sources().data<std::int32_t>()[e]; j != i)
              in.push_back(j);
          double own = 0, top = 0;
          for (std::int64_t c = 0; c < n; ++c) own += std::pow(left.data<double>()[i * n + c], 2);
          for (std::int64_t j = 0; j < n; ++j)
            if (global || std::count(in.begin(), in.end(), j) > 0)
              top = std::max(top, right.data<double>()[j * n + j]);
          std::vector<double> score, weight;
          for (const std::int64_t j : in) {
            double e = 0;
            for (std::int64_t c = 0; c < n; ++c) {
              const double x = left.data<double>()[i * n + c] + right.data<double>()[j * n + c];
              e += a.data<double>()[c] * (x > 0 ? x : 0.2 * x);
            }
            score.push_back(2 * e / (std::sqrt(a_length) * (std::sqrt(own) + top)));
            weight.push_back(out.data<double>()[i * n + j] / right.data<double>()[j * n + j]);
            CHECK(std::abs(score.back()) <= 2);
            worst = std::max(worst, std::abs(score.back()) / 2);
          }
          for (std::size_t k = 1; k < in.size(); ++k)
            CHECK(std::abs(std::log(weight[k] / weight[0]) - (score[k] - score[0])) < 1e-9);
        }
      }
      CHECK(worst > 0.4);
    }
}

TEST_CASE("Gatv2Conv: Jacobians stay under the certificate, and under the target") {
  const std::int64_t n = 14, width = 6;
  const Graph graph = random_graph(n, 40);
  Generator rng{12};
  const Tensor x = randn({n, width}, f64, rng);
  const auto measure = [&](const Gatv2ConvOptions& options, double scale, double& bound) {
    One net(options);
    Generator init{3};
    net.initialize(init);
    if (options.norm) {
      const Tensor &l = net.conv.lin_l.weight,
                   &r = net.conv.lin_r ? net.conv.lin_r->weight.value() : l;
      LipschitzNorm plain = *options.norm;
      plain.target_lipschitz.reset();
      bound = options.norm->target_lipschitz.value_or(
          gat_certificate(graph, options.self_loops, ScoreKind::gatv2, plain) *
          spectral_norm(concat({l, r}, 0)));
    }
    return spectral_norm(test::jacobian(mul(x, scale), [&](const Tensor& at) {
      return net.conv.forward(graph, at, Mode::eval());
    }));
  };
  Gatv2ConvOptions options{.in = width, .out = 3, .heads = 2, .bias = false, .dtype = f64};
  for (const NormScope scope : {NormScope::neighbourhood, NormScope::global})
    for (const bool shared : {false, true})
      for (const bool target : {false, true}) {
        options.norm = LipschitzNorm{.scope = scope, .kappa = 0.5};
        if (target) options.norm->target_lipschitz = 0.7;
        options.share_weights = shared;
        double bound = 0;
        const double once = measure(options, 1, bound), far = measure(options, 1000, bound);
        MESSAGE("Jacobian norms ", once, ", ", far, " of at most ", bound);
        CHECK(once <= bound);
        CHECK(far <= bound);
        CHECK(far == doctest::Approx(once).epsilon(1e-6));
      }
  options.norm.reset();
  double unused = 0;
  CHECK(measure(options, 30, unused) > 2 * measure(options, 0.1, unused));
}

TEST_CASE("gatv2_attention: hubs, the same bits on any number of threads; f32 against f64") {
  const std::int64_t nodes = 3000, heads = 2, features = 5, f = 3;
  Generator rng{2};
  std::vector<std::int64_t> ends;
  const Tensor drawn = rand_int({6000, 2}, nodes, rng);
  for (std::int64_t e = 0; e < 6000; ++e)
    ends.insert(ends.end(),
                {drawn.data<std::int64_t>()[2 * e], drawn.data<std::int64_t>()[2 * e + 1]});
  for (std::int64_t i = 1; i < nodes; ++i) ends.insert(ends.end(), {i, 0, 1, i});
  const auto count = static_cast<std::int64_t>(ends.size() / 2);
  const Graph graph(nodes, from_vector({count, 2}, ends));
  const Tensor left = randn({nodes, heads * features}, f64, rng),
               right = randn({nodes, heads * features}, f64, rng),
               a = randn({heads, features}, f64, rng), bias = randn({features}, f64, rng),
               value = randn({count, f}, f64, rng), loop = randn({nodes, f}, f64, rng),
               weight = randn({heads * features, f}, f64, rng),
               r = randn({nodes, features}, f64, rng);
  const auto run = [&](DType dtype) {
    Tape tape;
    std::vector<Tensor> in;
    for (const Tensor& t : {left, right, a, bias, weight, value, loop})
      in.push_back(tape.watch(t.to(dtype)));
    Generator mask{5};
    const Tensor y =
        gatv2_attention(graph, in[0], in[1], in[2], in[3],
                        {.dropout = 0.3, .mean_heads = true, .norm = LipschitzNorm{.kappa = 0.3}},
                        Mode::train(mask), {in[5], in[4], in[6]});
    std::vector<Tensor> result{y.detach()};
    for (const Tensor& g : tape.grad(y, in, r.to(dtype))) result.push_back(g);
    return result;
  };
  const int before = num_threads();
  set_num_threads(1);
  const auto once = run(f32), exact = run(f64);
  for (std::size_t i = 0; i < once.size(); ++i) {
    double largest = 1;
    for (const double x : exact[i].to_vector<double>()) largest = std::max(largest, std::abs(x));
    CHECK(difference(once[i], exact[i]) < 1e-4 * largest);
  }
  for (const int threads : {2, 3}) {
    set_num_threads(threads);
    const auto again = run(f32);
    for (std::size_t i = 0; i < once.size(); ++i) CHECK(bitwise_equal(once[i], again[i]));
  }
  set_num_threads(before);
}

TEST_CASE("Gatv2Conv: parameters, shapes and errors") {
  One net({.in = 5, .out = 4, .heads = 3, .edge_features = 2});
  std::vector<std::string> names;
  for (auto& [path, parameter] : net.named_parameters()) names.push_back(path);
  std::sort(names.begin(), names.end());
  CHECK(names == std::vector<std::string>{"conv.att", "conv.bias", "conv.lin_edge.weight",
                                          "conv.lin_l.bias", "conv.lin_l.weight", "conv.lin_r.bias",
                                          "conv.lin_r.weight"});
  Generator rng{1};
  net.initialize(rng);
  const Graph graph = random_graph(10, 20);
  const Tensor x = randn({10, 5}, f32, rng);
  CHECK(net.conv.forward(graph, x, randn({20, 2}, f32, rng), Mode::eval()).shape() ==
        Shape{10, 12});
  CHECK_THROWS_WITH_AS(net.conv.forward(graph, x, Mode::eval()),
                       doctest::Contains("made for 2 features of edges"), Error);
  CHECK_THROWS_WITH_AS(net.conv.forward(graph, x, randn({19, 2}, f32, rng), Mode::eval()),
                       doctest::Contains("20"), Error);
  const auto refused = [](const Gatv2ConvOptions& options, const char* why) {
    CHECK_THROWS_WITH_AS(One{options}, doctest::Contains(why), Error);
  };
  refused({.in = 5, .out = 0}, "must be at least 1");
  refused({.in = 5, .out = 4, .norm = LipschitzNorm{.edge_source = true}},
          "edge_source is for scores of the kind gat");
  refused({.in = 5, .out = 4, .edge_features = 2, .norm = LipschitzNorm{.target_lipschitz = 1}},
          "there is no certificate");
  refused({.in = 5, .out = 4, .negative_slope = 2, .norm = LipschitzNorm{.target_lipschitz = 1}},
          "needs a negative_slope from -1 to 1, got 2");
  refused({.in = 5, .out = 4, .identity_map = 0.5},
          "an identity map needs as many features in as out, got 5 and 4");
}

TEST_CASE("gatv2_attention: peak memory has no term of edges times features") {
  Generator rng{6};
  const std::int64_t nodes = 10000, edges = 200000, heads = 4, features = 32;
  const Graph graph(nodes, rand_int({edges, 2}, nodes, rng));
  graph.reverse();
  const Tensor left = randn({nodes, heads * features}, f32, rng), right = left.clone(),
               a = randn({heads, features}, f32, rng), r = left.clone();
  const auto step = [&] {
    Tape tape;
    const Tensor l = tape.watch(left), w = tape.watch(right);
    tape.grad(gatv2_attention(graph, l, w, a, {}, {.dropout = 0.5}, Mode::train(rng)), {l, w}, r);
  };
  step();
  const std::int64_t before = memory::counters().live;
  memory::reset_peak();
  step();
  const double peak = static_cast<double>(memory::counters().peak - before),
               node_sized = static_cast<double>(nodes * heads * features * 4);
  MESSAGE("peak ", peak / node_sized, " node-sized tensors; one of edges would be 20");
  CHECK(peak <= 4 * node_sized);
}

}  // namespace lipgrad
