#pragma once

#include <cstdint>

#include <lipgrad/core/philox.h>
#include <lipgrad/core/tensor.h>

namespace lipgrad {

// A stream of random draws. Draw d of seed s gives element e the bits philox_word(s, d, e): they
// depend neither on the device nor on the number of threads. An op takes one draw number as it runs
// and keeps it, so that a mask can be computed again instead of being stored.
class Generator {
 public:
  explicit Generator(std::uint64_t seed = 0) : seed_(seed) {}

  std::uint64_t seed() const { return seed_; }
  // The number of the next draw: seed and this number are the whole state.
  std::uint64_t next_draw() const { return next_draw_; }
  std::uint64_t take_draw() { return next_draw_++; }
  void restore(std::uint64_t seed, std::uint64_t next_draw) {
    seed_ = seed;
    next_draw_ = next_draw;
  }

 private:
  std::uint64_t seed_;
  std::uint64_t next_draw_ = 0;
};

// Whether a model runs to be trained or evaluated, and where its random numbers come from. It is
// passed to forward() rather than kept in the model.
class Mode {
 public:
  static Mode train(Generator& rng) { return Mode(&rng); }
  static Mode eval() { return Mode(nullptr); }

  bool is_train() const { return rng_ != nullptr; }
  // Error in evaluation mode.
  Generator& rng() const;

 private:
  explicit Mode(Generator* rng) : rng_(rng) {}
  Generator* rng_;
};

// Tensors of independent random numbers (f32 or f64, drawn on the CPU), one draw of the generator
// each: standard normal (Box-Muller), uniform in [low, high), and integers uniform in [0, bound) as
// i64 (bound from 1 to 2^32).
Tensor randn(const Shape& shape, DType dtype, Generator& rng);
Tensor rand_uniform(const Shape& shape, double low, double high, DType dtype, Generator& rng);
Tensor rand_int(const Shape& shape, std::int64_t bound, Generator& rng);
// A random order of 0 ... n - 1, i64.
Tensor rand_permutation(std::int64_t n, Generator& rng);

}  // namespace lipgrad
