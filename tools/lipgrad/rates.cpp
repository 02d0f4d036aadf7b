#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <lipgrad/core/cuda_status.h>
#include <lipgrad/core/error.h>
#include <lipgrad/core/file.h>
#include <lipgrad/core/log.h>
#include <lipgrad/core/tape.h>
#include <lipgrad/graph/gat_attention.h>
#include <lipgrad/ops/activation.h>
#include <lipgrad/ops/dropout.h>
#include <lipgrad/ops/elementwise.h>
#include <lipgrad/ops/index.h>
#include <lipgrad/ops/layers.h>
#include <lipgrad/ops/loss.h>
#include <lipgrad/ops/matmul.h>
#include <lipgrad/ops/norm.h>
#include <lipgrad/ops/optimizers.h>
#include <lipgrad/ops/reduce.h>
#include <lipgrad/ops/residual.h>
#include <lipgrad/ops/shape.h>
#include <lipgrad/ops/softmax.h>
#include <lipgrad/ops/spmm.h>

#include "lipgrad/commands.h"
#include "lipgrad/results.h"
#include "lipgrad/settings.h"

namespace lipgrad::cli {
namespace {

using Json = nlohmann::json;

struct Options {
  std::string device = "cpu", json, only;
  std::int64_t rows = 0;
  double seconds = 0.1;
};

// Times what it is given on a device and collects rates. Work is queued and waited for in batches,
// so that neither launching nor waiting counts where the work itself is longer.
class Rates {
 public:
  Rates(Device device, double seconds, std::string only)
      : device_(device), seconds_(seconds), only_(std::move(only)) {}

  // bytes: what must be read and written at least; flops: operations of the product, 0 for what
  // memory bounds.
  void measure(const std::string& name, double bytes, double flops,
               const std::function<void()>& work) {
    if (name.find(only_) == std::string::npos) return;
    work();
    synchronize(device_);
    double once = time(1, work);
    const auto count =
        static_cast<std::int64_t>(std::clamp(seconds_ / 5 / std::max(once, 1e-7), 1.0, 10000.0));
    std::vector<double> batches;
    for (int k = 0; k < 5; ++k) batches.push_back(time(count, work) / static_cast<double>(count));
    rows_.push_back({name, bytes, flops, median(batches)});
    std::fprintf(stderr, "%s\n", name.c_str());
  }

  void report(Json& json) const {
    double copy = 0, product = 0;
    for (const Row& row : rows_) {
      if (row.name == "copy") copy = row.bytes / row.seconds;
      if (row.flops > 0) product = std::max(product, row.flops / row.seconds);
    }
    Table table({"what", "ms", "GB/s", "of a copy", "GFLOP/s"});
    for (const Row& row : rows_) {
      const double rate = row.bytes / row.seconds, flops = row.flops / row.seconds;
      table.add_row({row.name, fmt::format("{:.4f}", 1e3 * row.seconds),
                     row.flops > 0 ? "" : fmt::format("{:.1f}", rate / 1e9),
                     row.flops > 0 || copy == 0 ? "" : fmt::format("{:.0f} %", 100 * rate / copy),
                     row.flops > 0 ? fmt::format("{:.0f}", flops / 1e9) : ""});
      json["rates"][row.name] = {
          {"seconds", row.seconds}, {"bytes", row.bytes}, {"flops", row.flops}};
    }
    std::fputs(table.str().c_str(), stdout);
    std::printf("\nGB/s count the bytes that must be read and written at least\n");
  }

 private:
  struct Row {
    std::string name;
    double bytes, flops, seconds;
  };
  double time(std::int64_t count, const std::function<void()>& work) const {
    const auto begin = std::chrono::steady_clock::now();
    for (std::int64_t k = 0; k < count; ++k) work();
    synchronize(device_);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

  Device device_;
  double seconds_;
  std::string only_;
  std::vector<Row> rows_;
};

// The forward and the backward pass of y = f(in...), with the numbers of arrays of the size of
// in[0] that each must move.
void measure_op(Rates& rates, const std::string& name, const std::vector<Tensor>& in,
                double forward, double backward,
                const std::function<Tensor(const std::vector<Tensor>&)>& f) {
  const auto size = static_cast<double>(in[0].nbytes());
  rates.measure(name, forward * size, 0, [&] { f(in); });
  if (backward == 0) return;
  Tape tape;
  std::vector<Tensor> watched;
  for (const Tensor& x : in) watched.push_back(tape.watch(x));
  const Tensor y = f(watched);
  const Tensor g = ones(y.shape(), y.dtype(), y.device());
  rates.measure(name + ", backward", backward * size, 0,
                [&] { tape.grad(y, watched, g, {.retain = true}); });
}

void measure_dense(Rates& rates, Device device, std::int64_t rows) {
  constexpr std::int64_t cols = 1024;
  Generator rng{1};
  const Tensor x = randn({rows, cols}, f32, rng).to(device), y = x.clone();
  const Tensor scale = ones({cols}, f32, device), shift = zeros({cols}, f32, device);
  using In = const std::vector<Tensor>&;
  rates.measure("copy", 2.0 * static_cast<double>(x.nbytes()), 0, [&] { x.clone(); });
  measure_op(rates, "add", {x, y}, 3, 0, [](In in) { return add(in[0], in[1]); });
  measure_op(rates, "mul, backward into both", {x, y}, 3, 5,
             [](In in) { return mul(in[0], in[1]); });
  measure_op(rates, "gelu", {x}, 2, 3, [](In in) { return gelu(in[0]); });
  measure_op(rates, "add a row", {x, shift}, 2, 0, [](In in) { return add(in[0], in[1]); });
  measure_op(rates, "sum", {x}, 1, 0, [](In in) { return sum(in[0]); });
  measure_op(rates, "sum of rows", {x}, 1, 0, [](In in) { return sum(in[0], {0}); });
  measure_op(rates, "sum of columns", {x}, 1, 0, [](In in) { return sum(in[0], {1}); });
  measure_op(rates, "softmax", {x}, 2, 3, [](In in) { return softmax(in[0]); });
  measure_op(rates, "log_softmax", {x}, 2, 3, [](In in) { return log_softmax(in[0]); });
  measure_op(rates, "layer_norm", {x, scale, shift}, 2, 3,
             [](In in) { return layer_norm(in[0], in[1], in[2]); });
  measure_op(rates, "center_norm", {x, scale, shift}, 2, 3,
             [](In in) { return center_norm(in[0], in[1], in[2]); });
  measure_op(rates, "l2_normalize", {x}, 2, 3, [](In in) { return l2_normalize(in[0]); });
  measure_op(rates, "weighted_residual", {x, y, scale}, 3, 3,
             [](In in) { return weighted_residual(in[0], in[1], in[2]); });
  measure_op(rates, "transpose", {x}, 2, 0, [](In in) { return transpose(in[0]); });
  measure_op(rates, "dropout", {x}, 2, 2,
             [&rng](In in) { return dropout(in[0], 0.5, Mode::train(rng)); });
  const Tensor labels = zeros({rows}, i64, device), order = rand_permutation(rows, rng).to(device);
  measure_op(rates, "cross_entropy", {x}, 1, 2,
             [&](In in) { return cross_entropy(in[0], labels); });
  measure_op(rates, "gather", {x}, 2, 2, [&](In in) { return gather(in[0], order); });

  struct Weights : Module {
    Parameter w;
    Weights(std::int64_t n, std::int64_t m)
        : w(*this, "w", {n, m}, [](Tensor& value, Generator&) { value = zeros(value.shape()); }) {}
  } weights(rows, cols);
  weights.initialize(rng);
  weights.to(device);
  weights.w.add_grad(x.clone());
  Adam adam(weights, {.lr = 1e-3});
  rates.measure("Adam", 7.0 * static_cast<double>(x.nbytes()), 0, [&] { adam.step(); });
}

void measure_products(Rates& rates, Device device, std::int64_t size) {
  Generator rng{2};
  const double flops = 2.0 * static_cast<double>(size) * static_cast<double>(size * size);
  for (const DType dtype : {f32, f64}) {
    const Tensor a = randn({size, size}, dtype, rng).to(device), b = a.clone();
    const std::string name = fmt::format("product {} x {}, {}", size, size, name_of(dtype));
    rates.measure(name, 0, flops, [&] { matmul(a, b); });
    if (dtype == f64 || !device.is_cuda()) continue;
    set_matmul_precision(MatmulPrecision::tf32);
    rates.measure(name + " (tf32)", 0, flops, [&] { matmul(a, b); });
    set_matmul_precision(MatmulPrecision::exact);
  }
  const std::int64_t rows = 4 * size;
  const Tensor x = randn({rows, 768}, f32, rng).to(device),
               w = randn({3072, 768}, f32, rng).to(device), bias = zeros({3072}, f32, device);
  rates.measure(fmt::format("linear {} x 768 -> 3072, gelu", rows), 0,
                2.0 * 768 * 3072 * static_cast<double>(rows),
                [&] { linear(x, w, bias, {Activation::gelu}); });
}

// The size of ogbn-arxiv at full length: 169,343 nodes, some seven edges a node.
void measure_graph(Rates& rates, Device device, std::int64_t nodes) {
  Generator rng{3};
  const std::int64_t edges = 7 * nodes, heads = 4, features = 32, width = heads * features;
  const Graph graph = Graph(nodes, rand_int({edges, 2}, nodes, rng)).to(device);
  const Tensor z = randn({nodes, width}, f32, rng).to(device);
  const Tensor a = randn({heads, features}, f32, rng).to(device), b = a.clone();
  // Bytes of a row that an edge reads, and of the nodes' own arrays.
  const double row = 4.0 * static_cast<double>(width),
               per_edge = 4 + 4.0 * static_cast<double>(heads),
               e = static_cast<double>(edges + nodes), n = static_cast<double>(nodes);
  const CsrMatrix adjacency(graph.pattern(), ones({edges}, f32, device));
  rates.measure("spmm", static_cast<double>(edges) * (8 + row) + n * (8 + row), 0,
                [&] { spmm(adjacency, z); });
  for (const bool normed : {false, true}) {
    const std::string name = normed ? "gat_attention, LipschitzNorm" : "gat_attention";
    GatAttentionOptions options;
    if (normed) options.norm.emplace();
    const auto f = [&](const Tensor& z, const Tensor& a, const Tensor& b) {
      return gat_attention(graph, z, a, b, {}, options, Mode::eval());
    };
    rates.measure(name, e * (per_edge + row) + n * (2 * row + 8), 0, [&] { f(z, a, b); });
    Tape tape;
    const Tensor zw = tape.watch(z), aw = tape.watch(a), bw = tape.watch(b), y = f(zw, aw, bw);
    const Tensor g = ones(y.shape(), f32, device);
    rates.measure(name + ", backward", 2 * e * (per_edge + row) + n * (4 * row + 16), 0, [&] {
      tape.grad(y, {zw, aw, bw}, g, {.retain = true});
    });
  }
}

int run(const Options& o) {
  if (!o.json.empty()) check_writable(o.json);
  const Device device = parse_device(o.device);
  const bool cuda = device.is_cuda() && !cuda_status().emulated;
  const std::int64_t rows = o.rows > 0 ? o.rows : cuda ? 1 << 16 : 1 << 12;
  Rates rates(device, o.seconds, o.only);
  measure_dense(rates, device, rows);
  measure_products(rates, device, rows / (cuda ? 8 : 4));
  measure_graph(rates, device, cuda ? 169343 : 4 * rows);
  Json json = {{"device", device.str()}, {"rows", rows}};
  if (device.is_cuda()) json["name"] = cuda_status().devices[device.index].name;
  rates.report(json);
  if (!o.json.empty()) write_json(o.json, json);
  return success;
}

}  // namespace

void add_rates(CLI::App& app, int& exit) {
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "rates", "Measure how fast operations are, beside a copy of memory and matrix products");
  add_device(*command, o->device);
  command->add_option("--rows", o->rows, "Rows of 1024 f32; by default 65536 on CUDA, else 4096")
      ->check(CLI::Range(std::int64_t{8}, std::int64_t{1} << 24));
  command->add_option("--seconds", o->seconds, "For each operation")
      ->check(CLI::Range(0.0, 60.0))
      ->capture_default_str();
  command->add_option("--only", o->only, "Only those with this text in their name");
  command->add_option("--json", o->json, "Also write the results to this file");
  command->callback([o, &exit] { exit = run(*o); });
}

}  // namespace lipgrad::cli
