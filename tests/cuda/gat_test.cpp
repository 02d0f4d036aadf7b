#include <lipgrad/graph/kernels/gat.h>

#include <algorithm>
#include <random>
#include <utility>

#include "cuda/kernel_test.h"

namespace lipgrad {
namespace {

using test::DeviceVector;
using test::difference;

// Edges by target, and in reverse.
struct Edges {
  std::int64_t targets, sources;
  std::vector<std::int64_t> offsets, reverse_offsets, reverse_edge;
  std::vector<std::int32_t> source, reverse_target;

  Edges(std::int64_t targets_in, std::int64_t sources_in,
        std::vector<std::pair<std::int32_t, std::int32_t>> pairs)  // (target, source)
      : targets(targets_in), sources(sources_in) {
    std::sort(pairs.begin(), pairs.end());
    offsets.assign(targets + 1, 0);
    reverse_offsets.assign(sources + 1, 0);
    for (const auto& [i, j] : pairs) ++offsets[i + 1], ++reverse_offsets[j + 1];
    for (std::int64_t i = 0; i < targets; ++i) offsets[i + 1] += offsets[i];
    for (std::int64_t j = 0; j < sources; ++j) reverse_offsets[j + 1] += reverse_offsets[j];
    auto next = reverse_offsets;
    reverse_target.resize(pairs.size());
    reverse_edge.resize(pairs.size());
    for (std::size_t e = 0; e < pairs.size(); ++e) {
      source.push_back(pairs[e].second);
      const std::int64_t at = next[pairs[e].second]++;
      reverse_target[at] = pairs[e].first;
      reverse_edge[at] = static_cast<std::int64_t>(e);
    }
  }
  std::int64_t count() const { return static_cast<std::int64_t>(source.size()); }
};

// Isolated nodes, duplicate edges, self-loops; hub > 0: a target and a source of that many edges.
Edges random_edges(std::int64_t targets, std::int64_t sources, std::int64_t edges,
                   std::int64_t hub) {
  std::mt19937 rng(3);
  std::vector<std::pair<std::int32_t, std::int32_t>> pairs;
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int32_t>(rng() % static_cast<std::uint64_t>(n));
  };
  while (static_cast<std::int64_t>(pairs.size()) < edges) {
    const std::int32_t i = below(targets), j = below(sources);
    if (i % 7 == 3 || j % 11 == 5) continue;
    pairs.emplace_back(i, j);
    if (below(6) == 0) pairs.emplace_back(i, j);
    if (below(6) == 0) pairs.emplace_back(i, i);
  }
  for (std::int64_t k = 0; k < hub; ++k) {
    pairs.emplace_back(targets / 2, below(sources));
    pairs.emplace_back(below(targets), 1);
  }
  return Edges(targets, sources, pairs);
}

// Arrays of the CPU, with what DeviceVector has.
template <class T>
class HostVector {
 public:
  HostVector(std::vector<T> values, std::int64_t = 0) : values_(std::move(values)) {}
  T* data() { return values_.data(); }
  const T* read() const { return values_.data(); }
  std::vector<T> host() const { return values_; }

 private:
  std::vector<T> values_;
};

struct OnCpu {
  template <class T>
  using Vector = HostVector<T>;
};
struct OnCuda {
  template <class T>
  using Vector = DeviceVector<T>;
};
#define CALL(kernel, ...)                        \
  do {                                           \
    if constexpr (std::is_same_v<Where, OnCuda>) \
      cuda::kernel(__VA_ARGS__);                 \
    else                                         \
      cpu::kernel(__VA_ARGS__);                  \
  } while (false)

struct Case {
  std::int64_t heads, features;
  bool self_loops = true, mean_heads = false, dropout = false, bias = true;
  const GatNormForm* norm = nullptr;
  std::int64_t shift = 0;  // of the arrays behind aligned addresses
};

template <class T>
struct Input {
  std::vector<T> z, a_src, a_dst, bias, grad_out;

  Input(const Edges& edges, const Case& c) {
    const std::int64_t row = c.heads * c.features, width = c.mean_heads ? c.features : row;
    const double a = 1.5 / std::sqrt(double(c.features));
    z = random_values<T>(edges.sources * row, 1, -1.5, 1.5);
    a_src = random_values<T>(row, 2, -a, a);
    a_dst = random_values<T>(row, 3, -a, a);
    bias = random_values<T>(width, 4, -1, 1);
    grad_out = random_values<T>(edges.targets * width, 5, -1, 1);
  }
};

// What the kernels leave, by name.
template <class T>
using Result = std::vector<std::pair<const char*, std::vector<T>>>;

template <class Where, class T>
Result<T> run(const Edges& edges, const Case& c, const Input<T>& x) {
  const std::int64_t h = c.heads, d = c.features, m = edges.targets, n = edges.sources;
  const std::int64_t width = c.mean_heads ? d : h * d;
  const T nan = std::numeric_limits<T>::quiet_NaN();
  const auto fresh = [&](std::int64_t size) {
    return typename Where::template Vector<T>(std::vector<T>(size, nan), c.shift);
  };
  using Index64 = typename Where::template Vector<std::int64_t>;
  using Index32 = typename Where::template Vector<std::int32_t>;
  using Real = typename Where::template Vector<T>;
  const Index64 offsets(edges.offsets), reverse_offsets(edges.reverse_offsets),
      reverse_edge(edges.reverse_edge);
  const Index32 source(edges.source), reverse_target(edges.reverse_target);
  const GatGraph graph{m,
                       n,
                       edges.count(),
                       offsets.read(),
                       source.read(),
                       reverse_offsets.read(),
                       reverse_target.read(),
                       reverse_edge.read()};
  GatForm form{h, d, 0.2, c.self_loops, c.mean_heads};
  const std::int64_t items = edges.count() + (c.self_loops ? m : 0);
  typename Where::template Vector<std::uint8_t> keep(
      std::vector<std::uint8_t>(items * ((h + 7) / 8), 0xAA));
  if (c.dropout) {
    CALL(gat_keep, items, h, 0.6, 5, 9, keep.data());
    form.keep = keep.read();
    form.keep_scale = 2.5;
  }
  const Real z(x.z, c.shift), a_src(x.a_src, c.shift), a_dst(x.a_dst, c.shift),
      bias(x.bias, c.shift), grad_out(x.grad_out, c.shift);
  Real s_src = fresh(n * h), stats = fresh(m * 3 * h), squares = fresh(n * h),
       out = fresh(m * width), target = fresh(m * h), factor = fresh(h),
       grad_stats = fresh(m * 2 * h), grad_norm = fresh(m * 2 * h), grad_bias = fresh(width),
       z_factor = fresh(n * h), a_factor = fresh(h), grad_z = fresh(n * h * d),
       grad_a_src = fresh(h * d), grad_a_dst = fresh(h * d);
  Index32 argmax(std::vector<std::int32_t>(m * h, -7));
  GatNorm<T> norm;
  CALL(gat_scores<T>, n, m, h, d, z.read(), a_src.read(), a_dst.read(), s_src.data(), stats.data(),
       c.norm ? squares.data() : nullptr);
  if (c.norm) {
    CALL(gat_norm<T>, graph, form, *c.norm, a_src.read(), a_dst.read(), squares.data(),
         target.data(), argmax.data(), factor.data());
    norm = {target.read(), c.norm->centre ? nullptr : squares.read(), 1e-2};
  }
  CALL(gat_forward<T>, graph, form, norm, z.read(), s_src.read(), c.bias ? bias.read() : nullptr,
       stats.data(), out.data());
  CALL(gat_backward_targets<T>, graph, form, norm, z.read(), s_src.read(), stats.read(),
       grad_out.read(), grad_stats.data(), c.norm ? grad_norm.data() : nullptr,
       c.bias ? grad_bias.data() : nullptr);
  if (c.norm)
    CALL(gat_norm_backward<T>, graph, form, *c.norm, argmax.read(), factor.read(), grad_norm.read(),
         z_factor.data(), a_factor.data());
  CALL(gat_backward_sources<T>, graph, form, norm, factor.read(), z_factor.read(), a_factor.read(),
       z.read(), s_src.read(), stats.read(), grad_stats.read(), grad_out.read(), a_src.read(),
       a_dst.read(), grad_z.data(), grad_a_src.data(), grad_a_dst.data());

  Result<T> r;
  const std::vector<std::uint8_t> bits = keep.host();
  r.emplace_back("keep", std::vector<T>(bits.begin(), bits.end()));
  const std::vector<std::int32_t> best = argmax.host();
  r.emplace_back("argmax", std::vector<T>(best.begin(), best.end()));
  r.emplace_back("s_src", s_src.host());
  r.emplace_back("squares", squares.host());
  r.emplace_back("target", target.host());
  r.emplace_back("factor", factor.host());
  r.emplace_back("stats", stats.host());
  r.emplace_back("out", out.host());
  r.emplace_back("grad_stats", grad_stats.host());
  r.emplace_back("grad_norm", grad_norm.host());
  r.emplace_back("grad_bias", grad_bias.host());
  r.emplace_back("z_factor", z_factor.host());
  r.emplace_back("a_factor", a_factor.host());
  r.emplace_back("grad_z", grad_z.host());
  r.emplace_back("grad_a_src", grad_a_src.host());
  r.emplace_back("grad_a_dst", grad_a_dst.host());
  return r;
}

// With a small number behind them: what is zero but for rounding may differ.
template <class T>
std::vector<T> floored(std::vector<T> values) {
  values.push_back(T(1e-3));
  return values;
}

template <class T>
void check(const Edges& edges, const Case& c) {
  CAPTURE(c.heads);
  CAPTURE(c.features);
  CAPTURE(c.self_loops);
  CAPTURE(c.mean_heads);
  CAPTURE(c.dropout);
  CAPTURE((c.norm != nullptr));
  CAPTURE(c.shift);
  CAPTURE(sizeof(T));
  const Input<T> x(edges, c);
  const Result<T> expected = run<OnCpu>(edges, c, x), got = run<OnCuda>(edges, c, x);
  for (std::size_t k = 0; k < got.size(); ++k) {
    CAPTURE(std::string(got[k].first));
    // Gradients through scores cancel: they are differences of numbers of order one.
    const double tolerance = sizeof(T) == 8 ? 1e-10 : k <= 7 ? 1e-5 : c.norm ? 2e-4 : 5e-5;
    CHECK(difference(floored(got[k].second), floored(expected[k].second)) <= tolerance);
  }
}

}  // namespace

TEST_CASE("gat: all passes, against the CPU") {
  if (!test::with_cuda()) return;
  const Edges edges = random_edges(23, 29, 90, 0);
  const GatNormForm centre{true, false, 0.3}, code{false, true, 0.3};
  const std::vector<std::pair<int, int>> shapes{{1, 1},   {1, 7},   {8, 8},   {4, 32},
                                                {3, 50},  {2, 300}, {16, 64}, {40, 3},
                                                {1, 520}, {9, 4},   {70, 1},  {2, 96}};
  for (const auto& [heads, features] : shapes) {
    for (int variant = 0; variant < 8; ++variant) {
      Case c{heads, features};
      c.self_loops = variant % 2 == 0;
      c.mean_heads = variant % 4 >= 2;
      c.dropout = variant >= 3;
      c.bias = variant != 6;
      c.norm = variant < 2 ? nullptr : variant % 3 == 0 ? &centre : &code;
      c.shift = variant == 5;
      if ((variant + heads) % 2 == 0)
        check<double>(edges, c);
      else
        check<float>(edges, c);
    }
  }
}

TEST_CASE("gat: hubs") {
  if (!test::with_cuda()) return;
  const Edges edges = random_edges(60, 70, 300, 5000);
  const GatNormForm centre{true, true, 0.3}, code{false, false, 0.3};
  const std::vector<std::pair<int, int>> shapes{{1, 7}, {8, 8}, {3, 50}, {1, 300}, {40, 3}};
  for (const auto& [heads, features] : shapes) {
    for (int variant = 0; variant < 4; ++variant) {
      Case c{heads, features};
      c.self_loops = variant % 2 == 0;
      c.mean_heads = variant >= 2;
      c.dropout = variant == 1 || variant == 2;
      c.norm = variant == 0 ? nullptr : variant == 1 ? &code : &centre;
      if ((variant + heads) % 2 == 0)
        check<double>(edges, c);
      else
        check<float>(edges, c);
    }
  }
}

TEST_CASE("gat: rows as long as a piece, hubs that end where pieces do") {
  if (!test::with_cuda()) return;
  std::vector<std::pair<std::int32_t, std::int32_t>> pairs;
  const int counts[] = {256, 257, 0, 255, 512, 300, 0, 300, 1};
  for (std::int32_t i = 0; i < 9; ++i)
    for (int k = 0; k < counts[i]; ++k) pairs.emplace_back(i, (k * 7 + i) % 11);
  const Edges edges(9, 11, pairs);
  const GatNormForm code{false, false, 0.5};
  for (const bool loops : {false, true}) {
    Case c{2, 12, loops};
    check<double>(edges, c);
    c.norm = &code;
    check<double>(edges, c);
    c.mean_heads = true;
    check<float>(edges, c);
  }
}

TEST_CASE("gat: the same bits again") {
  if (!test::with_cuda()) return;
  const Edges edges = random_edges(60, 70, 300, 700);
  const GatNormForm code{false, false, 0.3};
  Case c{4, 12, true, false, true, true, &code};
  const Input<float> x(edges, c);
  const auto one = run<OnCuda>(edges, c, x), two = run<OnCuda>(edges, c, x);
  for (std::size_t k = 0; k < one.size(); ++k) {
    CAPTURE(std::string(one[k].first));
    CHECK(same_bits(one[k].second, two[k].second));
  }
}

TEST_CASE("gat: graphs without edges, without nodes") {
  if (!test::with_cuda()) return;
  const GatNormForm centre{true, false, 4};
  for (const std::int64_t nodes : {0, 5}) {
    for (const bool loops : {false, true}) {
      Case c{3, 6, loops, false, false, true, &centre};
      check<double>(Edges(nodes, nodes, {}), c);
      c.mean_heads = true;
      check<float>(Edges(nodes, nodes, {}), c);
    }
  }
}

TEST_CASE("gat_norm: of equal squares the lowest node, of none that is equal the first") {
  if (!test::with_cuda()) return;
  const Edges edges = random_edges(30, 33, 150, 600);
  const std::int64_t heads = 3;
  std::vector<double> squares = random_values<double>(33 * heads, 6, 0, 3);
  for (double& s : squares) s = std::floor(s);
  squares[5] = squares[28] = squares[1 * heads] = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> a(heads * 4, 0.5);
  for (const bool loops : {false, true}) {
    const GatNormForm norm{true, false, 1};
    const auto run_on = [&](auto where) {
      using Where = decltype(where);
      const typename Where::template Vector<std::int64_t> offsets(edges.offsets);
      const typename Where::template Vector<std::int32_t> source(edges.source);
      const typename Where::template Vector<double> vectors(a);
      typename Where::template Vector<double> square(squares),
          target(std::vector<double>(30 * heads)), factor(std::vector<double>(heads, 0.0));
      typename Where::template Vector<std::int32_t> argmax(std::vector<std::int32_t>(30 * heads));
      GatGraph graph;
      graph.targets = 30;
      graph.sources = 33;
      graph.edges = edges.count();
      graph.offsets = offsets.read();
      graph.source = source.read();
      CALL(gat_norm<double>, graph, (GatForm{heads, 4, 0.2, loops}), norm, vectors.read(),
           vectors.read(), square.data(), target.data(), argmax.data(), factor.data());
      return std::pair{target.host(), argmax.host()};
    };
    const auto expected = run_on(OnCpu()), got = run_on(OnCuda());
    CHECK(got.second == expected.second);
    CHECK(difference(got.first, expected.first) == 0);
  }
}

}  // namespace lipgrad
