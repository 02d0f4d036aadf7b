#include <lipgrad/ops/conv2d.h>

#include <doctest/doctest.h>

#include <lipgrad/core/error.h>
#include <lipgrad/core/npz.h>
#include <lipgrad/core/random.h>
#include <lipgrad/core/tape.h>
#include <lipgrad/core/threads.h>
#include <lipgrad/ops/linear.h>
#include <lipgrad/ops/shape.h>

#include <support/data.h>
#include <support/tensors.h>

namespace lipgrad {
namespace {

using test::distance;

// The formula, pixel by pixel.
Tensor by_hand(const Tensor& x, const Tensor& w, const Conv2dOptions& o) {
  const std::int64_t h = (x.size(1) + 2 * o.padding.height - w.size(2)) / o.stride.height + 1,
                     wide = (x.size(2) + 2 * o.padding.width - w.size(3)) / o.stride.width + 1,
                     out = w.size(0), in = w.size(1), each = out / o.groups;
  Tensor y = zeros({x.size(0), h, wide, out}, f64);
  double* to = y.mutable_data<double>();
  for (std::int64_t b = 0; b < x.size(0); ++b)
    for (std::int64_t i = 0; i < h; ++i)
      for (std::int64_t j = 0; j < wide; ++j)
        for (std::int64_t k = 0; k < out; ++k, ++to)
          for (std::int64_t u = 0; u < w.size(2); ++u)
            for (std::int64_t v = 0; v < w.size(3); ++v) {
              const std::int64_t iy = i * o.stride.height - o.padding.height + u,
                                 ix = j * o.stride.width - o.padding.width + v;
              if (iy < 0 || iy >= x.size(1) || ix < 0 || ix >= x.size(2)) continue;
              for (std::int64_t c = 0; c < in; ++c)
                *to += w.data<double>()[((k * in + c) * w.size(2) + u) * w.size(3) + v] *
                       x.data<double>()[((b * x.size(1) + iy) * x.size(2) + ix) * x.size(3) +
                                        k / each * in + c];
            }
  return y;
}

}  // namespace

TEST_CASE("conv2d: what PyTorch gives") {
  const auto golden = load_npz(test::golden("conv2d/torch.npz"));
  for (const char* name : {"dense", "strides", "groups", "patches", "pointwise", "depthwise7",
                           "depthwise5", "depthwise3", "depthwise_strides"}) {
    CAPTURE(name);
    const auto at = [&](const char* key) { return golden.at(std::string(name) + "." + key); };
    const std::vector<std::int64_t> o = at("options").to_vector<std::int64_t>();
    const Conv2dOptions options{.stride = {o[0], o[1]}, .padding = {o[2], o[3]}, .groups = o[4]};
    Tape tape;
    const Tensor x = tape.watch(at("x")), w = tape.watch(at("weight")), b = tape.watch(at("bias"));
    const Tensor y = conv2d(x, w, b, options);
    CHECK(distance(y, at("y")) <= 1e-13);
    const auto g = tape.grad(y, {x, w, b}, at("r"));
    CHECK(distance(g[0], at("gx")) <= 1e-13);
    CHECK(distance(g[1], at("gweight")) <= 1e-13);
    CHECK(distance(g[2], at("gbias")) <= 1e-13);
  }
}

TEST_CASE("conv2d: every length of rows and number of channels, depth-wise") {
  Generator rng{7};
  for (const std::int64_t kernel : {3, 5, 7}) {
    for (std::int64_t width = 1; width <= 18; ++width) {
      CAPTURE(kernel);
      CAPTURE(width);
      const std::int64_t channels = 2 + width * 3 % 20;
      const Conv2dOptions options{.padding = kernel / 2, .groups = channels};
      const Tensor x = randn({1, 3, width, channels}, f64, rng),
                   w = randn({channels, 1, kernel, kernel}, f64, rng);
      const Tensor y = by_hand(x, w, options);
      CHECK(distance(conv2d(x, w, {}, options), y) <= 1e-13);
      CHECK(distance(conv2d(x.to(f32), w.to(f32), {}, options).to(f64), y) <= 1e-5);
    }
  }
}

TEST_CASE("conv2d: the gradients are adjoint to the products, in blocks of images and of rows") {
  Generator rng{8};
  struct Case {
    Shape x, w;
    Conv2dOptions options;
  };
  const std::vector<Case> cases{{{3, 60, 60, 12}, {4, 12, 7, 7}, {.padding = 3}},
                                {{2, 71, 64, 10}, {3, 10, 7, 7}, {.stride = {3, 1}, .padding = 3}},
                                {{1, 150, 130, 8}, {6, 4, 9, 9}, {.stride = 2, .groups = 2}},
                                {{5, 17, 30, 24}, {24, 1, 7, 7}, {.padding = 3, .groups = 24}}};
  for (const Case& c : cases) {
    const Tensor x0 = randn(c.x, f64, rng), w0 = randn(c.w, f64, rng);
    Tape tape;
    const Tensor x = tape.watch(x0), w = tape.watch(w0);
    const Tensor y = conv2d(x, w, {}, c.options);
    const Tensor r = randn(y.shape(), f64, rng);
    const auto g = tape.grad(y, {x, w}, r);
    const auto dot = [](const Tensor& a, const Tensor& b) {
      double sum = 0;
      for (std::int64_t i = 0; i < a.numel(); ++i) sum += a.data<double>()[i] * b.data<double>()[i];
      return sum;
    };
    const double value = dot(y.detach(), r);
    CHECK(dot(g[0], x0) == doctest::Approx(value).epsilon(1e-11));
    CHECK(dot(g[1], w0) == doctest::Approx(value).epsilon(1e-11));
    CHECK(distance(y.detach(), by_hand(x0, w0, c.options)) <= 1e-13);
  }
}

TEST_CASE("conv2d: the same bits on any number of threads") {
  Generator rng{9};
  const Tensor x = randn({9, 20, 19, 130}, f32, rng), w = randn({130, 1, 7, 7}, f32, rng);
  const Tensor r = randn({9, 20, 19, 130}, f32, rng);
  std::vector<Tensor> first;
  const int before = num_threads();
  for (const int threads : {1, 2, 3}) {
    set_num_threads(threads);
    Tape tape;
    const Tensor u = tape.watch(x), v = tape.watch(w);
    const Tensor y = conv2d(u, v, {}, {.padding = 3, .groups = 130});
    std::vector<Tensor> all = tape.grad(y, {u, v}, r);
    all.push_back(y.detach());
    if (first.empty()) first = all;
    for (std::size_t i = 0; i < all.size(); ++i) CHECK(bitwise_equal(all[i], first[i]));
  }
  set_num_threads(before);
}

TEST_CASE("Conv2d: parameters by PyTorch's names and shapes") {
  struct Net : Module {
    Conv2d a{*this, "a", 6, 4, {3, 5}, {.padding = {1, 2}, .groups = 2}};
    Conv2d b{*this, "b", 4, 8, 1, {.bias = false}};
  } net;
  std::vector<std::pair<std::string, Shape>> found;
  for (const auto& [name, p] : net.named_parameters()) found.emplace_back(name, p->shape());
  const std::vector<std::pair<std::string, Shape>> expected{
      {"a.weight", {4, 3, 3, 5}}, {"a.bias", {4}}, {"b.weight", {8, 4, 1, 1}}};
  CHECK(found == expected);
  Generator rng{3};
  net.initialize(rng);
  for (const float v : net.a.weight.value().to_vector<float>())
    CHECK(std::abs(v) <= 1 / std::sqrt(45.f));
  for (const float v : net.a.bias->value().to_vector<float>())
    CHECK(std::abs(v) <= 1 / std::sqrt(45.f));
  const Tensor x = randn({2, 5, 7, 6}, f32, rng);
  CHECK(net.b.forward(net.a.forward(x)).shape() == Shape({2, 5, 7, 8}));
}

TEST_CASE("conv2d: errors say what does not fit") {
  const Tensor x = ones({2, 5, 6, 4});
  CHECK_THROWS_WITH_AS(conv2d(ones({5, 6, 4}), ones({3, 4, 3, 3})),
                       "conv2d: expects x of (B, H, W, C), got (5, 6, 4)", Error);
  CHECK_THROWS_WITH_AS(conv2d(x, ones({3, 3, 3, 3})),
                       "conv2d: x (2, 5, 6, 4) in 1 groups needs a weight of (out, 4, kh, kw), got "
                       "(3, 3, 3, 3)",
                       Error);
  CHECK_THROWS_WITH_AS(conv2d(x, ones({3, 4, 7, 3}), {}, {.padding = {0, 1}}),
                       "conv2d: a kernel of 7 x 3 is larger than the image of 5 x 6 with a padding "
                       "of 0 x 1",
                       Error);
  CHECK_THROWS_WITH_AS(conv2d(x, ones({3, 4, 3, 3}), ones({4})),
                       "conv2d: weight (3, 4, 3, 3) needs a bias of (3), got (4)", Error);
  CHECK_THROWS_WITH_AS(conv2d(x, ones({3, 2, 3, 3}), {}, {.groups = 3}),
                       "conv2d: 3 groups do not divide the 4 channels of x", Error);
  CHECK_THROWS_WITH_AS(conv2d(x, ones({3, 2, 3, 3}), {}, {.groups = 2}),
                       "conv2d: 2 groups do not divide the 3 channels of the result", Error);
  CHECK_THROWS_AS(conv2d(x, ones({3, 4, 3, 3}), {}, {.stride = 0}), Error);
  CHECK_THROWS_AS(conv2d(x, ones({3, 4, 3, 3}), {}, {.padding = -1}), Error);
  CHECK_THROWS_AS(conv2d(x, ones({3, 4, 3, 3}, f64)), Error);
  CHECK_THROWS_AS(conv2d(ones({2, 5, 6, 4}, i64), ones({3, 4, 3, 3}, i64)), Error);
  struct Net : Module {
  } net;
  CHECK_THROWS_WITH_AS((Conv2d{net, "c", 6, 4, 3, {.groups = 4}}),
                       "Conv2d: 4 groups do not divide 6 and 4 channels", Error);
  CHECK_THROWS_AS((Conv2d{net, "c", 0, 4, 3}), Error);
}

}  // namespace lipgrad
