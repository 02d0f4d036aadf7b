#pragma once

// Private: the record behind a Tape.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <lipgrad/core/segmented.h>
#include <lipgrad/core/tape.h>

namespace lipgrad {

// Memory handed out in order and taken back all at once; its chunks are kept for the next tape.
class Arena {
 public:
  void* allocate(std::size_t size, std::size_t alignment);
  void reset() { chunk_ = used_ = 0; }

 private:
  static constexpr std::size_t chunk_size = 1 << 16;
  struct Chunk {
    std::unique_ptr<std::byte[]> bytes;
    std::size_t size;
  };
  std::vector<Chunk> chunks_;
  std::size_t chunk_ = 0, used_ = 0;
};

class TapeState {
 public:
  struct Node {
    const detail::OpInfo* info = nullptr;
    void* op = nullptr;
    // First entry in the flat vectors below; the entries of a node are consecutive.
    std::int64_t input = 0, output = 0, saved = 0, datum = 0;
    std::int32_t inputs = 0, outputs = 0, saves = 0, data = 0;
    std::int32_t module = -1;
    bool freed = false;
  };
  struct Value {
    Shape shape;
    std::int64_t node = -1;  // that computes it; -1: a leaf
    DType dtype = f32;
    Device device;
    Tensor grad;
  };
  struct Saved {
    Tensor tensor;
    std::uint32_t version = 0;
  };
  struct Leaf {
    Parameter* parameter;
    StorageRef storage;  // keeps the address from being used again
    std::int64_t value;
  };
  struct Hook {
    std::int64_t value;
    std::function<Tensor(const Tensor&)> call;
  };

  // Recording.
  std::int64_t resolve(const char* op, const Tensor& x);  // value id, -1 without gradient
  std::int64_t add_value(const Tensor& x, std::int64_t node);
  std::int64_t leaf_of(const Tensor& x);
  std::int32_t module_id(const std::string* path);

  // For Ctx.
  bool needs_grad(std::int64_t node, std::size_t i) const {
    const std::int64_t id = input_ids[nodes[node].input + static_cast<std::int64_t>(i)];
    return id >= 0 && (wanted.empty() || wanted[static_cast<std::size_t>(id)]);
  }
  void save(std::int64_t node, const Tensor& x);
  const Tensor& saved(std::int64_t node, std::size_t k) const;
  void save_value(std::int64_t node, const void* value, std::size_t size, std::size_t alignment);
  const void* saved_value(std::int64_t node, std::size_t k) const;

  // Backward.
  void run(std::int64_t output, const Tensor& cotangent, BackwardOptions options,
           std::span<const std::int64_t> kept);
  void clear() noexcept;
  std::string describe(const Node& node) const;

  std::uint64_t serial = 0;
  TapeState* outer = nullptr;  // the next tape outwards
  TapeState* resumes =
      nullptr;  // what records when this tape ends: the same, or null if it was paused
  Tape* tape = nullptr;
  TapeOptions options;
  bool leaves_only = false;  // note the parameters used, record nothing

  Arena arena;
  Segmented<Node> nodes;
  Segmented<Value> values;
  // By the backward pass that runs, for each value; empty: all of them.
  std::vector<std::uint8_t> wanted;
  std::vector<std::int64_t> input_ids;
  Segmented<Saved> saved_tensors;
  std::vector<const void*> saved_data;
  std::vector<std::int64_t> leaf_values;  // all values without a node
  std::vector<Leaf> leaves;
  std::vector<std::int32_t> leaf_table;  // open addressing by parameter: index into leaves, or -1
  std::vector<Hook> hooks;
  std::vector<std::string> modules;  // only the first `module_count` are in use
  std::int32_t module_count = 0;

 private:
  void step(const Node& node, std::int64_t index, std::vector<Tensor>& gy, std::vector<Tensor>& gx,
            bool retain, std::span<const std::int64_t> kept);
  void add_gradient(const Node& node, std::int64_t id, Tensor g);
  void run_hooks(std::int64_t id);
  void check_saved(const Node& node) const;
};

// A tape that records nothing but notes which parameters are used.
class LeafTape {
 public:
  LeafTape();
  std::vector<Tensor> parameters() const;

 private:
  Tape tape_;
};

}  // namespace lipgrad
