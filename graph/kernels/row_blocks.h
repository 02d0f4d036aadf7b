#pragma once

// Private to the CPU kernels: how the rows of a CSR structure are shared out over threads.

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <vector>

#include <lipgrad/core/threads.h>

namespace lipgrad::cpu {

// Blocks of consecutive rows with about the same number of edges, a row itself counting as one
// edge. They depend on the structure alone. Rows of many edges ("hubs") are left to the caller, to
// be cut into pieces of `grain()` edges.
class RowBlocks {
 public:
  // min_grain: edges below which a block is not worth a thread's attention.
  RowBlocks(std::int64_t rows, const std::int64_t* offsets, std::int64_t min_grain)
      : rows_(rows), offsets_(offsets) {
    const std::int64_t total = rows > 0 ? offsets[rows] - offsets[0] + rows : 0;
    grain_ = std::max(min_grain, (total + max_blocks - 1) / max_blocks);
    blocks_ = (total + grain_ - 1) / grain_;
  }

  std::int64_t blocks() const { return blocks_; }
  std::int64_t grain() const { return grain_; }
  // The number of pieces a hub is cut into; piece p is the edges from offset + p * grain() on.
  std::int64_t pieces(std::int64_t row) const { return (degree(row) + grain_ - 1) / grain_; }

  // On all threads: with a pass of make_pass() for some blocks in turn, pass.begin(block),
  // pass.row(r) for the block's rows but the hubs, and pass.finish(). Returns the hubs, in order.
  template <class F>
  std::vector<std::int64_t> run(F&& make_pass) const {
    std::vector<std::int64_t> hubs;
    std::mutex mutex;
    // Making a pass allocates: some blocks share one.
    const std::int64_t shared = std::max<std::int64_t>(1, blocks_ / 32);
    parallel_for(blocks_, shared, [&](std::int64_t begin, std::int64_t end) {
      auto pass = make_pass();
      for (std::int64_t block = begin; block < end; ++block) {
        pass.begin(block);
        for (std::int64_t r = first_row(block), last = first_row(block + 1); r < last; ++r) {
          if (degree(r) <= 2 * grain_) {
            pass.row(r);
          } else {
            const std::lock_guard lock(mutex);
            hubs.push_back(r);
          }
        }
        pass.finish();
      }
    });
    std::sort(hubs.begin(), hubs.end());
    return hubs;
  }

 private:
  static constexpr std::int64_t max_blocks = 512;

  std::int64_t degree(std::int64_t row) const { return offsets_[row + 1] - offsets_[row]; }

  // The first row that starts at or behind edge block * grain.
  std::int64_t first_row(std::int64_t block) const {
    if (block >= blocks_) return rows_;
    std::int64_t low = 0, high = rows_;
    while (low < high) {
      const std::int64_t middle = low + (high - low) / 2;
      if (offsets_[middle] - offsets_[0] + middle < block * grain_) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

  std::int64_t rows_, grain_ = 1, blocks_ = 0;
  const std::int64_t* offsets_;
};

}  // namespace lipgrad::cpu
