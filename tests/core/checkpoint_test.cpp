#include <lipgrad/core/checkpoint.h>

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <lipgrad/core/error.h>
#include <lipgrad/core/file.h>
#include <lipgrad/core/tape.h>
#include <lipgrad/ops/optimizers.h>
#include <lipgrad/ops/schedules.h>
#include <support/data.h>
#include <support/errors.h>
#include <support/ops.h>
#include <support/temporary_directory.h>

namespace lipgrad {
namespace {

void normal(Tensor& x, Generator& rng) { x = randn(x.shape(), x.dtype(), rng); }

struct Layer : Module {
  Layer(Module& parent, std::string name) : Module(parent, std::move(name)) {}
  Parameter weight{*this, "weight", {6, 7}, normal, f64};
  Parameter bias{*this, "bias", {6, 7}, normal, f64};
  Buffer mean{*this, "mean", {6, 7}, 0.5, f64};
};

struct Net : Module {
  Layer a{*this, "a"};
  Layer b{*this, "b"};
  Parameter unused{*this, "unused", {2, 0}, normal};  // never has a gradient

  // y = w2 * dropout(w1 * x + b1) + b2 with the mean of x kept, as a batch normalisation would.
  Tensor forward(const Tensor& x, Mode mode) {
    using testing::add2, testing::product;
    Tensor h = add2(product(a.weight, x), a.bias);
    if (mode.is_train()) {
      const Tensor mask = map("mask", rand_uniform(x.shape(), 0, 1, f64, mode.rng()),
                              [](auto u) { return decltype(u)(u < 0.4 ? 0 : 1 / 0.6); });
      h = product(h, mask);
      double* mean = a.mean.mutable_data<double>();
      for (std::int64_t i = 0; i < x.numel(); ++i) mean[i] += 0.1 * (x.data<double>()[i] - mean[i]);
    }
    return add2(product(b.weight, h), b.bias);
  }
};

// All that a training run consists of.
struct Run {
  Net net;
  Generator rng{11};
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<LrSchedule> schedule;
  std::int64_t step = 0;

  explicit Run(bool sgd = false) {
    if (sgd)
      optimizer = std::make_unique<Sgd>(net, SgdOptions{.lr = 0.05, .momentum = 0.9});
    else
      optimizer = std::make_unique<Adam>(net, AdamOptions{.lr = 0.05, .weight_decay = 0.01});
    schedule = std::make_unique<LrSchedule>(
        *optimizer, linear_warmup({.steps = 4}, cosine_decay({.steps = 16, .min_lr = 1e-3})));
  }
  void train(int steps) {
    for (int i = 0; i < steps; ++i, ++step) {
      Tape tape;
      const Tensor x = randn({6, 7}, f64, rng);
      const Tensor y = net.forward(x, Mode::train(rng));
      tape.backward(testing::total(testing::product(y, y)));
      optimizer->step();
      optimizer->zero_grad();
      schedule->step();
    }
  }
  SaveOptions parts() const {
    SaveOptions options;
    options.optimizer = optimizer.get();
    options.schedule = schedule.get();
    options.generator = &rng;
    options.step = step;
    return options;
  }
  void load(const std::string& path) {
    step = load_checkpoint(
               path, net,
               {.optimizer = optimizer.get(), .schedule = schedule.get(), .generator = &rng})
               .info.step;
  }
};

using test::error_of;

bool same_weights(const Net& x, const Net& y) {
  const auto p = x.named_parameters(), q = y.named_parameters();
  bool same = p.size() == q.size();
  for (std::size_t i = 0; same && i < p.size(); ++i)
    same = bitwise_equal(p[i].second->value(), q[i].second->value());
  return same && bitwise_equal(x.a.mean.value(), y.a.mean.value());
}

}  // namespace

TEST_CASE("checkpoint: training that stops and resumes gives the bits of training that did not") {
  test::TemporaryDirectory dir;
  for (const bool sgd : {false, true}) {
    for (const int stop : {0, 1, 3, 10}) {
      Run whole(sgd);
      whole.net.initialize(whole.rng);
      whole.train(stop);
      save_checkpoint(dir / "a.lip", whole.net, whole.parts());
      whole.train(20 - stop);

      Run resumed(sgd);
      resumed.load(dir / "a.lip");
      CHECK(resumed.step == stop);
      resumed.train(20 - stop);
      CHECK(same_weights(whole.net, resumed.net));
      CHECK(whole.optimizer->lr() == resumed.optimizer->lr());
      // And so do the checkpoints, byte for byte.
      save_checkpoint(dir / "whole.lip", whole.net, whole.parts());
      save_checkpoint(dir / "resumed.lip", resumed.net, resumed.parts());
      CHECK((read_file(dir / "whole.lip") == read_file(dir / "resumed.lip")));
    }
  }
}

TEST_CASE("checkpoint: the test of resuming notices a forgotten part") {
  test::TemporaryDirectory dir;
  Run whole;
  whole.net.initialize(whole.rng);
  whole.train(5);
  save_checkpoint(dir / "a.lip", whole.net, whole.parts());
  whole.train(5);
  for (const char* forgotten : {"optimizer", "schedule", "generator"}) {
    Run resumed;
    LoadOptions options;
    if (forgotten != std::string("optimizer")) options.optimizer = resumed.optimizer.get();
    if (forgotten != std::string("schedule")) options.schedule = resumed.schedule.get();
    if (forgotten != std::string("generator")) options.generator = &resumed.rng;
    load_checkpoint(dir / "a.lip", resumed.net, options);
    resumed.train(5);
    CHECK(!same_weights(whole.net, resumed.net));
  }
}

TEST_CASE("checkpoint: a file of another model is refused, everything named, nothing loaded") {
  test::TemporaryDirectory dir;
  const std::string path = dir / "a.lip";
  struct Small : Module {
    Parameter weight{*this, "weight", {3, 2}, normal};
    Parameter bias{*this, "bias", {3}, normal};
    Parameter scale{*this, "scale", {3}, normal};
    Buffer count{*this, "count", {}, 0, i64};
  };
  struct Other : Module {
    Parameter weight{*this, "weight", {2, 3}, normal};
    Parameter scale{*this, "scale", {3}, normal, f64};
    Parameter extra{*this, "extra", {4}, normal};
    Buffer count{*this, "count", {}, 0, i64};
    Buffer mean{*this, "mean", {4}, 0};
  };
  Generator rng{3};
  Small small;
  small.initialize(rng);
  small.count.mutable_data<std::int64_t>()[0] = 9;
  save_checkpoint(path, small, {.config = "{\"model\": \"small\"}"});
  Other other;
  other.initialize(rng);
  const Tensor before = other.weight.value().clone();
  Adam adam{other};
  CHECK(
      error_of([&] { load_checkpoint(path, other, {.optimizer = &adam, .generator = &rng}); }) ==
      path +
          ": does not fit this program; nothing was loaded: missing: parameter \"extra\" f32 (4), "
          "buffer \"mean\" f32 (4); unexpected: parameter \"bias\" f32 (3); mismatched: parameter "
          "\"weight\" f32 (3, 2), the model has f32 (2, 3), parameter \"scale\" f32 (3), the model "
          "has f64 (3); it holds no generator; it holds no optimizer; it was saved with the "
          "configuration {\"model\": \"small\"}");
  CHECK(bitwise_equal(before, other.weight.value()));
  CHECK(other.count.value().item() == 0);

  const LoadReport report = load_checkpoint(path, other, {.strict = false});
  CHECK(report.missing.size() == 2);
  CHECK(report.unexpected.size() == 1);
  CHECK(report.mismatched.size() == 2);
  CHECK(other.count.value().item() == 9);
  CHECK(bitwise_equal(before, other.weight.value()));
}

TEST_CASE("checkpoint: an optimiser that does not fit is refused, and nothing loaded") {
  test::TemporaryDirectory dir;
  const std::string path = dir / "a.lip";
  Run run;
  run.net.initialize(run.rng);
  run.train(2);
  save_checkpoint(path, run.net, run.parts());
  Run other(true);
  other.net.initialize(other.rng);
  const Tensor before = other.net.a.weight.value().clone();
  const std::string message = error_of([&] { other.load(path); });
  CHECK(message.find("; nothing was loaded: optimizer: state of adam, the optimiser is sgd") !=
        std::string::npos);
  CHECK(bitwise_equal(before, other.net.a.weight.value()));
  // Without the optimiser the weights can be had.
  load_checkpoint(path, other.net);
  CHECK(same_weights(run.net, other.net));
}

TEST_CASE("checkpoint: tensors beside the optimiser's come back to who names them") {
  test::TemporaryDirectory dir;
  const std::string path = dir / "a.lip";
  Run run;
  run.net.initialize(run.rng);
  run.train(2);
  SaveOptions parts = run.parts();
  parts.tensors = {{"x/average", from_values<float>({3}, {1, 2, 3})},
                   {"y/average", from_values<double>({}, {7})}};
  save_checkpoint(path, run.net, parts);

  std::map<std::string, Tensor> tensors{{"x/average", zeros({3})}, {"y/average", zeros({}, f64)}};
  load_checkpoint(path, run.net, {.optimizer = run.optimizer.get(), .tensors = &tensors});
  CHECK(tensors["x/average"].to_vector<float>() == std::vector<float>{1, 2, 3});
  CHECK(tensors["y/average"].item() == 7);
  // The optimiser takes what nobody named for its own, and knows better.
  CHECK(error_of([&] {
          load_checkpoint(path, run.net, {.optimizer = run.optimizer.get()});
        }).find("optimizer: 2 tensors of no parameter of this model") != std::string::npos);
  std::map<std::string, Tensor> wrong{{"x/average", zeros({4})}, {"z", zeros({})}};
  const std::string message =
      error_of([&] { load_checkpoint(path, run.net, {.tensors = &wrong}); });
  CHECK(message.find(R"(state "x/average" is f32 (3), expected f32 (4); it holds no "z")") !=
        std::string::npos);
  CHECK(wrong["x/average"].shape() == Shape{4});
}

TEST_CASE("checkpoint: damage in any tensor loads nothing") {
  test::TemporaryDirectory dir;
  const std::string path = dir / "a.lip", bad = dir / "bad.lip";
  Run run;
  run.net.initialize(run.rng);
  run.train(1);
  save_checkpoint(path, run.net, run.parts());
  const auto good = read_file(path);
  const CheckpointInfo info = read_checkpoint_info(path);
  for (const auto& tensor : info.tensors) {
    if (tensor.bytes() == 0) continue;
    auto bytes = good;
    bytes[static_cast<std::size_t>(tensor.offset + 16 + tensor.bytes() - 1)] ^= std::byte{4};
    std::ofstream(bad, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    Run other;
    const std::string message = error_of([&] { other.load(bad); });
    CHECK(message.starts_with(bad + ": damaged: the record at byte "));
    CHECK(message.find("(tensor \"" + tensor.name + "\")") != std::string::npos);
    CHECK(!other.net.a.weight.initialized());
    CHECK(other.optimizer->steps() == 0);
  }
  CHECK_THROWS_AS(load_checkpoint(dir / "none.lip", run.net), Error);
}

TEST_CASE("checkpoint: a model without values cannot be saved; what was there stays") {
  test::TemporaryDirectory dir;
  const std::string path = dir / "a.lip";
  Run run;
  run.net.initialize(run.rng);
  save_checkpoint(path, run.net, run.parts());
  const auto before = read_file(path);
  Run fresh;
  CHECK(error_of([&] { save_checkpoint(path, fresh.net); }) ==
        path + ": cannot save: parameter \"a.weight\" has no value");
  CHECK((read_file(path) == before));
}

TEST_CASE("checkpoint: when the disk is full the old checkpoint stays and the error says so") {
  test::TemporaryDirectory dir;
  const std::string path = dir / "a.lip";
  struct Large : Module {
    Parameter weight{*this, "weight", {1 << 18}, normal};
  };
  Generator rng{3};
  Large net;
  net.initialize(rng);
  save_checkpoint(path, net, {.step = 1});
  const auto before = read_file(path);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1 << 19, 1 << 19};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(2);
    const std::string message = error_of([&] { save_checkpoint(path, net, {.step = 2}); });
    ::_exit(message.starts_with(path + ": cannot write its temporary file: ") ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
  CHECK((read_file(path) == before));
  CHECK(read_checkpoint_info(path, true).step == 1);
  CHECK(std::distance(std::filesystem::directory_iterator(dir.path()), {}) == 1);
}

TEST_CASE("checkpoint: single tensors can be read without a module") {
  test::TemporaryDirectory dir;
  const std::string path = dir / "a.lip";
  Run run;
  run.net.initialize(run.rng);
  run.train(2);
  save_checkpoint(path, run.net, run.parts());
  CheckpointReader file(path);
  CHECK(file.info().step == 2);
  CHECK(file.file_bytes() == static_cast<std::int64_t>(std::filesystem::file_size(path)));
  CHECK(bitwise_equal(file.read("a.weight"), run.net.a.weight.value()));
  CHECK(bitwise_equal(file.read("a.mean", TensorRole::buffer), run.net.a.mean.value()));
  CHECK(file.read("unused").shape() == Shape{2, 0});
  std::size_t parameters = 0;
  for (const auto& tensor : file.info().tensors) {
    const Tensor value = file.read(tensor);
    CHECK(value.shape() == tensor.shape);
    CHECK(value.dtype() == tensor.dtype);
    parameters += tensor.role == TensorRole::parameter;
  }
  CHECK(parameters == run.net.named_parameters().size());
  CHECK(error_of([&] { file.read("a.mean"); }) == path + ": it holds no parameter \"a.mean\"");
  // Another file's description is a name to look up, not an offset to follow.
  CheckpointInfo::TensorInfo other{"a.weight", TensorRole::parameter, f32, {1000000}, 1 << 30};
  CHECK(bitwise_equal(file.read(other), run.net.a.weight.value()));
  other.name = "no\nsuch";
  CHECK(error_of([&] { file.read(other); }) == path + ": it holds no parameter \"no\\x0asuch\"");
  CheckpointReader moved = std::move(file);
  CHECK(bitwise_equal(moved.read("b.bias"), run.net.b.bias.value()));
  CHECK_THROWS_AS(CheckpointReader(dir / "none.lip"), Error);
}

// The golden file of each released format: written once, by the case below, and kept.
namespace {

struct GoldenNet : Module {
  Parameter weight{*this, "weight", {2, 3}, normal};
  Parameter bias{*this, "bias", {3}, normal, f64};
  Buffer count{*this, "count", {}, 0, i64};
  Buffer mask{*this, "mask", {5}, 1, u8};
};

}  // namespace

TEST_CASE("checkpoint: write the golden file of format 1" * doctest::skip()) {
  GoldenNet net;
  net.weight.set_value(from_values<float>({2, 3}, {0.5F, -1.25F, 3.0F, 1e-30F, -0.0F, 7.0F}));
  net.bias.set_value(from_values<double>({3}, {0.1, -1e300, 5e-324}));
  net.count.mutable_data<std::int64_t>()[0] = -12345678901;
  Generator rng;
  rng.restore(0x0123456789abcdef, 77);
  Adam optimizer{net, {.lr = 0.25}};
  LrSchedule schedule{optimizer, linear_warmup({.steps = 4, .start_factor = 0.5})};
  net.weight.add_grad(ones({2, 3}));
  optimizer.step();
  schedule.step();
  net.weight.set_value(from_values<float>({2, 3}, {0.5F, -1.25F, 3.0F, 1e-30F, -0.0F, 7.0F}));
  save_checkpoint(test::golden("checkpoint/v1.lip"), net,
                  {.optimizer = &optimizer,
                   .schedule = &schedule,
                   .generator = &rng,
                   .step = 1,
                   .epoch = 3,
                   .config = "{\"model\":\"golden\"}",
                   .metadata = {{"dataset", "cora"}}});
}

TEST_CASE("checkpoint: files of format 1 can be read") {
  GoldenNet net;
  Generator rng;
  Adam optimizer{net};
  LrSchedule schedule{optimizer, linear_warmup({.steps = 4, .start_factor = 0.5})};
  const CheckpointInfo info =
      load_checkpoint(test::golden("checkpoint/v1.lip"), net,
                      {.optimizer = &optimizer, .schedule = &schedule, .generator = &rng})
          .info;
  CHECK(info.format == 1);
  CHECK(info.library_version == "0.1.0");
  CHECK(info.step == 1);
  CHECK(info.epoch == 3);
  CHECK(info.config == "{\"model\":\"golden\"}");
  CHECK(info.metadata.at("dataset") == "cora");
  CHECK(bitwise_equal(net.weight.value(),
                      from_values<float>({2, 3}, {0.5F, -1.25F, 3.0F, 1e-30F, -0.0F, 7.0F})));
  CHECK(bitwise_equal(net.bias.value(), from_values<double>({3}, {0.1, -1e300, 5e-324})));
  CHECK(net.count.value().data<std::int64_t>()[0] == -12345678901);
  CHECK(bitwise_equal(net.mask.value(), full({5}, 1, u8)));
  CHECK(rng.seed() == 0x0123456789abcdef);
  CHECK(rng.next_draw() == 77);
  CHECK(schedule.steps() == 1);
  CHECK(optimizer.lr() == 0.25 * 0.625);
  CHECK(optimizer.steps() == 1);
  const OptimizerState state = optimizer.state();
  CHECK(state.tensors.size() == 4);
  CHECK(state.tensors.at("weight/steps").item() == 1);
  CHECK(state.tensors.at("bias/steps").item() == 0);
  CHECK(bitwise_equal(state.tensors.at("weight/m"), full({2, 3}, 1 - 0.9)));
  CHECK(bitwise_equal(state.tensors.at("weight/v"), full({2, 3}, 1 - 0.999)));
}

}  // namespace lipgrad
