#include <lipgrad/ops/gru_cell.h>

#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include <lipgrad/core/error.h>
#include <lipgrad/core/npz.h>
#include <lipgrad/core/random.h>
#include <lipgrad/core/tape.h>
#include <support/data.h>
#include <support/tensors.h>

namespace lipgrad {

TEST_CASE("GruCell: PyTorch's values and gradients") {
  const NpzFile file(test::golden("graph_layers/pyg.npz"));
  const auto tensor = [&](const std::string& name) { return to_tensor(file.read("gru/" + name)); };
  Module root;
  GruCell cell(root, "cell", 4, 6, {.dtype = f64});
  std::vector<std::string> names{"x", "h"};
  for (auto& [path, parameter] : cell.named_parameters()) {
    parameter->set_value(tensor(path));
    names.push_back(path);
  }
  CHECK(names.size() == 6);
  Tape tape;
  std::vector<Tensor> wanted{tape.watch(tensor("x")), tape.watch(tensor("h"))};
  const Tensor out = cell.forward(wanted[0], wanted[1]);
  CHECK(test::distance(out, tensor("out")) < 1e-14);
  for (Parameter* parameter : cell.parameters()) wanted.push_back(parameter->value());
  const auto grads = tape.grad(out, wanted, tensor("r"));
  for (std::size_t i = 0; i < names.size(); ++i) {
    CAPTURE(names[i]);
    CHECK(test::distance(grads[i], tensor("grad." + names[i])) < 1e-13);
  }
}

TEST_CASE("gru_gates: limits, a subset of gradients, errors") {
  // z = 0 keeps the state, z = 1 replaces it; r = 0 hides the state from n.
  const double inf = std::numeric_limits<double>::infinity();
  const Tensor x = from_values<double>({2, 3}, {-inf, inf, 0.5, -inf, -inf, 0.5}),
               hidden = from_values<double>({2, 3}, {0, 0, 9, 0, 0, 9}),
               h = from_values<double>({2, 1}, {0.25, 0.25});
  const Tensor y = gru_gates(x, hidden, h);
  CHECK(y.data<double>()[0] == 0.25);
  CHECK(y.data<double>()[1] == doctest::Approx(std::tanh(0.5)));
  // What one gradient is does not depend on which others are wanted.
  Generator rng{2};
  const Tensor in[] = {randn({7, 15}, f32, rng), randn({7, 15}, f32, rng), randn({7, 5}, f32, rng)};
  const Tensor cotangent = randn({7, 5}, f32, rng);
  const auto gradients = [&](int first, int last) {
    Tape tape;
    Tensor t[3];
    std::vector<Tensor> wanted;
    for (int i = 0; i < 3; ++i) {
      t[i] = i >= first && i < last ? tape.watch(in[i]) : in[i];
      if (i >= first && i < last) wanted.push_back(t[i]);
    }
    return tape.grad(gru_gates(t[0], t[1], t[2]), wanted, cotangent);
  };
  const auto all = gradients(0, 3);
  for (int i = 0; i < 3; ++i) CHECK(bitwise_equal(gradients(i, i + 1)[0], all[i]));

  CHECK_THROWS_WITH_AS(
      gru_gates(ones({2, 6}), ones({2, 6}), ones({2, 3})),
      "gru_gates: expects (N, 3D), (N, 3D) and (N, D), got (2, 6), (2, 6) and (2, 3)", Error);
  Module root;
  CHECK_THROWS_WITH_AS(GruCell(root, "cell", 0, 3),
                       "GruCell: in and out must be at least 1, got 0 and 3", Error);
}

}  // namespace lipgrad
