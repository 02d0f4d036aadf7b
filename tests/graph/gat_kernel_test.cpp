#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include <lipgrad/core/philox.h>
#include <lipgrad/core/threads.h>
#include <lipgrad/graph/kernels/gat.h>

using namespace lipgrad;

namespace {

// Edges by target, and in reverse, on vectors.
struct Edges {
  std::int64_t targets = 0, sources = 0;
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
  GatGraph view() const {
    return {targets,
            sources,
            count(),
            offsets.data(),
            source.data(),
            reverse_offsets.data(),
            reverse_target.data(),
            reverse_edge.data()};
  }
};

// Isolated nodes, duplicate edges, self-loops, one target and one source that nearly all nodes
// touch.
Edges random_edges(std::int64_t targets, std::int64_t sources, std::int64_t edges, bool hubs,
                   std::mt19937& rng) {
  std::vector<std::pair<std::int32_t, std::int32_t>> pairs;
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int32_t>(rng() % static_cast<std::uint64_t>(n));
  };
  while (static_cast<std::int64_t>(pairs.size()) < edges) {
    const std::int32_t i = below(targets), j = below(sources);
    if (i % 7 == 3 || j % 11 == 5) continue;
    pairs.emplace_back(i, j);
    if (below(10) == 0) pairs.emplace_back(i, j);
    if (below(10) == 0) pairs.emplace_back(i, i);
    if (hubs && below(3) == 0) pairs.emplace_back(0, j);
    if (hubs && below(3) == 0) pairs.emplace_back(i, 1);
  }
  return Edges(targets, sources, pairs);
}

template <class T>
struct Layer {
  std::vector<T> z, a_src, a_dst, bias, grad_out;
};

template <class T>
struct Result {
  std::vector<T> out, s_src, stats, grad_stats, grad_bias, grad_z, grad_a_src, grad_a_dst;
};

template <class T>
Result<T> run(const Edges& edges, const GatForm& form, const Layer<T>& x,
              const GatNormForm* norm_form = nullptr, double eps = 1e-12) {
  const std::int64_t h = form.heads, d = form.features, n = edges.sources, m = edges.targets;
  const std::int64_t width = form.mean_heads ? d : h * d;
  Result<T> r;
  const T junk = std::numeric_limits<T>::quiet_NaN();
  r.out.assign(m * width, junk);
  r.s_src.assign(n * h, junk);
  r.stats.assign(m * 3 * h, junk);
  r.grad_stats.assign(m * 2 * h, junk);
  r.grad_bias.assign(width, junk);
  r.grad_z.assign(n * h * d, junk);
  r.grad_a_src.assign(h * d, junk);
  r.grad_a_dst.assign(h * d, junk);
  const GatGraph graph = edges.view();
  std::vector<T> squares(n * h, junk), target(m * h, junk), factor(h, junk), a_factor(h, junk),
      z_factor(n * h, junk), grad_norm(m * 2 * h, junk);
  std::vector<std::int32_t> argmax(norm_form && norm_form->global ? h : m * h, -7);
  GatNorm<T> norm;
  cpu::gat_scores(n, m, h, d, x.z.data(), x.a_src.data(), x.a_dst.data(), r.s_src.data(),
                  r.stats.data(), norm_form ? squares.data() : nullptr);
  if (norm_form) {
    cpu::gat_norm(graph, form, *norm_form, x.a_src.data(), x.a_dst.data(), squares.data(),
                  target.data(), argmax.data(), factor.data());
    norm = {target.data(), norm_form->centre ? nullptr : squares.data(), eps};
  }
  cpu::gat_forward(graph, form, norm, x.z.data(), r.s_src.data(),
                   x.bias.empty() ? nullptr : x.bias.data(), r.stats.data(), r.out.data());
  cpu::gat_backward_targets(graph, form, norm, x.z.data(), r.s_src.data(), r.stats.data(),
                            x.grad_out.data(), r.grad_stats.data(), grad_norm.data(),
                            x.bias.empty() ? nullptr : r.grad_bias.data());
  if (norm_form)
    cpu::gat_norm_backward(graph, form, *norm_form, argmax.data(), factor.data(), grad_norm.data(),
                           z_factor.data(), a_factor.data());
  cpu::gat_backward_sources(graph, form, norm, factor.data(), z_factor.data(), a_factor.data(),
                            x.z.data(), r.s_src.data(), r.stats.data(), r.grad_stats.data(),
                            x.grad_out.data(), x.a_src.data(), x.a_dst.data(), r.grad_z.data(),
                            r.grad_a_src.data(), r.grad_a_dst.data());
  return r;
}

// <out, grad_out> straight from the definition, in double; out too if asked for.
double naive(const Edges& edges, const GatForm& form, const Layer<double>& x,
             std::vector<double>* out = nullptr, const GatNormForm* norm_form = nullptr,
             double eps = 1e-12) {
  const std::int64_t h_count = form.heads, d = form.features,
                     width = form.mean_heads ? d : h_count * d;
  std::vector<double> y(edges.targets * width, 0.0);
  const std::int64_t bytes = (h_count + 7) / 8;
  const auto square = [&](std::int64_t node, std::int64_t h) {
    double s = 0;
    for (std::int64_t c = 0; c < d; ++c) {
      const double value = x.z[(node * h_count + h) * d + c];
      s += value * value;
    }
    return s;
  };
  std::vector<double> largest_of_all(h_count, 0.0);  // for each head
  for (std::int64_t j = 0; norm_form && norm_form->global && j < edges.sources; ++j) {
    for (std::int64_t h = 0; h < h_count; ++h)
      largest_of_all[h] = std::max(largest_of_all[h], square(j, h));
  }
  for (std::int64_t i = 0; i < edges.targets; ++i) {
    std::vector<std::pair<std::int64_t, std::int64_t>> row;  // source, edge
    for (std::int64_t e = edges.offsets[i]; e < edges.offsets[i + 1]; ++e) {
      if (!form.self_loops || edges.source[e] != i) row.emplace_back(edges.source[e], e);
    }
    if (form.self_loops) row.emplace_back(i, edges.count() + i);
    for (std::int64_t h = 0; h < h_count; ++h) {
      const auto dot = [&](const std::vector<double>& a, std::int64_t node) {
        double s = 0;
        for (std::int64_t c = 0; c < d; ++c) s += a[h * d + c] * x.z[(node * h_count + h) * d + c];
        return s;
      };
      double a_square = 0, largest = largest_of_all[h];
      for (std::int64_t c = 0; c < h_count * d; ++c) {
        if (norm_form && (norm_form->joint || c / d == h))
          a_square += x.a_src[c] * x.a_src[c] + x.a_dst[c] * x.a_dst[c];
      }
      for (const auto& [j, e] : row) largest = std::max(largest, square(j, h));
      std::vector<double> p;
      double sum = 0;
      for (const auto& [j, e] : row) {
        double score = dot(x.a_dst, i) + dot(x.a_src, j);
        if (norm_form) {
          const double r = std::sqrt(largest + square(norm_form->centre ? i : j, h));
          score /= norm_form->kappa * std::sqrt(a_square) * r + eps;
        }
        p.push_back(std::exp(score > 0 ? score : form.negative_slope * score));
        sum += p.back();
      }
      for (std::size_t k = 0; k < row.size(); ++k) {
        const auto [j, e] = row[k];
        double alpha = p[k] / sum;
        if (form.keep)
          alpha *= (form.keep[e * bytes + h / 8] >> (h % 8) & 1) ? form.keep_scale : 0.0;
        for (std::int64_t c = 0; c < d; ++c) {
          const double value = alpha * x.z[(j * h_count + h) * d + c];
          y[i * width + (form.mean_heads ? c : h * d + c)] +=
              form.mean_heads ? value / double(h_count) : value;
        }
      }
    }
    if (!x.bias.empty()) {
      for (std::int64_t c = 0; c < width; ++c) y[i * width + c] += x.bias[c];
    }
  }
  double total = 0;
  for (std::size_t k = 0; k < y.size(); ++k) total += y[k] * x.grad_out[k];
  if (out) *out = std::move(y);
  return total;
}

template <class T>
Layer<T> random_layer(const Edges& edges, const GatForm& form, bool bias, std::mt19937& rng) {
  std::normal_distribution<double> normal;
  const auto fill = [&](std::int64_t n, double scale) {
    std::vector<T> v(n);
    for (T& value : v) value = static_cast<T>(scale * normal(rng));
    return v;
  };
  const std::int64_t hd = form.heads * form.features, width = form.mean_heads ? form.features : hd;
  const double a = 1.5 / std::sqrt(double(form.features));
  return {fill(edges.sources * hd, 1), fill(hd, a), fill(hd, a),
          bias ? fill(width, 1) : std::vector<T>{}, fill(edges.targets * width, 1)};
}

template <class T>
double worst(const std::vector<T>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double error = 0, size = 1e-30;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double e = std::abs(double(a[i]) - b[i]);
    if (!(e <= error)) error = e;  // NaN too
    size = std::max(size, std::abs(b[i]));
  }
  return error / std::max(size, 1e-3);
}

template <class T, class U>
std::vector<U> cast(const std::vector<T>& v) {
  return std::vector<U>(v.begin(), v.end());
}

std::vector<std::uint8_t> draw_keep(const Edges& edges, std::int64_t heads, double p) {
  const std::int64_t items = edges.count() + edges.targets;
  std::vector<std::uint8_t> keep(items * ((heads + 7) / 8), 0xAA);
  cpu::gat_keep(items, heads, p, 5, 9, keep.data());
  return keep;
}

}  // namespace

TEST_CASE("gat kernels: forward is the definition, backward its finite differences") {
  std::mt19937 rng(3);
  for (const auto& [heads, features] : std::vector<std::pair<int, int>>{{1, 1},
                                                                        {1, 7},
                                                                        {8, 8},
                                                                        {3, 5},
                                                                        {4, 32},
                                                                        {2, 16},
                                                                        {9, 3},
                                                                        {1, 64},
                                                                        {2, 13},
                                                                        {16, 4},
                                                                        {5, 8},
                                                                        {1, 100}}) {
    for (int variant = 0; variant < 18; ++variant) {
      // Two thirds with a norm, the last third with global ones: a small kappa, so that it matters,
      // and a large eps.
      const GatNormForm some{variant % 3 != 1, variant % 3 == 2, 0.3, variant >= 12};
      const GatNormForm* norm = variant >= 6 ? &some : nullptr;
      const double eps = 1e-2;
      GatForm form{heads, features, variant == 3 ? 0.0 : 0.2, variant % 2 == 0, variant % 6 >= 4};
      const Edges edges = random_edges(23, 29, 90, variant % 6 == 1, rng);
      std::vector<std::uint8_t> keep;
      if (variant % 6 == 2 || variant % 6 == 5) {
        keep = draw_keep(edges, heads, 0.6);
        form.keep = keep.data();
        form.keep_scale = 2.5;
      }
      CAPTURE(heads);
      CAPTURE(features);
      CAPTURE(variant);
      const Layer<double> x = random_layer<double>(edges, form, variant != 3, rng);
      const Result<double> r = run(edges, form, x, norm, eps);
      std::vector<double> out;
      naive(edges, form, x, &out, norm, eps);
      CHECK(worst(r.out, out) < 1e-13);

      // A few directions and single elements of every input.
      std::normal_distribution<double> normal;
      const auto check = [&](const std::vector<double>& grad,
                             std::vector<double> Layer<double>::*input) {
        for (int trial = 0; trial < 4; ++trial) {
          Layer<double> plus = x, minus = x;
          double expected = 0;
          const std::size_t one = rng() % grad.size();
          for (std::size_t i = 0; i < grad.size(); ++i) {
            const double step = trial < 2 ? 1e-7 * normal(rng) : i == one ? 1e-6 : 0.0;
            (plus.*input)[i] += step;
            (minus.*input)[i] -= step;
            expected += 2 * step * grad[i];
          }
          const double found = naive(edges, form, plus, nullptr, norm, eps) -
                               naive(edges, form, minus, nullptr, norm, eps);
          CHECK(found == doctest::Approx(expected).epsilon(2e-4).scale(1e-6));
        }
      };
      check(r.grad_z, &Layer<double>::z);
      check(r.grad_a_src, &Layer<double>::a_src);
      check(r.grad_a_dst, &Layer<double>::a_dst);
      if (!x.bias.empty()) check(r.grad_bias, &Layer<double>::bias);

      // In float the same to its rounding.
      const Layer<float> xf{cast<double, float>(x.z), cast<double, float>(x.a_src),
                            cast<double, float>(x.a_dst), cast<double, float>(x.bias),
                            cast<double, float>(x.grad_out)};
      const Result<float> rf = run(edges, form, xf, norm, eps);
      // (What goes through a norm cancels: outputs do not depend on the size of a.)
      const double rounding = norm ? 2e-4 : 5e-5;
      CHECK(worst(rf.out, r.out) < 1e-5);
      CHECK(worst(rf.grad_z, r.grad_z) < rounding);
      CHECK(worst(rf.grad_a_src, r.grad_a_src) < rounding);
      CHECK(worst(rf.grad_a_dst, r.grad_a_dst) < rounding);
    }
  }
}

TEST_CASE("gat kernels: hubs are cut into pieces and give the same, on any number of threads") {
  std::mt19937 rng(11);
  for (const auto& [heads, features] :
       std::vector<std::pair<int, int>>{{1, 7}, {8, 8}, {3, 5}, {4, 160}}) {
    for (int variant = 0; variant < 6; ++variant) {
      const bool mean = variant % 2 == 1;
      const GatNormForm some{!mean, mean, 4, variant >= 4};
      const GatNormForm* norm = variant >= 2 ? &some : nullptr;
      const Edges edges = random_edges(2000, 2100, 9000, true, rng);  // hubs of some 3000 edges
      GatForm form{heads, features, 0.2, !mean, mean};
      const std::vector<std::uint8_t> keep = draw_keep(edges, heads, 0.3);
      form.keep = keep.data();
      form.keep_scale = 1 / 0.7;
      const Layer<float> x = random_layer<float>(edges, form, true, rng);
      const Layer<double> xd{cast<float, double>(x.z), cast<float, double>(x.a_src),
                             cast<float, double>(x.a_dst), cast<float, double>(x.bias),
                             cast<float, double>(x.grad_out)};
      std::vector<double> out;
      const double total = naive(edges, form, xd, &out, norm);
      CHECK(std::isfinite(total));

      const int before = num_threads();
      set_num_threads(1);
      const Result<float> one = run(edges, form, x, norm);
      const Result<double> exact = run(edges, form, xd, norm);
      CHECK(worst(exact.out, out) < 1e-12);
      CHECK(worst(one.out, out) < 1e-5);
      CHECK(worst(one.grad_z, exact.grad_z) < 2e-4);
      CHECK(worst(one.grad_a_src, exact.grad_a_src) < 2e-4);
      CHECK(worst(one.grad_a_dst, exact.grad_a_dst) < 2e-4);
      CHECK(worst(one.grad_bias, exact.grad_bias) < 2e-4);
      for (const int threads : {1, 2, 5}) {
        set_num_threads(threads);
        const Result<float> again = run(edges, form, x, norm);
        const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
          return a.size() == b.size() &&
                 std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
        };
        CHECK(same(again.out, one.out));
        CHECK(same(again.stats, one.stats));
        CHECK(same(again.grad_z, one.grad_z));
        CHECK(same(again.grad_a_src, one.grad_a_src));
        CHECK(same(again.grad_a_dst, one.grad_a_dst));
        CHECK(same(again.grad_bias, one.grad_bias));
      }
      set_num_threads(before);
    }
  }
}

TEST_CASE("gat kernels: a target without edges is zero with zero gradient") {
  std::mt19937 rng(2);
  const Edges edges(6, 6, {{0, 1}, {0, 2}, {3, 0}});
  GatForm form{2, 9, 0.2, false, false};
  const Layer<float> x = random_layer<float>(edges, form, false, rng);
  const Result<float> r = run(edges, form, x);
  for (const std::int64_t i : {1, 2, 4, 5}) {
    for (std::int64_t c = 0; c < 18; ++c) CHECK(r.out[i * 18 + c] == 0);
    for (std::int64_t h = 0; h < 4; ++h) CHECK(r.grad_stats[i * 4 + h] == 0);
  }
  for (const std::int64_t j : {4, 5}) {  // neither source nor target
    for (std::int64_t c = 0; c < 18; ++c) CHECK(r.grad_z[j * 18 + c] == 0);
  }
  // No edge at all, and no node at all.
  const Edges none(4, 4, {}), nobody(0, 0, {});
  const Result<float> empty = run(none, form, random_layer<float>(none, form, true, rng));
  for (const float g : empty.grad_z) CHECK(g == 0);
  for (const float g : empty.grad_a_src) CHECK(g == 0);
  const Result<float> void_result = run(nobody, form, random_layer<float>(nobody, form, true, rng));
  for (const float g : void_result.grad_bias) CHECK(g == 0);
}

TEST_CASE("gat kernels: scores far out of range of exp") {
  std::mt19937 rng(5);
  const Edges edges = random_edges(40, 40, 300, true, rng);
  GatForm form{2, 8};
  Layer<float> x = random_layer<float>(edges, form, true, rng);
  for (float& a : x.a_src) a *= 1000;
  const Layer<double> xd{cast<float, double>(x.z), cast<float, double>(x.a_src),
                         cast<float, double>(x.a_dst), cast<float, double>(x.bias),
                         cast<float, double>(x.grad_out)};
  const Result<float> r = run(edges, form, x);
  const Result<double> rd = run(edges, form, xd);
  CHECK(worst(r.out, rd.out) < 1e-2);  // scores of 1e4 carry errors of 1e-3
  for (const float g : r.grad_z) CHECK(std::isfinite(g));
}

TEST_CASE("gat_keep: bits of Philox words, at the rate asked for") {
  for (const std::int64_t heads : {1, 2, 3, 4, 8, 9, 16}) {
    const std::int64_t edges = 5003, bytes = (heads + 7) / 8;
    std::vector<std::uint8_t> keep(edges * bytes);
    cpu::gat_keep(edges, heads, 0.6, 77, 3, keep.data());
    std::int64_t kept = 0, wrong = 0;
    for (std::int64_t e = 0; e < edges; ++e) {
      for (std::int64_t h = 0; h < bytes * 8; ++h) {
        const bool bit = keep[e * bytes + h / 8] >> (h % 8) & 1;
        kept += bit;
        const bool expected =
            h < heads &&
            unit_float(philox_word(77, 3, static_cast<std::uint64_t>(e * heads + h))) >= 0.6;
        wrong += bit != expected;
      }
    }
    CHECK(wrong == 0);
    CHECK(double(kept) / double(edges * heads) == doctest::Approx(0.4).epsilon(0.03));
  }
}
