#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <lipgrad/core/tape.h>
#include <lipgrad/core/tensor.h>

namespace lipgrad {

// How differentiable operations are written. An op is a struct with parameters and no hidden state:
//
//   struct Square {                                  // y = x^2; x, y: any shape
//     static constexpr auto name = "square";
//     Tensor forward(Ctx& ctx, Inputs in) const;     // may ctx.save() tensors
//     void backward(Ctx& ctx, const Tensor& gy, Grads gx) const;   // assigns gx[i]
//   };
//   Tensor square(const Tensor& x) { return apply(Square{}, x); }
//
// With several outputs, forward returns std::vector<Tensor> and backward takes `Inputs gy`, in
// which the gradient of an output that nobody used is undefined. An op without gradient says
// `static constexpr bool differentiable = false`. forward runs without recording, so it may use
// other ops. A gradient may be of the broadcast shape: the engine sums it back to the input's
// shape.

// The tensors given to an op, borrowed. An optional input may be undefined.
class Inputs {
 public:
  Inputs(std::span<const Tensor> tensors) : tensors_(tensors.data()), size_(tensors.size()) {}
  Inputs(const std::vector<Tensor>& tensors) : Inputs(std::span<const Tensor>(tensors)) {}
  Inputs(std::span<const Tensor* const> pointers)
      : pointers_(pointers.data()), size_(pointers.size()) {}

  std::size_t size() const { return size_; }
  const Tensor& operator[](std::size_t i) const { return tensors_ ? tensors_[i] : *pointers_[i]; }

 private:
  const Tensor* tensors_ = nullptr;
  const Tensor* const* pointers_ = nullptr;
  std::size_t size_;
};

// Where backward puts the gradients of the inputs, one slot each. Slots are assigned, never added
// to.
class Grads {
 public:
  explicit Grads(std::span<Tensor> slots) : slots_(slots) {}
  std::size_t size() const { return slots_.size(); }
  Tensor& operator[](std::size_t i) const { return slots_[i]; }

 private:
  std::span<Tensor> slots_;
};

// What links an op's forward pass to its backward pass. Outside a tape nothing is kept.
class Ctx {
 public:
  // Whether a tape records this op.
  bool recording() const { return tape_ != nullptr; }
  // Whether the gradient of input i is wanted: in forward, by anybody; in backward, by this pass.
  bool needs_grad(std::size_t i) const { return tape_ && wanted(i); }

  // Keeps a tensor for backward; saved(k) is the k-th one kept. If it is a parameter or constant
  // whose elements change before backward, that is an error there. An undefined tensor may be kept.
  void save(const Tensor& x) {
    if (tape_) keep(x);
  }
  const Tensor& saved(std::size_t k) const;

  // Keeps a trivially copyable value; value<T>(k) is the k-th one kept.
  template <class T>
  void save_value(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (tape_) keep(&value, sizeof(T), alignof(T));
  }
  template <class T>
  const T& value(std::size_t k) const {
    return *static_cast<const T*>(kept(k));
  }

 private:
  friend class TapeState;
  friend class detail::Recording;
  Ctx(TapeState* tape, std::int64_t node) : tape_(tape), node_(node) {}
  bool wanted(std::size_t i) const;
  void keep(const Tensor& x);
  void keep(const void* value, std::size_t size, std::size_t alignment);
  const void* kept(std::size_t k) const;

  TapeState* tape_;
  std::int64_t node_;
};

namespace detail {

template <class Op>
concept NotDifferentiable = requires {
  requires Op::differentiable == false;
};
template <class Op>
concept HasBackward = requires(const Op& op, Ctx& ctx, const Tensor& gy, Grads gx) {
  op.backward(ctx, gy, gx);
};
template <class Op>
concept HasBackwardOfMany = requires(const Op& op, Ctx& ctx, Inputs gy, Grads gx) {
  op.backward(ctx, gy, gx);
};

template <class Op>
const OpInfo* op_info() {
  static constexpr OpInfo info{Op::name,
                               [](const void* op, Ctx& ctx, Inputs gy, Grads gx) {
                                 if constexpr (NotDifferentiable<Op>) {
                                 } else if constexpr (HasBackward<Op>) {
                                   static_cast<const Op*>(op)->backward(ctx, gy[0], gx);
                                 } else {
                                   static_cast<const Op*>(op)->backward(ctx, gy, gx);
                                 }
                               },
                               std::is_trivially_destructible_v<Op>
                                   ? nullptr
                                   : +[](void* op) { static_cast<Op*>(op)->~Op(); }};
  return &info;
}

}  // namespace detail

// Runs an op and, when a tape records and the gradient of some input is wanted, records it.
template <class Op>
auto apply(Op op, Inputs in) {
  using Result = decltype(std::declval<const Op&>().forward(std::declval<Ctx&>(), in));
  static_assert(
      detail::NotDifferentiable<Op> || detail::HasBackward<Op> || detail::HasBackwardOfMany<Op>,
      "an op needs a const backward, or `static constexpr bool differentiable = false`");
  detail::Recording recording(Op::name, in, !detail::NotDifferentiable<Op>);
  Ctx ctx = recording.ctx();
  Result result = op.forward(ctx, in);
  std::span<Tensor> outputs;
  if constexpr (std::is_same_v<Result, Tensor>) {
    outputs = std::span<Tensor>(&result, 1);
  } else {
    outputs = std::span<Tensor>(result);
  }
  if (void* memory = recording.finish(detail::op_info<Op>(), sizeof(Op), alignof(Op), outputs))
    new (memory) Op(std::move(op));
  return result;
}

template <class Op, class... Ts>
requires(sizeof...(Ts) > 0 && (std::convertible_to<const Ts&, const Tensor&> &&
                               ...)) auto apply(Op op, const Ts&... inputs) {
  const std::array<const Tensor*, sizeof...(Ts)> pointers{&static_cast<const Tensor&>(inputs)...};
  return apply(std::move(op), Inputs(std::span<const Tensor* const>(pointers)));
}

}  // namespace lipgrad
