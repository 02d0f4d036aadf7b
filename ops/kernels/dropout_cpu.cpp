#include <lipgrad/ops/kernels/dropout.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <lipgrad/ops/kernels/dropout_cpu.cpp>
#include <hwy/foreach_target.h>

#include <lipgrad/ops/kernels/rows_cpu.h>
#include <lipgrad/ops/kernels/simd-inl.h>

HWY_BEFORE_NAMESPACE();
namespace lipgrad::cpu::HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

// Philox on as many blocks as there are 64-bit lanes. Each state word sits in the lower half of a
// lane; the upper half may hold anything: the products read lower halves only.
class PhiloxVector {
 public:
  using D64 = hn::ScalableTag<std::uint64_t>;
  using D32 = hn::ScalableTag<std::uint32_t>;
  using V64 = hn::Vec<D64>;
  using V32 = hn::Vec<D32>;

  HWY_INLINE PhiloxVector(std::uint64_t seed, std::uint64_t draw)
      : draw_(hn::Set(D64(), draw)), draw_high_(hn::Set(D64(), draw >> 32)) {
    std::uint32_t k0 = static_cast<std::uint32_t>(seed),
                  k1 = static_cast<std::uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9, k1 += 0xBB67AE85) {
      key0_[round] = k0;
      key1_[round] = k1;
    }
    // Even lanes take the first half of the blocks, odd lanes the second: then interleaving within
    // 128 bits puts all words in order.
    const std::uint64_t half = hn::Lanes(D64()) / 2;
    HWY_ALIGN std::uint64_t order[HWY_MAX_BYTES / 8];
    for (std::uint64_t lane = 0; lane < 2 * half; ++lane) order[lane] = lane / 2 + lane % 2 * half;
    order_ = hn::Load(D64(), order);
  }

  // Words of the blocks index ... index + kChains lanes - 1, in order. Several chains of rounds at
  // a time keep the multipliers busy.
  template <int kChains>
  HWY_INLINE void words(std::uint64_t index, V32 (&out)[2 * kChains]) const {
    const D64 d;
    const std::uint64_t lanes = hn::Lanes(d);
    const V64 m0 = hn::Set(d, 0xD2511F53), m1 = hn::Set(d, 0xCD9E8D57);
    V64 c0[kChains], c1[kChains], c2[kChains], c3[kChains];
    for (int k = 0; k < kChains; ++k) {
      c0[k] = hn::Add(hn::Set(d, index + k * lanes), order_);
      c1[k] = hn::ShiftRight<32>(c0[k]);
      c2[k] = draw_;
      c3[k] = draw_high_;
    }
    for (int round = 0; round < 10; ++round) {
      const V64 k0 = hn::Set(d, key0_[round]), k1 = hn::Set(d, key1_[round]);
      for (int k = 0; k < kChains; ++k) {
        const V64 p0 = product(m0, c0[k]), p1 = product(m1, c2[k]);
        c0[k] = hn::Xor(hn::Xor(hn::ShiftRight<32>(p1), c1[k]), k0);
        c2[k] = hn::Xor(hn::Xor(hn::ShiftRight<32>(p0), c3[k]), k1);
        c1[k] = p1;
        c3[k] = p0;
      }
    }
    const V64 low = hn::Set(d, 0xFFFFFFFF);
    for (int k = 0; k < kChains; ++k) {
      const V64 w01 = hn::Or(hn::And(c0[k], low), hn::ShiftLeft<32>(c1[k]));
      const V64 w23 = hn::Or(hn::And(c2[k], low), hn::ShiftLeft<32>(c3[k]));
      out[2 * k] = hn::BitCast(D32(), hn::InterleaveLower(d, w01, w23));
      out[2 * k + 1] = hn::BitCast(D32(), hn::InterleaveUpper(d, w01, w23));
    }
  }

 private:
  static HWY_INLINE V64 product(V64 a, V64 b) {
    return hn::MulEven(hn::BitCast(D32(), a), hn::BitCast(D32(), b));
  }

  V64 draw_, draw_high_, order_;
  std::uint64_t key0_[10], key1_[10];
};

void words_of(std::uint64_t seed, std::uint64_t draw, std::uint64_t first, std::int64_t count,
              std::uint32_t* words) {
  const hn::ScalableTag<std::uint32_t> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d)), step = 2 * lanes;
  const PhiloxVector generate(seed, draw);
  PhiloxVector::V32 pair[2];
  std::int64_t i = 0;
  for (; i + step <= count; i += step) {
    generate.words<1>((first + i) / 4, pair);
    hn::StoreU(pair[0], d, words + i);
    hn::StoreU(pair[1], d, words + i + lanes);
  }
  if (i == count) return;
  HWY_ALIGN std::uint32_t rest[2 * HWY_MAX_BYTES / 4];
  generate.words<1>((first + i) / 4, pair);
  hn::Store(pair[0], d, rest);
  hn::Store(pair[1], d, rest + lanes);
  for (std::int64_t k = 0; i + k < count; ++k) words[i + k] = rest[k];
}

#else

void words_of(std::uint64_t seed, std::uint64_t draw, std::uint64_t first, std::int64_t count,
              std::uint32_t* words) {
  for (std::int64_t i = 0; i < count; i += 4) {
    const PhiloxBlock block = philox(seed, draw, (first + i) / 4);
    for (std::int64_t k = 0; k < 4 && i + k < count; ++k) words[i + k] = block.word[k];
  }
}

#endif

// y = x scale where kept, elements first ... first + n - 1 of the draw; first is a multiple of 4.
template <class T>
HWY_INLINE void drop(std::int64_t n, std::uint32_t threshold, double scale, std::uint64_t seed,
                     std::uint64_t draw, std::uint64_t first, const T* x, T* y) {
  std::int64_t i = 0;
  const T factor = static_cast<T>(scale);
#if HWY_TARGET != HWY_SCALAR
  if constexpr (sizeof(T) == 4) {
    const hn::ScalableTag<float> d;
    constexpr int chains = 2;
    const hn::ScalableTag<std::int32_t> di;  // 24 bits: the sign does not matter
    const std::int64_t lanes = Simd<T>::lanes(), step = 2 * chains * lanes;
    const PhiloxVector generate(seed, draw);
    const auto limit = hn::Set(di, static_cast<std::int32_t>(threshold) - 1);
    const auto times = hn::Set(d, factor);
    const auto one = [&](auto word, std::int64_t at) HWY_ATTR {
      const auto keep = hn::RebindMask(d, hn::Gt(hn::BitCast(di, hn::ShiftRight<8>(word)), limit));
      hn::StoreU(hn::IfThenElseZero(keep, hn::Mul(hn::LoadU(d, x + at), times)), d, y + at);
    };
    for (; i + step <= n; i += step) {
      PhiloxVector::V32 word[2 * chains];
      generate.words<chains>((first + i) / 4, word);
      for (int k = 0; k < 2 * chains; ++k) one(word[k], i + k * lanes);
    }
  }
#endif
  std::uint32_t words[256];
  for (; i < n; i += 256) {
    const std::int64_t count = n - i < 256 ? n - i : 256;
    words_of(seed, draw, first + i, count, words);
    for (std::int64_t k = 0; k < count; ++k)
      y[i + k] = dropout_keeps(words[k], threshold) ? x[i + k] * factor : T(0);
  }
}

void drop_f32(std::int64_t n, std::uint32_t threshold, double scale, std::uint64_t seed,
              std::uint64_t draw, std::uint64_t first, const float* x, float* y) {
  drop(n, threshold, scale, seed, draw, first, x, y);
}
void drop_f64(std::int64_t n, std::uint32_t threshold, double scale, std::uint64_t seed,
              std::uint64_t draw, std::uint64_t first, const double* x, double* y) {
  drop(n, threshold, scale, seed, draw, first, x, y);
}

}  // namespace lipgrad::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lipgrad::cpu {

HWY_EXPORT(words_of);
HWY_EXPORT(drop_f32);
HWY_EXPORT(drop_f64);

void philox_words(std::uint64_t seed, std::uint64_t draw, std::uint64_t first, std::int64_t count,
                  std::uint32_t* words) {
  HWY_DYNAMIC_DISPATCH(words_of)(seed, draw, first, count, words);
}

template <class T>
void dropout(std::int64_t n, double p, std::uint64_t seed, std::uint64_t draw, const T* x, T* y) {
  const std::uint32_t threshold = dropout_threshold(p);
  const double scale = p < 1 ? 1 / (1 - p) : 0;
  parallel_for(n, costly_grain, [&](std::int64_t begin, std::int64_t end) {
    if constexpr (sizeof(T) == 4) {
      HWY_DYNAMIC_DISPATCH(drop_f32)
      (end - begin, threshold, scale, seed, draw, begin, x + begin, y + begin);
    } else {
      HWY_DYNAMIC_DISPATCH(drop_f64)
      (end - begin, threshold, scale, seed, draw, begin, x + begin, y + begin);
    }
  });
}

template <class T>
void dropout_rows(std::int64_t rows, std::int64_t cols, double p, std::uint64_t seed,
                  std::uint64_t draw, const T* x, T* y) {
  if (cols == 0) return;
  const std::uint32_t threshold = dropout_threshold(p);
  const T scale = static_cast<T>(p < 1 ? 1 / (1 - p) : 0);
  parallel_for(rows * cols, cheap_grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end;) {
      const std::int64_t row = i / cols, stop = std::min(end, (row + 1) * cols);
      if (dropout_keeps(philox_word(seed, draw, static_cast<std::uint64_t>(row)), threshold)) {
        for (; i < stop; ++i) y[i] = x[i] * scale;
      } else {
        std::fill(y + i, y + stop, T(0));
        i = stop;
      }
    }
  });
}

template void dropout(std::int64_t, double, std::uint64_t, std::uint64_t, const float*, float*);
template void dropout_rows(std::int64_t, std::int64_t, double, std::uint64_t, std::uint64_t,
                           const float*, float*);
template void dropout_rows(std::int64_t, std::int64_t, double, std::uint64_t, std::uint64_t,
                           const double*, double*);
template void dropout(std::int64_t, double, std::uint64_t, std::uint64_t, const double*, double*);

}  // namespace lipgrad::cpu
#endif
