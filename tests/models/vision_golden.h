#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <lipgrad/core/module.h>
#include <lipgrad/core/npz.h>
#include <lipgrad/core/tape.h>
#include <support/data.h>
#include <support/tensors.h>

// Reference vectors of tests/golden/vision_models.
namespace lipgrad::test {

using Golden = std::map<std::string, Tensor>;

inline Golden vision_golden(const std::string& name) {
  Golden all;
  for (auto& [key, tensor] : load_npz(golden("vision_models/" + name + ".npz"))) all[key] = tensor;
  return all;
}

// Gives the module the golden parameters, exactly these by their published names, and compares
// y = forward(x) and all gradients.
template <class F>
void compare(Module& module, const Golden& golden, F&& forward) {
  std::size_t given = 0;
  for (const auto& [key, tensor] : golden) given += key.starts_with("w.");
  CHECK(module.named_parameters().size() == given);
  for (const auto& [path, parameter] : module.named_parameters()) {
    CAPTURE(path);
    REQUIRE(golden.contains("w." + path));
    parameter->set_value(golden.at("w." + path));
  }
  Tape tape;
  const Tensor x = tape.watch(golden.at("in.x"));
  const Tensor y = forward(x);
  CHECK(distance(y.detach(), golden.at("out.y")) <= 1e-12);
  std::vector<Tensor> inputs{x};
  for (const Parameter* parameter : module.parameters()) inputs.push_back(parameter->value());
  const std::vector<Tensor> g = tape.grad(y, inputs, golden.at("rand.r"));
  CHECK(distance(g[0], golden.at("gin.x")) <= 1e-10);
  std::size_t i = 1;
  for (const auto& [path, parameter] : module.named_parameters()) {
    CAPTURE(path);
    const Tensor &got = g[i++], &expected = golden.at("gw." + path);
    // Of a parameter that takes no part there is no distance by its size.
    const auto values = expected.to_vector<double>();
    const bool unused = std::ranges::all_of(values, [](double v) { return v == 0; });
    CHECK((unused ? bitwise_equal(got, expected) : distance(got, expected) <= 1e-10));
  }
}

}  // namespace lipgrad::test
