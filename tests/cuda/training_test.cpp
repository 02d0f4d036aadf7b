// Models, optimisers, checkpoints and the trainer on CUDA devices.
#include <lipgrad/models/trainer.h>

#include <memory>
#include <optional>
#include <vector>

#include <doctest/doctest.h>

#include <lipgrad/core/checkpoint.h>
#include <lipgrad/core/cuda_graph.h>
#include <lipgrad/core/error.h>
#include <lipgrad/graph/generated_graph.h>
#include <lipgrad/models/gnn.h>
#include <lipgrad/models/node_classification.h>
#include <lipgrad/ops/clip_grad.h>
#include <lipgrad/ops/elementwise.h>
#include <lipgrad/ops/optimizers.h>
#include <lipgrad/ops/reduce.h>
#include <lipgrad/ops/schedules.h>
#include <support/temporary_directory.h>

#include "cuda/kernel_test.h"

namespace lipgrad {
namespace {

const NodeData& data() {
  static const NodeData generated = generated_citation_graph({.num_nodes = 120,
                                                              .num_edges = 260,
                                                              .num_features = 40,
                                                              .num_classes = 4,
                                                              .words = 8,
                                                              .train_per_class = 8,
                                                              .num_val = 30,
                                                              .num_test = 40});
  return generated;
}

// The reference model in miniature, each recipe once.
std::vector<GnnOptions> recipes() {
  GnnOptions plain{.in = data().features.cols(),
                   .out = data().num_classes,
                   .heads = 2,
                   .hidden = 5,
                   .dropout = 0.3,
                   .attention_dropout = 0.3};
  GnnOptions paper = plain;
  paper.layers = 4;
  paper.linear_ends = true;
  paper.norm.kind = FeatureNormKind::pair_norm;
  paper.attention_norm = LipschitzNorm{};
  GnnOptions deep = paper;
  deep.layers = 5;
  deep.norm.kind = FeatureNormKind::center_norm;
  deep.residual = Residual::damped;
  deep.initial_residual = 0.1;
  deep.identity_map = 0.5;
  deep.attention_norm = LipschitzNorm::reference_code_2022(ScoreKind::gat);
  deep.spectral_init = true;
  GnnOptions moments = plain;
  moments.layer = GnnLayer::gcn;
  moments.heads = 1;
  moments.layers = 3;
  moments.norm.kind = FeatureNormKind::batch_norm;
  return {plain, paper, deep, moments};
}

struct Run {
  Gnn model;
  NodeData here;
  Generator rng{5};
  std::unique_ptr<Optimizer> optimizer;
  std::optional<LrSchedule> schedule;

  Run(const GnnOptions& options, Device device, bool sgd = false)
      : model(options), here(data().to(device)) {
    here.features = here.features.to(options.dtype);
    model.initialize(rng);
    model.to(device);
    if (sgd)
      optimizer = std::make_unique<Sgd>(model, SgdOptions{.lr = 0.05, .momentum = 0.9});
    else
      optimizer = std::make_unique<Adam>(model, AdamOptions{.lr = 0.01, .weight_decay = 5e-4});
    schedule.emplace(*optimizer, cosine_decay({.steps = 12}));
  }
  TrainResult train(TrainOptions options) {
    options.progress = false;
    options.select = Selection::last;
    return lipgrad::train(node_classification(model, here), *optimizer, &*schedule, rng, options);
  }
};

double distance(const Gnn& a, const Gnn& b) {
  double worst = 0;
  const auto pa = a.parameters(), pb = b.parameters();
  for (std::size_t i = 0; i < pa.size(); ++i)
    worst = std::max(worst, test::difference(pa[i]->value().detach().to(f64).to_vector<double>(),
                                             pb[i]->value().detach().to(f64).to_vector<double>()));
  return worst;
}

bool same_bits(const Gnn& a, const Gnn& b) {
  bool same = true;
  const auto pa = a.parameters(), pb = b.parameters();
  for (std::size_t i = 0; i < pa.size(); ++i)
    same = same && bitwise_equal(pa[i]->value(), pb[i]->value());
  const auto ba = a.named_buffers(), bb = b.named_buffers();
  for (std::size_t i = 0; i < ba.size(); ++i)
    same = same && bitwise_equal(ba[i].second->value(), bb[i].second->value());
  return same;
}

}  // namespace

TEST_CASE("a few steps of training follow the CPU's, dropout included, and repeat bit for bit") {
  if (!test::with_cuda()) return;
  int recipe = 0;
  for (GnnOptions options : recipes())
    for (const bool sgd : {false, true}) {
      CAPTURE(recipe++);
      // Adam divides gradients that are all rounding by themselves: in f32 such weights differ.
      options.dtype = sgd ? f32 : f64;
      const double tolerance = sgd ? 2e-4 : 1e-8;
      Run cpu(options, cpu_device, sgd), cuda(options, cuda_device(), sgd),
          again(options, cuda_device(), sgd);
      const TrainOptions few{.epochs = 3};
      const TrainResult a = cpu.train(few), b = cuda.train(few);
      again.train(few);
      CHECK(distance(cpu.model, cuda.model) < tolerance);
      CHECK(same_bits(cuda.model, again.model));
      for (std::size_t i = 0; i < a.last.size(); ++i) {
        CAPTURE(a.last[i].name);
        CHECK(a.last[i].name == b.last[i].name);
        CHECK(b.last[i].value == doctest::Approx(a.last[i].value).epsilon(1e-4));
      }
    }
}

TEST_CASE("a checkpoint written on one device resumes on the other") {
  if (!test::with_cuda()) return;
  const GnnOptions options = recipes()[1];
  Run whole(options, cuda_device());
  whole.train({.epochs = 6});
  for (const bool first_on_cuda : {true, false}) {
    CAPTURE(first_on_cuda);
    const test::TemporaryDirectory directory;
    Run first(options, first_on_cuda ? cuda_device() : cpu_device),
        second(options, first_on_cuda ? cpu_device : cuda_device());
    first.train({.epochs = 3, .out = directory.path()});
    const TrainResult result = second.train({.epochs = 6, .out = directory.path(), .resume = true});
    CHECK(result.epochs == 6);
    CHECK(distance(whole.model, second.model) < 5e-4);
  }
  // On the same device it is the very same run.
  const test::TemporaryDirectory directory;
  Run first(options, cuda_device()), second(options, cuda_device());
  first.train({.epochs = 3, .out = directory.path()});
  second.train({.epochs = 6, .out = directory.path(), .resume = true});
  CHECK(same_bits(whole.model, second.model));
}

TEST_CASE("steps in a CUDA graph, and evaluations now and then, change no bit") {
  if (!test::with_cuda()) return;
  for (const int recipe : {1, 3}) {
    CAPTURE(recipe);
    const GnnOptions options = recipes()[recipe];
    Run plain(options, cuda_device()), graph(options, cuda_device()),
        seldom(options, cuda_device());
    plain.train({.epochs = 5});
    graph.train({.epochs = 5, .cuda_graph = true});
    const TrainResult result = seldom.train({.epochs = 5, .evaluate_every = 3});
    CHECK(result.epochs == 5);
    CHECK(same_bits(plain.model, graph.model));
    CHECK(same_bits(plain.model, seldom.model));
  }
}

TEST_CASE("a CUDA graph is built once for equal steps, and refuses reads") {
  if (!test::with_cuda()) return;
  CudaGraph graph(cuda_device());
  const Tensor x = full({300}, 2, f32, cuda_device()), wide = full({50}, 3, f32, cuda_device());
  Tensor y;
  for (int k = 1; k <= 4; ++k) {
    graph.run([&] { y = mul(x, static_cast<double>(k)); });
    CHECK(sum(y).item() == 600 * k);
  }
  CHECK(graph.builds() == 1);
  graph.run([&] { y = add(mul(wide, 2.0), 1.0); });  // other work
  CHECK(sum(y).item() == 350);
  CHECK(graph.builds() == 2);
  CHECK_THROWS_WITH_AS(graph.run([&] { mul(x, 2.0).to(cpu_device); }),
                       doctest::Contains("recorded as a CUDA graph"), Error);
  CHECK_THROWS_AS(graph.run([&] { add(x, wide); }), Error);
  graph.run([&] { y = mul(x, 7.0); });
  CHECK(sum(y).item() == 4200);
  CudaGraph none(cpu_device);
  none.run([&] { y = ones({3}); });
  CHECK(sum(y).item() == 3);
}

TEST_CASE("gradients are measured and clipped on the device as on the CPU") {
  if (!test::with_cuda()) return;
  std::vector<double> norms, after;
  for (const Device device : {cpu_device, cuda_device()}) {
    Run run(recipes()[2], device);
    Tape tape;
    tape.backward(node_classification(run.model, run.here).loss(Mode::train(run.rng)));
    norms.push_back(grad_norms(run.model).total);
    clip_grad_norm(run.model, 0.5 * norms[0]);
    after.push_back(grad_norms(run.model).total);
  }
  CHECK(norms[1] == doctest::Approx(norms[0]).epsilon(1e-5));
  CHECK(after[0] == doctest::Approx(0.5 * norms[0]).epsilon(1e-5));
  CHECK(after[1] == doctest::Approx(0.5 * norms[0]).epsilon(1e-5));
}

}  // namespace lipgrad
