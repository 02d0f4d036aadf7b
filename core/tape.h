#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <lipgrad/core/tensor.h>

namespace lipgrad {

class Ctx;
class Grads;
class Inputs;
class TapeState;

namespace detail {

// What the tape knows of an op's type.
struct OpInfo {
  const char* name;
  void (*backward)(const void* op, Ctx& ctx, Inputs gy, Grads gx);
  void (*destroy)(void* op);  // null: nothing to destroy
};

// The recording of one op, from before its forward pass to after it. While it lives nothing else is
// recorded on this thread; if it is not finished (forward threw) it leaves no trace.
class Recording {
 public:
  Recording(const char* name, const Inputs& in, bool differentiable);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  Ctx ctx() const;
  // Gives the outputs their place on the tape and returns memory for the op, or null when it is not
  // recorded.
  void* finish(const OpInfo* info, std::size_t size, std::size_t alignment,
               std::span<Tensor> outputs);

 private:
  TapeState* paused_ = nullptr;  // the tape whose recording is paused meanwhile
  TapeState* tape_ = nullptr;    // the same if this op is to be recorded
  std::int64_t node_ = -1;
  const char* name_;
};

}  // namespace detail

struct TapeOptions {
  // Check every value and gradient; the first one with a NaN or infinity is an error that names the
  // op, its module and the shapes. Slow.
  bool anomaly = false;
};

struct BackwardOptions {
  // Keep what was saved, so that backward can run again.
  bool retain = false;
};

// Records the ops that run on this thread while it is in scope, and computes gradients by going
// through the record backwards. Tapes nest: the innermost one records. They must end in the
// opposite order of their beginning, as scopes do. Using a tensor of an enclosing or an ended tape
// while recording is an error; detach() it first. Values are tied to their tape by number: no
// tensor keeps a tape alive.
class Tape {
 public:
  explicit Tape(TapeOptions options = {});
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  // A handle on the elements of x as a leaf of this tape: what is computed from it has a gradient.
  // Error unless x is f32 or f64.
  Tensor watch(const Tensor& x);

  // Adds d loss / d p to p.grad() of every parameter p that the loss depends on. The loss must have
  // one element; otherwise give a cotangent of its shape. What was saved for the ops met is freed,
  // unless options.retain.
  void backward(const Tensor& loss, BackwardOptions options = {});
  void backward(const Tensor& output, const Tensor& cotangent, BackwardOptions options = {});

  // The gradients of <output, cotangent> (an undefined cotangent stands for 1 and needs an output
  // of one element) for tensors of this tape or parameters; zeros where the output does not depend
  // on them. Touches no grad(), and computes only what these gradients need.
  std::vector<Tensor> grad(const Tensor& output, std::span<const Tensor> inputs,
                           const Tensor& cotangent = {}, BackwardOptions options = {});
  std::vector<Tensor> grad(const Tensor& output, std::initializer_list<Tensor> inputs,
                           const Tensor& cotangent = {}, BackwardOptions options = {}) {
    return grad(output, std::span<const Tensor>(inputs.begin(), inputs.size()), cotangent, options);
  }

  // Calls hook(g) with the complete gradient g of x (a tensor of this tape or a parameter), at
  // every backward pass. A defined tensor that it returns, of the same shape and dtype, replaces
  // the gradient.
  void on_gradient(const Tensor& x, std::function<Tensor(const Tensor&)> hook);

  // Number of ops recorded, bytes that saved tensors keep (each storage once, parameters left out),
  // and the record as text, a line an op.
  std::int64_t num_ops() const;
  std::int64_t bytes_saved() const;
  // The largest tensors on a device that are kept for backward, `most` of them, in words: "6000
  // bytes f32 (30, 50) of log ...".
  std::string largest_saved(Device device, int most) const;
  std::string dump() const;

  // The innermost tape of this thread, or null.
  static Tape* current();
  // Whether x has a gradient on a tape that records now on this thread.
  static bool is_recorded(const Tensor& x);

 private:
  friend class LeafTape;
  std::unique_ptr<TapeState> state_;
};

// While in scope, nothing is recorded on this thread.
class NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  TapeState* paused_;
};

// Names the module whose forward pass runs: the ops recorded meanwhile carry its path. The string
// must outlive the scope.
class ModuleScope {
 public:
  explicit ModuleScope(const std::string& path);
  ~ModuleScope();
  ModuleScope(const ModuleScope&) = delete;
  ModuleScope& operator=(const ModuleScope&) = delete;

 private:
  const std::string* outer_;
};

}  // namespace lipgrad
