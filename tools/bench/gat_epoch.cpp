// Times epochs of the GAT of PyTorch Geometric's examples/gat.py on Cora, for compare_pyg.py, which
// says what "train" and "epoch" count. Prints a JSON object of seconds an epoch:
// {"sparse": {"train": [...], "epoch": [...]}, "dense": {...}}.

#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include <lipgrad/core/error.h>
#include <lipgrad/core/tape.h>
#include <lipgrad/graph/datasets.h>
#include <lipgrad/models/gnn.h>
#include <lipgrad/ops/loss.h>
#include <lipgrad/ops/optimizers.h>

using namespace lipgrad;

namespace {

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Times {
  std::vector<double> train, epoch;
};

Times run(bool sparse, int warm_up, int epochs) {
  const NodeData data = load_planetoid("cora", {.sparse_features = sparse});
  Gnn net({.in = data.features.cols(), .out = data.num_classes});
  Generator rng{0};
  net.initialize(rng);
  Adam optimizer(net, {.lr = 5e-3, .weight_decay = 5e-4});
  Times times;
  double best = 0, test = 0;
  for (int epoch = 0; epoch < warm_up + epochs; ++epoch) {
    const double start = seconds();
    {
      optimizer.zero_grad();
      Tape tape;
      const Tensor logits = net.forward(data.graph, data.features, Mode::train(rng));
      tape.backward(cross_entropy(logits, data.labels, {.rows = data.train}));
      optimizer.step();
    }
    const double middle = seconds();
    const Tensor logits = net.forward(data.graph, data.features, Mode::eval());
    const double valid = accuracy(logits, data.labels, data.val);
    const double accuracies[] = {accuracy(logits, data.labels, data.train), valid,
                                 accuracy(logits, data.labels, data.test)};
    if (valid > best) {
      best = valid;
      test = accuracies[2];
    }
    const double end = seconds();
    if (epoch < warm_up) continue;
    times.train.push_back(middle - start);
    times.epoch.push_back(end - start);
  }
  std::fprintf(stderr, "lipgrad %s: test accuracy %.3f at the best validation accuracy %.3f\n",
               sparse ? "sparse" : "dense", test, best);
  return times;
}

void print(const char* name, const std::vector<double>& values) {
  std::printf("\"%s\": [", name);
  for (std::size_t i = 0; i < values.size(); ++i) std::printf(i ? ", %.7f" : "%.7f", values[i]);
  std::printf("]");
}

int number(const char* argument, const char* name, int otherwise) {
  const std::size_t length = std::strlen(name);
  return std::strncmp(argument, name, length) == 0 ? std::atoi(argument + length) : otherwise;
}

}  // namespace

int main(int argc, char** argv) try {
  int epochs = 30, warm_up = 5;
  for (int i = 1; i < argc; ++i) {
    epochs = number(argv[i], "--epochs=", epochs);
    warm_up = number(argv[i], "--warm-up=", warm_up);
  }
  for (const bool sparse : {true, false}) {
    const Times times = run(sparse, warm_up, epochs);
    std::printf(sparse ? "{\"sparse\": {" : ",\n \"dense\": {");
    print("train", times.train);
    std::printf(", ");
    print("epoch", times.epoch);
    std::printf("}");
  }
  std::printf("}\n");
  return 0;
} catch (const Error& error) {
  std::fprintf(stderr, "gat_epoch: %s\n", error.what());
  return 1;
}
