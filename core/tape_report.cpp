// What a tape holds, in numbers and words.

#include <algorithm>

#include <lipgrad/core/check.h>
#include <lipgrad/core/memory.h>
#include <lipgrad/core/op.h>
#include <lipgrad/core/tape_state.h>

namespace lipgrad {

std::int64_t Tape::bytes_saved() const {
  std::vector<const Storage*> storages;
  for (std::int64_t i = 0; i < state_->saved_tensors.size(); ++i) {
    const Tensor& saved = state_->saved_tensors[i].tensor;
    if (saved.defined() && !saved.storage()->parameter.load())
      storages.push_back(saved.storage().get());
  }
  std::sort(storages.begin(), storages.end());
  storages.erase(std::unique(storages.begin(), storages.end()), storages.end());
  std::int64_t bytes = 0;
  for (const Storage* storage : storages) bytes += storage->bytes;
  return bytes;
}

std::string Tape::largest_saved(Device device, int most) const {
  struct Kept {
    std::int64_t bytes;
    std::string what;
  };
  std::vector<Kept> kept;
  for (std::int64_t i = 0; i < state_->nodes.size(); ++i) {
    const TapeState::Node& node = state_->nodes[i];
    for (std::int32_t k = 0; k < node.saves; ++k) {
      const Tensor& saved = state_->saved_tensors[node.saved + k].tensor;
      if (saved.defined() && saved.device() == device && !saved.storage()->parameter.load())
        kept.push_back({saved.nbytes(), fmt::format("{} {} of {}", saved.dtype(), saved.shape(),
                                                    state_->describe(node))});
    }
  }
  std::stable_sort(kept.begin(), kept.end(),
                   [](const Kept& a, const Kept& b) { return a.bytes > b.bytes; });
  std::string text;
  for (std::size_t i = 0; i < kept.size() && i < static_cast<std::size_t>(most); ++i)
    text += fmt::format("{}{} bytes {}", i ? ", " : "", kept[i].bytes, kept[i].what);
  return text;
}

std::string memory::describe(Device device, const Counters& counters) {
  std::string text = fmt::format("tensors hold {} bytes (at most {} so far), {} are kept for reuse",
                                 counters.live, counters.peak, counters.cached);
  if (const Tape* tape = Tape::current())
    if (const std::string saved = tape->largest_saved(device, 5); !saved.empty())
      text += "; the largest that the tape keeps: " + saved;
  return text;
}

std::string Tape::dump() const {
  std::string text;
  for (std::int64_t i = 0; i < state_->nodes.size(); ++i) {
    const TapeState::Node& node = state_->nodes[i];
    std::int64_t bytes = 0;
    for (std::int32_t k = 0; k < node.saves; ++k) {
      const Tensor& saved = state_->saved_tensors[node.saved + k].tensor;
      if (saved.defined()) bytes += saved.nbytes();
    }
    std::string from;
    for (std::int32_t k = 0; k < node.inputs; ++k) {
      const std::int64_t id = state_->input_ids[node.input + k];
      from += fmt::format("{}{}", k ? " " : "", id < 0 ? "-" : fmt::format("%{}", id));
    }
    text += fmt::format("#{} {} = {} [{}], saves {} tensors, {} bytes\n", i,
                        fmt::format("%{}", node.output), state_->describe(node), from, node.saves,
                        bytes);
  }
  return text;
}

}  // namespace lipgrad
