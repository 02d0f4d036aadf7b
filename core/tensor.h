#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include <lipgrad/core/device.h>
#include <lipgrad/core/dtype.h>
#include <lipgrad/core/shape.h>
#include <lipgrad/core/storage.h>

namespace lipgrad {

// Which value of which tape a tensor is. It owns nothing.
struct ValueRef {
  static constexpr std::uint64_t none = 0;
  static constexpr std::uint64_t of_parameter = ~std::uint64_t{0};  // a leaf of any tape

  std::uint64_t tape = none;  // serial number of the tape
  std::int64_t value = -1;
};

// A contiguous row-major array: a cheap handle on shared storage. Copies of a handle share their
// elements; clone() copies them. An undefined tensor (the default) stands for "none".
class Tensor {
 public:
  Tensor() = default;

  bool defined() const { return static_cast<bool>(storage_); }
  const Shape& shape() const { return shape_; }
  int rank() const { return shape_.rank(); }
  // Size of a dimension, counted from the back when negative.
  std::int64_t size(int dim) const { return shape_.size(dim); }
  std::int64_t numel() const { return shape_.numel(); }
  std::int64_t nbytes() const { return numel() * size_of(dtype_); }
  DType dtype() const { return dtype_; }
  Device device() const { return storage_ ? storage_->device : cpu_device; }

  // The elements, to read: memory of the tensor's device, which only kernels of that device may
  // touch. Error unless T matches the dtype.
  template <class T>
  const T* data() const {
    if (dtype_ != dtype_of<T>() || !storage_) [[unlikely]]
      throw_data(dtype_of<T>());
    return static_cast<const T*>(storage_->data) + offset_;
  }
  // The elements, to write: the one way to change a tensor. Raises the storage's version, so that a
  // tape that saved these elements notices. Error when the tensor is a value of a tape: detach() or
  // clone() it first.
  template <class T>
  T* mutable_data() {
    if (dtype_ != dtype_of<T>() || !storage_) [[unlikely]]
      throw_data(dtype_of<T>());
    if (ref_.tape != ValueRef::none && ref_.tape != ValueRef::of_parameter) [[unlikely]]
      throw_recorded();
    storage_->version.fetch_add(1, std::memory_order_relaxed);
    return static_cast<T*>(storage_->data) + offset_;
  }
  // The same without a type, for copies and files.
  const void* raw_data() const {
    return storage_ ? static_cast<const char*>(storage_->data) + offset_ * size_of(dtype_)
                    : nullptr;
  }
  void* mutable_raw_data();

  // The only element as a double, whatever the dtype. Error unless numel() is 1. On CUDA it waits
  // for all work of the device.
  double item() const;
  template <class T>
  std::vector<T> to_vector() const {
    const Tensor local = detach().to(cpu_device);
    return std::vector<T>(local.data<T>(), local.data<T>() + numel());
  }

  // The same elements with no tie to a tape.
  Tensor detach() const;
  // A copy of the elements with no tie to a tape.
  Tensor clone() const;
  // A copy on another device or of another dtype (this tensor itself, if it is there already).
  // Error while a tape records this tensor's value: detach() it, or use the differentiable
  // transfer() and cast(). A copy from CUDA to the CPU waits for all work of that device.
  Tensor to(Device device) const;
  Tensor to(DType dtype) const;

  // A handle on a part of the same storage, `offset` elements after this tensor's first, with no
  // tie to a tape: for the forward pass of ops. Error when the part does not lie within this
  // tensor.
  Tensor alias(const Shape& shape, std::int64_t offset = 0) const;

  // "Tensor(f32, (2, 3), cpu)" with the first few elements.
  std::string str() const;

  // For the engine.
  const ValueRef& ref() const { return ref_; }
  void set_ref(ValueRef ref) { ref_ = ref; }
  const StorageRef& storage() const { return storage_; }
  std::int64_t offset() const { return offset_; }
  // Whether no other handle shares the storage and this one covers all of it.
  bool owns_storage() const {
    return storage_.unique() && offset_ == 0 && nbytes() == storage_->bytes;
  }

 private:
  friend Tensor empty(const Shape& shape, DType dtype, Device device);
  [[noreturn]] void throw_data(DType wanted) const;
  [[noreturn]] void throw_recorded() const;

  StorageRef storage_;
  std::int64_t offset_ = 0;  // in elements
  Shape shape_;
  DType dtype_ = f32;
  ValueRef ref_;
};

// A tensor whose elements are yet undefined.
Tensor empty(const Shape& shape, DType dtype = f32, Device device = cpu_device);
Tensor zeros(const Shape& shape, DType dtype = f32, Device device = cpu_device);
Tensor ones(const Shape& shape, DType dtype = f32, Device device = cpu_device);
// Every element `value`, rounded to the dtype.
Tensor full(const Shape& shape, double value, DType dtype = f32, Device device = cpu_device);
inline Tensor empty_like(const Tensor& x) { return empty(x.shape(), x.dtype(), x.device()); }
inline Tensor zeros_like(const Tensor& x) { return zeros(x.shape(), x.dtype(), x.device()); }
// 0, 1, ..., n - 1.
Tensor arange(std::int64_t n, DType dtype = i64);

// A CPU tensor with the given elements in row-major order; T is float, double, int32, int64 or
// uint8. Error when the count does not fit the shape.
template <class T>
Tensor from_span(const Shape& shape, std::span<const T> values);
template <class T>
Tensor from_vector(const Shape& shape, const std::vector<T>& values) {
  return from_span<T>(shape, values);
}
template <class T>
Tensor from_values(const Shape& shape, std::initializer_list<T> values) {
  return from_span<T>(shape, std::span<const T>(values.begin(), values.size()));
}

// Copies the elements of `from` into `to`. Error unless shape and dtype are equal.
void copy_into(Tensor& to, const Tensor& from);
// Whether dtype, shape and every bit of the elements are the same.
bool bitwise_equal(const Tensor& a, const Tensor& b);

// Errors "<op>: ..." unless all are defined and agree on dtype and device; used by ops.
void check_same_kind(const char* op, std::initializer_list<const Tensor*> tensors);

}  // namespace lipgrad
