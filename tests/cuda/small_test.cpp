// One pass through the kernels' longer ways (several blocks, long rows, hubs) in few enough threads
// for ThreadSanitizer, which sees races that no value shows.
#include <functional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <lipgrad/core/csr_matrix.h>
#include <lipgrad/graph/gat_attention.h>
#include <lipgrad/graph/gatv2_attention.h>
#include <lipgrad/graph/graph_layer_norm.h>
#include <lipgrad/graph/pair_norm.h>
#include <lipgrad/ops/clip_grad.h>
#include <lipgrad/ops/conv2d.h>
#include <lipgrad/ops/dropout.h>
#include <lipgrad/ops/index.h>
#include <lipgrad/ops/init.h>
#include <lipgrad/ops/linear.h>
#include <lipgrad/ops/loss.h>
#include <lipgrad/ops/norm.h>
#include <lipgrad/ops/optimizers.h>
#include <lipgrad/ops/reduce.h>
#include <lipgrad/ops/residual.h>
#include <lipgrad/ops/shape.h>
#include <lipgrad/ops/softmax.h>
#include <lipgrad/ops/spmm.h>

#include "catalogue/check.h"
#include "cuda/kernel_test.h"

namespace lipgrad {
namespace {

void follows_the_cpu(const std::string& name, const std::vector<Shape>& shapes,
                     std::function<Tensor(Inputs)> f) {
  CAPTURE(name);
  catalogue::Case c;
  c.op = name;
  c.make = [&](Generator& rng) {
    catalogue::Instance instance;
    for (const Shape& shape : shapes) instance.inputs.push_back(randn(shape, f64, rng));
    instance.fn = [f](Inputs in) { return std::vector<Tensor>{f(in)}; };
    return instance;
  };
  for (const std::string& failure : catalogue::check_once(c, cuda_device()).failures)
    FAIL_CHECK(failure);
}

// 40 nodes; node 7 has 300 edges in, node 9 has 300 edges out: two pieces each.
Graph graph_with_hubs() {
  std::vector<std::int32_t> from, to;
  for (std::int32_t k = 0; k < 300; ++k) {
    from.push_back(k * 7 % 40);
    to.push_back(7);
    from.push_back(9);
    to.push_back(k * 11 % 40);
  }
  return Graph(40, from, to);
}

}  // namespace

TEST_SUITE("small") {
  TEST_CASE("dense kernels over several blocks and long rows") {
    if (!test::with_cuda()) return;
    follows_the_cpu("softmax", {{2, 1500}}, [](Inputs in) { return softmax(in[0]); });
    follows_the_cpu("softmax of columns", {{300, 3}}, [](Inputs in) { return softmax(in[0], 0); });
    follows_the_cpu("log_softmax", {{2, 700}}, [](Inputs in) { return log_softmax(in[0]); });
    follows_the_cpu("layer_norm", {{150, 40}, {40}, {40}},
                    [](Inputs in) { return layer_norm(in[0], in[1], in[2]); });
    follows_the_cpu("center_norm", {{150, 40}, {40}, {40}},
                    [](Inputs in) { return center_norm(in[0], in[1], in[2]); });
    follows_the_cpu("l2_normalize", {{3, 900}}, [](Inputs in) { return l2_normalize(in[0]); });
    follows_the_cpu("sum", {{9000}}, [](Inputs in) { return sum(in[0]); });
    follows_the_cpu("sum of rows", {{600, 7}}, [](Inputs in) { return sum(in[0], {0}); });
    follows_the_cpu("var", {{2, 900}}, [](Inputs in) { return var(in[0], {1}); });
    follows_the_cpu("max", {{3000}}, [](Inputs in) { return max(in[0]); });
    follows_the_cpu("logsumexp", {{2, 900}}, [](Inputs in) { return logsumexp(in[0], {1}); });
    follows_the_cpu("linear", {{150, 9}, {12, 9}, {12}},
                    [](Inputs in) { return linear(in[0], in[1], in[2], {Activation::gelu}); });
    follows_the_cpu("dropout", {{900}}, [](Inputs in) {
      Generator rng{3};
      return dropout(in[0], 0.4, Mode::train(rng));
    });
    follows_the_cpu("depth-wise conv2d", {{2, 20, 5, 33}, {33, 1, 3, 3}, {33}}, [](Inputs in) {
      return conv2d(in[0], in[1], in[2], {.padding = 1, .groups = 33});
    });
    follows_the_cpu("weighted_residual", {{150, 20}, {150, 20}, {20}},
                    [](Inputs in) { return weighted_residual(in[0], in[1], in[2]); });
    follows_the_cpu("permute", {{20, 35, 2}}, [](Inputs in) { return permute(in[0], {1, 0, 2}); });
    follows_the_cpu("transpose", {{40, 35}}, [](Inputs in) { return transpose(in[0]); });
    Tensor index = empty({300}, i64);
    for (std::int64_t i = 0; i < 300; ++i) index.mutable_data<std::int64_t>()[i] = i * i % 23;
    follows_the_cpu("gather", {{23, 5}},
                    [=](Inputs in) { return gather(in[0], index.to(in[0].device())); });
    follows_the_cpu("cross_entropy", {{300, 23}},
                    [=](Inputs in) { return cross_entropy(in[0], index.to(in[0].device())); });
  }

  TEST_CASE("graph kernels with hubs") {
    if (!test::with_cuda()) return;
    const Graph graph = graph_with_hubs();
    const Tensor weights = ones({graph.num_edges()}, f64);
    follows_the_cpu("spmm", {{40, 5}}, [=](Inputs in) {
      const Device device = in[0].device();
      return spmm(CsrMatrix(graph.pattern().to(device), weights.to(device)), in[0]);
    });
    for (const std::optional<LipschitzNorm>& norm :
         {std::optional<LipschitzNorm>(), std::optional(LipschitzNorm{}),
          std::optional(LipschitzNorm{.scope = NormScope::global})})
      follows_the_cpu("gat_attention", {{40, 6}, {2, 3}, {2, 3}, {6}}, [=](Inputs in) {
        Generator rng{3};
        return gat_attention(graph.to(in[0].device()), in[0], in[1], in[2], in[3],
                             {.dropout = 0.3, .norm = norm}, Mode::train(rng));
      });
    // Heads of 300 features are gone through by stretches.
    for (const std::int64_t features : {std::int64_t{3}, std::int64_t{300}})
      follows_the_cpu("gatv2_attention",
                      {{40, 2 * features},
                       {40, 2 * features},
                       {2, features},
                       {2 * features, 3},
                       {graph.num_edges(), 3},
                       {40, 3}},
                      [=](Inputs in) {
                        Generator rng{3};
                        return gatv2_attention(graph.to(in[0].device()), in[0], in[1], in[2], {},
                                               {.dropout = 0.3, .norm = LipschitzNorm{}},
                                               Mode::train(rng), {in[4], in[3], in[5]});
                      });
    for (const PairNormKind kind : {PairNormKind::pn, PairNormKind::pn_si, PairNormKind::pn_scs})
      follows_the_cpu("pair_norm", {{70, 5}},
                      [=](Inputs in) { return pair_norm(in[0], {.kind = kind}); });
    follows_the_cpu("graph_layer_norm", {{70, 5}, {5}, {5}},
                    [](Inputs in) { return graph_layer_norm(in[0], in[1], in[2]); });
  }

  TEST_CASE("optimisers and clipping over several tensors") {
    if (!test::with_cuda()) return;
    struct Net : Module {
      Parameter a{*this, "a", {300}, init::ones()}, b{*this, "b", {7, 5}, init::ones()};
    };
    std::vector<Tensor> results;
    for (const Device device : {cpu_device, cuda_device()}) {
      Net net;
      Generator rng{1};
      net.initialize(rng);
      net.to(device);
      Adam adam(net, {.lr = 0.1});
      for (int step = 0; step < 2; ++step) {
        for (Parameter* parameter : net.parameters())
          parameter->add_grad(randn(parameter->shape(), f32, rng).to(device));
        clip_grad_norm(net, 1.0);
        adam.step();
        adam.zero_grad();
      }
      results.push_back(net.a.value().to(cpu_device));
      results.push_back(net.b.value().to(cpu_device));
    }
    for (int i : {0, 1})
      CHECK(test::difference(results[2 + i].to_vector<float>(), results[i].to_vector<float>()) <
            1e-5);
  }
}

}  // namespace lipgrad
