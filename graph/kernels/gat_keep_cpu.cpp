#include <algorithm>
#include <vector>

#include <lipgrad/core/threads.h>
#include <lipgrad/graph/kernels/gat.h>
#include <lipgrad/ops/kernels/dropout.h>

namespace lipgrad::cpu {

void gat_keep(std::int64_t edges, std::int64_t heads, double p, std::uint64_t seed,
              std::uint64_t draw, std::uint8_t* keep) {
  const std::uint32_t threshold = dropout_threshold(p);
  const std::int64_t bytes = (heads + 7) / 8;
  // Whole blocks of four words, about `some` of them at a time.
  const auto edges_of = [&](std::int64_t some) {
    return std::max<std::int64_t>(4, some / heads / 4 * 4);
  };
  const std::int64_t group = edges_of(1024);
  parallel_for(edges, edges_of(32768), [&](std::int64_t begin, std::int64_t end) {
    std::vector<std::uint32_t> words(static_cast<std::size_t>(group * heads));
    for (std::int64_t e = begin; e < end; e += group) {
      const std::int64_t count = std::min(group, end - e);
      philox_words(seed, draw, static_cast<std::uint64_t>(e * heads), count * heads, words.data());
      const std::uint32_t* word = words.data();
      std::uint8_t* to = keep + e * bytes;
      if (heads == 8) {
        for (std::int64_t k = 0; k < count; ++k, word += 8) {
          unsigned bits = 0;
          for (int h = 0; h < 8; ++h) bits |= unsigned{dropout_keeps(word[h], threshold)} << h;
          to[k] = static_cast<std::uint8_t>(bits);
        }
        continue;
      }
      std::fill(to, to + count * bytes, std::uint8_t{0});
      for (std::int64_t k = 0; k < count; ++k, to += bytes) {
        for (std::int64_t h = 0; h < heads; ++h) {
          to[h / 8] |= static_cast<std::uint8_t>(dropout_keeps(*word++, threshold) << (h % 8));
        }
      }
    }
  });
}

}  // namespace lipgrad::cpu
