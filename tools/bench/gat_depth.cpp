// Times epochs of the deep GAT (30 layers of 4 heads of 64 features) on Cora, beside the matrix
// products in it alone, for compare_pyg_depth.py. What "train" and "epoch" count is said there.
// Rounds of the kinds alternate. Prints a JSON object of seconds: {"none": {"train": [...],
// "epoch": [...]}, "lipschitz": ..., "products": ...}.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <lipgrad/core/blas.h>
#include <lipgrad/core/error.h>
#include <lipgrad/core/tape.h>
#include <lipgrad/graph/datasets.h>
#include <lipgrad/models/gnn.h>
#include <lipgrad/ops/loss.h>
#include <lipgrad/ops/optimizers.h>

using namespace lipgrad;

namespace {

constexpr std::int64_t layers = 30, heads = 4, hidden = 64;

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Times {
  std::vector<double> train, epoch;
};

class Training {
 public:
  Training(const NodeData& data, std::optional<LipschitzNorm> norm)
      : data_(data),
        net_({.in = data.features.cols(),
              .out = data.num_classes,
              .layers = layers,
              .heads = heads,
              .hidden = hidden,
              .linear_ends = true,
              .attention_dropout = 0.3,
              .attention_norm = norm}) {
    net_.initialize(rng_);
    optimizer_ = std::make_unique<Adam>(net_, AdamOptions{.lr = 1e-3, .weight_decay = 5e-4});
  }

  // Seconds of the training step and of the whole epoch.
  std::pair<double, double> epoch() {
    const double start = seconds();
    {
      optimizer_->zero_grad();
      Tape tape;
      const Tensor logits = net_.forward(data_.graph, data_.features, Mode::train(rng_));
      tape.backward(cross_entropy(logits, data_.labels, {.rows = data_.train}));
      optimizer_->step();
    }
    const double middle = seconds();
    const Tensor logits = net_.forward(data_.graph, data_.features, Mode::eval());
    for (const Tensor* part : {&data_.train, &data_.val, &data_.test})
      sink_ += accuracy(logits, data_.labels, *part);
    return {middle - start, seconds() - start};
  }

 private:
  const NodeData& data_;
  Gnn net_;
  Generator rng_{0};
  std::unique_ptr<Adam> optimizer_;
  double sink_ = 0;
};

// The dense products of an epoch and nothing else: three for each layer's training step, one for
// its evaluation.
class Products {
 public:
  explicit Products(std::int64_t nodes)
      : nodes_(nodes),
        x_(randn({nodes, width}, f32, rng_)),
        y_(randn({nodes, width}, f32, rng_)),
        w_(randn({width, width}, f32, rng_)),
        dw_(empty({width, width})) {}

  std::pair<double, double> epoch() {
    const double start = seconds();
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      const std::int64_t in = layer == 0 ? hidden : width;
      forward(in);
      // dx (N, in) = dy w; dw (width, in) = dy^T x.
      gemm<float>(false, false, nodes_, in, width, 1, y_.data<float>(), width, w_.data<float>(), in,
                  0, x_.mutable_data<float>(), in);
      gemm<float>(true, false, width, in, nodes_, 1, y_.data<float>(), width, x_.data<float>(), in,
                  0, dw_.mutable_data<float>(), in);
    }
    const double middle = seconds();
    for (std::int64_t layer = 0; layer < layers; ++layer) forward(layer == 0 ? hidden : width);
    return {middle - start, seconds() - start};
  }

 private:
  static constexpr std::int64_t width = heads * hidden;

  // y (N, width) = x (N, in) w^T.
  void forward(std::int64_t in) {
    gemm<float>(false, true, nodes_, width, in, 1, x_.data<float>(), in, w_.data<float>(), in, 0,
                y_.mutable_data<float>(), width);
  }

  std::int64_t nodes_;
  Generator rng_{1};
  Tensor x_, y_, w_, dw_;
};

void print(const char* name, const std::vector<double>& values) {
  std::printf("\"%s\": [", name);
  for (std::size_t i = 0; i < values.size(); ++i) std::printf(i ? ", %.7f" : "%.7f", values[i]);
  std::printf("]");
}

}  // namespace

int main(int argc, char** argv) try {
  const int epochs = argc > 1 ? std::atoi(argv[1]) : 5;
  const NodeData data = load_planetoid("cora", {.row_normalize = false});
  Training none(data, std::nullopt), lipschitz(data, LipschitzNorm{});
  Products products(data.graph.num_nodes());
  std::map<std::string, Times> times;
  for (int epoch = -1; epoch < epochs; ++epoch) {
    const auto add = [&](const char* name, std::pair<double, double> time) {
      if (epoch < 0) return;  // warm-up
      times[name].train.push_back(time.first);
      times[name].epoch.push_back(time.second);
    };
    add("none", none.epoch());
    add("products", products.epoch());
    add("lipschitz", lipschitz.epoch());
  }
  const char* separator = "{";
  for (const auto& [name, time] : times) {
    std::printf("%s\"%s\": {", separator, name.c_str());
    print("train", time.train);
    std::printf(", ");
    print("epoch", time.epoch);
    std::printf("}");
    separator = ",\n ";
  }
  std::printf("}\n");
  return 0;
} catch (const Error& error) {
  std::fprintf(stderr, "gat_depth: %s\n", error.what());
  return 1;
}
