// Attention within windows, f32, forward and the gradients of qkv (and of the bias where there is
// one): medians of the seconds. Arguments: windows, heads, tokens, features, rounds. One JSON
// object on stdout. compare_torch_attention.py runs it beside PyTorch.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <lipgrad/core/memory.h>
#include <lipgrad/core/random.h>
#include <lipgrad/core/tape.h>
#include <lipgrad/core/threads.h>
#include <lipgrad/vision/dense_attention.h>

using namespace lipgrad;

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double middle(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const auto argument = [&](int i, std::int64_t otherwise) {
    return argc > i ? std::atoll(argv[i]) : otherwise;
  };
  const std::int64_t windows = argument(1, 64), heads = argument(2, 3), tokens = argument(3, 49),
                     features = argument(4, 32), rounds = argument(5, 50);
  Generator rng{1};
  const Tensor qkv = randn({windows, tokens, 3, heads, features}, f32, rng),
               r = randn({windows, tokens, heads * features}, f32, rng),
               bias = randn({heads, tokens, tokens}, f32, rng);
  std::printf("{\"threads\": %d", num_threads());
  for (const bool cosine : {false, true})
    for (const bool biased : {false, true}) {
      DenseAttentionOptions options;
      if (cosine) {
        options.score = AttentionScore::cosine;
        options.tau = 10;
      }
      std::vector<double> forward, both;
      memory::reset_peak();
      const std::int64_t before = memory::counters().live;
      for (std::int64_t i = 0; i < rounds + 3; ++i) {
        const double start = now();
        Tape tape;
        std::vector<Tensor> in{tape.watch(qkv)};
        DenseAttentionTerms terms;
        if (biased) {
          in.push_back(tape.watch(bias));
          terms.bias = in[1];
        }
        const Tensor y = dense_attention(in[0], options, terms);
        const double between = now();
        tape.grad(y, in, r);
        if (i < 3) continue;
        forward.push_back(between - start);
        both.push_back(now() - start);
      }
      std::printf(
          ", \"%s%s\": {\"forward_s\": %.7f, \"both_s\": %.7f, \"best_s\": %.7f, "
          "\"peak_bytes\": %lld}",
          cosine ? "cosine" : "dot", biased ? "_bias" : "", middle(forward), middle(both),
          *std::min_element(both.begin(), both.end()),
          static_cast<long long>(memory::counters().peak - before));
    }
  std::printf("}\n");
}
