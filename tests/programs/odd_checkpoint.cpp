// odd_checkpoint FILE: writes a valid checkpoint with all that could trouble who shows it: numbers
// that are not finite, empty tensors, extreme sizes of numbers, text with control characters and
// bytes that are not UTF-8, and a configuration nested so deeply that recursion would not survive.

#include <cstdio>
#include <limits>
#include <string>

#include <lipgrad/core/checkpoint.h>
#include <lipgrad/core/error.h>

namespace {

using namespace lipgrad;

void zero(Tensor& x, Generator&) { x = zeros(x.shape(), x.dtype()); }

struct Odd : Module {
  Parameter not_finite{*this, "not_finite", {4}, zero};
  Parameter nothing_finite{*this, "nothing_finite", {2}, zero, f64};
  Parameter empty{*this, "empty", {3, 0}, zero};
  Parameter extreme{*this, "extreme", {2, 2}, zero, f64};
  Buffer count{*this, "count", {}, std::numeric_limits<std::int64_t>::min(), i64};
  Buffer mask{*this, "mask", {5}, 255, u8};
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: odd_checkpoint FILE\n");
    return 2;
  }
  try {
    constexpr double inf = std::numeric_limits<double>::infinity();
    constexpr float nan = std::numeric_limits<float>::quiet_NaN();
    Odd odd;
    odd.not_finite.set_value(from_values<float>({4}, {3, nan, -4, -1 / 0.0F}));
    odd.nothing_finite.set_value(from_values<double>({2}, {inf, -inf}));
    odd.empty.set_value(zeros({3, 0}));
    odd.extreme.set_value(from_values<double>({2, 2}, {1e300, 1e300, -1e300, 1e300}));
    save_checkpoint(argv[1], odd,
                    {.config = std::string(100000, '[') + std::string(100000, ']'),
                     .metadata = {{"bell", "ring\a\x1b[31mred\nsecond line"},
                                  {"latin\xe9", "\xff\xfe"},
                                  {"metrics", R"([["valid_loss","0x1.8p+0"],["acc","nan"]])"},
                                  {"not_metrics", R"([["valid_loss",1],[]])"},
                                  {"long", std::string(5000, 'x')}}});
  } catch (const Error& error) {
    std::fprintf(stderr, "odd_checkpoint: %s\n", error.what());
    return 1;
  }
  return 0;
}
