#include <lipgrad/ops/elementwise.h>

#include "catalogue/catalogue.h"

namespace lipgrad::catalogue {
namespace {

using Make = std::function<std::vector<Tensor>(Generator&)>;

Make uniform(std::vector<Shape> shapes, double low, double high) {
  return [=](Generator& rng) {
    std::vector<Tensor> inputs;
    for (const Shape& shape : shapes) inputs.push_back(rand_uniform(shape, low, high, f64, rng));
    return inputs;
  };
}

// An op of one tensor, with inputs from [low, high).
void add_unary(Catalogue& c, const char* op, double low, double high,
               std::function<Tensor(const Tensor&)> f) {
  for (auto& [kind, shape] : std::vector<std::pair<const char*, Shape>>{
           {"normal", {3, 7}}, {"one row", {1, 5}}, {"empty", {0, 4}}, {"large", {40, 70}}})
    c.add(op, kind, uniform({shape}, low, high), [f](Inputs in) { return f(in[0]); });
}

// An op of two tensors.
void add_binary(Catalogue& c, const char* op, double low, double high,
                Tensor (*f)(const Tensor&, const Tensor&)) {
  struct Kind {
    const char* name;
    Shape a, b;
    bool zero = false;
  };
  for (const Kind& k : std::vector<Kind>{{"normal", {3, 4}, {3, 4}},
                                         {"one row", {1, 5}, {1, 5}},
                                         {"empty", {0, 4}, {0, 4}},
                                         {"no rows against a row", {0, 4}, {4}, true},
                                         {"row", {5, 3}, {3}},
                                         {"column", {5, 1}, {5, 3}},
                                         {"scalar", {5, 6}, {}},
                                         {"both broadcast", {4, 1, 3}, {2, 1}},
                                         {"large", {40, 60}, {60}}})
    c.add(op, k.name, uniform({k.a, k.b}, low, high), [f](Inputs in) { return f(in[0], in[1]); },
          {.zero_gradient = k.zero});
}

void add_where(Catalogue& c) {
  struct Kind {
    const char* name;
    Shape condition, a, b;
  };
  for (const Kind& k : std::vector<Kind>{{"normal", {3, 4}, {3, 4}, {3, 4}},
                                         {"one row", {1, 4}, {1, 4}, {1, 4}},
                                         {"empty", {0, 4}, {0, 4}, {0, 4}},
                                         {"all broadcast", {3, 1}, {4}, {2, 1, 1}}})
    c.add("where", k.name, uniform({k.a, k.b}, -2, 2), [k](Inputs in) {
      Tensor condition = zeros(k.condition, u8);
      for (std::int64_t i = 0; i < condition.numel(); i += 2)
        condition.mutable_data<std::uint8_t>()[i] = 1;
      return where(condition.to(in[0].device()), in[0], in[1]);
    });
}

}  // namespace

void add_elementwise(Catalogue& c) {
  add_unary(c, "neg", -2, 2, [](const Tensor& x) { return neg(x); });
  add_unary(c, "exp", -2, 2, [](const Tensor& x) { return exp(x); });
  add_unary(c, "log", 0.5, 4, [](const Tensor& x) { return log(x); });
  add_unary(c, "sqrt", 0.5, 4, [](const Tensor& x) { return sqrt(x); });
  add_unary(c, "abs", -2, 2, [](const Tensor& x) { return abs(x); });
  add_unary(c, "square", -2, 2, [](const Tensor& x) { return square(x); });
  add_unary(c, "reciprocal", 0.5, 4, [](const Tensor& x) { return reciprocal(x); });
  add_unary(c, "clamp", -2, 2, [](const Tensor& x) { return clamp(x, -0.5, 1); });
  add_binary(c, "add", -2, 2, add);
  add_binary(c, "sub", -2, 2, sub);
  add_binary(c, "mul", -2, 2, mul);
  add_binary(c, "div", 0.5, 3, div);
  add_binary(c, "pow", 0.5, 3, pow);
  add_binary(c, "minimum", -2, 2, minimum);
  add_binary(c, "maximum", -2, 2, maximum);
  // A number as one operand.
  const auto number = [&](const char* op, const char* kind,
                          std::function<Tensor(const Tensor&)> f) {
    c.add(op, kind, uniform({{3, 4}}, 0.5, 3), [f](Inputs in) { return f(in[0]); });
  };
  number("add", "number", [](const Tensor& x) { return x + 1.5; });
  number("sub", "number", [](const Tensor& x) { return x - 1.5; });
  number("sub", "number first", [](const Tensor& x) { return 1.5 - x; });
  number("mul", "number", [](const Tensor& x) { return x * -1.5; });
  number("div", "number", [](const Tensor& x) { return x / 1.5; });
  number("div", "number first", [](const Tensor& x) { return 1.5 / x; });
  number("pow", "number", [](const Tensor& x) { return pow(x, 2.5); });
  add_where(c);
}

}  // namespace lipgrad::catalogue
