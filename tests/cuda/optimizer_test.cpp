#include <lipgrad/ops/kernels/optimizer.h>

#include <functional>
#include <memory>

#include <lipgrad/core/module.h>
#include <lipgrad/ops/clip_grad.h>
#include <lipgrad/ops/optimizers.h>

#include "cuda/kernel_test.h"

namespace lipgrad {
namespace {

using test::DeviceVector;
using test::difference;

const std::vector<std::int64_t> sizes = {3, 0, 10000, 17, 4096, 4097, 1, 130};

// The same list of tensors on both sides; every second one does not begin at 16 bytes.
template <class T>
struct Lists {
  std::vector<std::vector<T>> host;
  std::vector<DeviceVector<T>> device;
  Lists(std::uint32_t seed, double low, double high) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      host.push_back(random_values<T>(sizes[i], seed + static_cast<std::uint32_t>(i), low, high));
      device.emplace_back(host[i], i % 2);
    }
  }
  void check(double limit) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      CAPTURE(i);
      CHECK(difference(device[i].host(), host[i]) <= limit);
    }
  }
};

template <class T>
void check_sgd(SgdRule rule, double decay) {
  Lists<T> p(1, -3, 3), m(100, 0, 0);
  for (std::uint32_t step = 0; step < 3; ++step) {
    Lists<T> g(1000 * (step + 1), -1, 1);
    std::vector<SgdTensor<T>> host, device;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const bool momentum = rule.momentum != 0;
      const double lr = 0.1 + 0.01 * static_cast<double>(i);
      host.push_back({sizes[i], p.host[i].data(), g.host[i].data(),
                      momentum ? m.host[i].data() : nullptr, lr, decay});
      device.push_back({sizes[i], p.device[i].data(), g.device[i].read(),
                        momentum ? m.device[i].data() : nullptr, lr, decay});
    }
    const auto count = static_cast<std::int64_t>(host.size());
    cpu::sgd(count, host.data(), rule);
    cuda::sgd(count, device.data(), rule);
  }
  p.check(sizeof(T) == 4 ? 1e-6 : 1e-12);
  m.check(sizeof(T) == 4 ? 1e-6 : 1e-12);
}

template <class T>
void check_adam(AdamRule rule, double decay) {
  Lists<T> p(1, -3, 3), m(100, 0, 0), v(200, 0, 0);
  for (std::uint32_t step = 1; step <= 3; ++step) {
    Lists<T> g(1000 * step, -1, 1);
    std::vector<AdamTensor<T>> host, device;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const double lr = 0.1 + 0.01 * static_cast<double>(i);
      host.push_back({sizes[i], p.host[i].data(), g.host[i].data(), m.host[i].data(),
                      v.host[i].data(), lr, decay, step});
      device.push_back({sizes[i], p.device[i].data(), g.device[i].read(), m.device[i].data(),
                        v.device[i].data(), lr, decay, step});
    }
    const auto count = static_cast<std::int64_t>(host.size());
    cpu::adam(count, host.data(), rule);
    cuda::adam(count, device.data(), rule);
  }
  p.check(sizeof(T) == 4 ? 1e-6 : 1e-12);
  m.check(sizeof(T) == 4 ? 1e-6 : 1e-12);
  v.check(sizeof(T) == 4 ? 1e-6 : 1e-12);
}

template <class T>
void check_squares() {
  Lists<T> x(5, -1e3, 1e3);
  std::vector<const T*> host, device;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    host.push_back(x.host[i].data());
    device.push_back(x.device[i].read());
  }
  const auto count = static_cast<std::int64_t>(sizes.size());
  std::vector<double> sums(count);
  DeviceVector<double> got(count), again(count);
  cpu::sums_of_squares(count, sizes.data(), host.data(), sums.data());
  cuda::sums_of_squares(count, sizes.data(), device.data(), got.data());
  const std::vector<double> values = got.host();
  for (std::int64_t i = 0; i < count; ++i) CHECK(std::abs(values[i] - sums[i]) <= 1e-14 * sums[i]);
  for (std::size_t i = 0; i < sizes.size(); ++i)  // the same at other addresses
    x.device[i] = DeviceVector<T>(x.host[i], (i + 1) % 2);
  for (std::size_t i = 0; i < sizes.size(); ++i) device[i] = x.device[i].read();
  cuda::sums_of_squares(count, sizes.data(), device.data(), again.data());
  CHECK(same_bits(values, again.host()));
}

void fill_ones(Tensor& x, Generator&) { x = ones(x.shape(), x.dtype()); }

struct Net : Module {
  explicit Net(DType dtype) : dtype_(dtype) {}
  DType dtype_;
  Parameter a{*this, "a", {30, 7}, fill_ones, dtype_};
  Parameter b{*this, "b", {7}, fill_ones, dtype_};
  Parameter c{*this, "c", {5000}, fill_ones, dtype_};
};

Tensor gradient(const Parameter& p, std::uint32_t seed) {
  return from_vector(p.shape(), random_values<double>(p.numel(), seed)).to(p.dtype());
}

void add_gradients(Module& net, std::uint32_t seed, Device device) {
  for (auto& [path, parameter] : net.named_parameters())
    parameter->add_grad(gradient(*parameter, seed++).to(device));
}

double worst(const Tensor& a, const Tensor& b) {
  return difference(a.to(cpu_device).to(f64).to_vector<double>(),
                    b.to(cpu_device).to(f64).to_vector<double>());
}

using Make = std::function<std::unique_ptr<Optimizer>(Module&)>;

// Steps on both sides, then the state goes to the other side and back.
void check_optimizer(const Make& make, DType dtype) {
  const double limit = dtype == f32 ? 1e-6 : 1e-12;
  Net host(dtype), device(dtype);
  Generator rng{1};
  host.initialize(rng);
  device.initialize(rng);
  device.to(cuda_device());
  const std::unique_ptr<Optimizer> on_host = make(host), on_device = make(device);
  const auto step = [&](std::uint32_t seed) {
    host.zero_grad();
    device.zero_grad();
    add_gradients(host, seed, cpu_device);
    add_gradients(device, seed, cuda_device());
    on_host->step();
    on_device->step();
  };
  const auto compare = [&] {
    const auto one = host.named_parameters(), two = device.named_parameters();
    for (std::size_t i = 0; i < one.size(); ++i) {
      CHECK(two[i].second->value().device() == cuda_device());
      CHECK(worst(two[i].second->value(), one[i].second->value()) <= limit);
    }
    const OptimizerState a = on_host->state(), b = on_device->state();
    for (const auto& [name, tensor] : a.tensors) {
      CAPTURE(name);
      CHECK(worst(b.tensors.at(name), tensor) <= limit);
      const bool counter = name.find("/steps") != std::string::npos;
      CHECK(b.tensors.at(name).device() == (counter ? cpu_device : cuda_device()));
    }
  };
  for (std::uint32_t seed : {10, 20, 30}) step(seed);
  compare();
  // What was on the CPU goes to the device: from there on both do the same again.
  on_device->load_state(on_host->state());
  for (auto& [path, parameter] : device.named_parameters())
    for (auto& [other, source] : host.named_parameters())
      if (path == other) parameter->set_value(source->value().clone().to(cuda_device()));
  step(40);
  compare();
  on_host->load_state(on_device->state());
  for (const auto& [name, tensor] : on_host->state().tensors) CHECK(tensor.device() == cpu_device);
}

}  // namespace

TEST_CASE("optimizer: many tensors of odd sizes and alignments in one launch") {
  if (!test::with_cuda()) return;
  for (const SgdRule& rule : {SgdRule{}, SgdRule{0.9, false}, SgdRule{0.9, true}}) {
    for (const double decay : {0.0, 0.01}) {
      check_sgd<float>(rule, decay);
      check_sgd<double>(rule, decay);
    }
  }
  for (const AdamRule& rule : {AdamRule{}, AdamRule{0.8, 0.95, 1e-6, true}}) {
    for (const double decay : {0.0, 0.05}) {
      check_adam<float>(rule, decay);
      check_adam<double>(rule, decay);
    }
  }
  cuda::sgd<float>(0, nullptr, {});
  cuda::adam<float>(0, nullptr, {});
}

TEST_CASE("optimizer: sums of squares are those of the CPU, the same at any alignment") {
  if (!test::with_cuda()) return;
  check_squares<float>();
  check_squares<double>();
}

TEST_CASE("optimizer: steps equal the CPU's, and states go from device to device") {
  if (!test::with_cuda()) return;
  for (const DType dtype : {f32, f64}) {
    check_optimizer([](Module& m) { return std::make_unique<Sgd>(m, SgdOptions{.lr = 0.1}); },
                    dtype);
    check_optimizer(
        [](Module& m) {
          return std::make_unique<Sgd>(
              m, SgdOptions{.lr = 0.1, .momentum = 0.9, .nesterov = true, .weight_decay = 0.1});
        },
        dtype);
    check_optimizer(
        [](Module& m) {
          return std::make_unique<Adam>(m, AdamOptions{.lr = 0.1, .weight_decay = 0.1});
        },
        dtype);
    check_optimizer(
        [](Module& m) {
          return std::make_unique<AdamW>(m, AdamWOptions{.groups = {no_decay_on_vectors()}});
        },
        dtype);
  }
}

TEST_CASE("clip_grad: norms and clipping equal the CPU's") {
  if (!test::with_cuda()) return;
  for (const DType dtype : {f32, f64}) {
    Net host(dtype), device(dtype);
    Generator rng{1};
    host.initialize(rng);
    device.initialize(rng);
    device.to(cuda_device());
    const auto reset = [&] {
      host.zero_grad();
      device.zero_grad();
      add_gradients(host, 7, cpu_device);
      add_gradients(device, 7, cuda_device());
    };
    const auto compare = [&](double limit) {
      const auto one = host.named_parameters(), two = device.named_parameters();
      for (std::size_t i = 0; i < one.size(); ++i)
        CHECK(worst(two[i].second->grad(), one[i].second->grad()) <= limit);
    };
    reset();
    const GradNorms a = grad_norms(host), b = grad_norms(device);
    CHECK(std::abs(a.total - b.total) <= 1e-14 * a.total);
    REQUIRE(b.parameters.size() == 3);
    for (int i = 0; i < 3; ++i) {
      CHECK(a.parameters[i].first == b.parameters[i].first);
      CHECK(std::abs(a.parameters[i].second - b.parameters[i].second) <= 1e-14 * a.total);
    }
    CHECK(clip_grad_norm(device, 0.5) == doctest::Approx(clip_grad_norm(host, 0.5)));
    compare(dtype == f32 ? 1e-6 : 1e-14);
    CHECK(grad_norm(device) == doctest::Approx(0.5));
    reset();
    clip_grad_value(host, 1.25);
    clip_grad_value(device, 1.25);
    compare(0);
    reset();
    device.b.mutable_grad() = full({7}, std::nan(""), dtype, cuda_device());
    const Tensor before = device.c.grad().clone();
    CHECK(std::isnan(clip_grad_norm(device, 0.1)));
    CHECK(bitwise_equal(before, device.c.grad()));
  }
}

}  // namespace lipgrad
