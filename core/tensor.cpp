#include <lipgrad/core/tensor.h>

#include <algorithm>
#include <cstring>

#include <lipgrad/core/check.h>
#include <lipgrad/core/kernels/convert.h>
#include <lipgrad/core/launch.h>
#include <lipgrad/core/map.h>
#include <lipgrad/core/runtime.h>
#include <lipgrad/core/tape.h>

namespace lipgrad {

void Tensor::throw_data(DType wanted) const {
  if (!defined()) fail("data: the tensor is undefined");
  fail("data: asked for {} elements of a {} tensor {}", wanted, dtype_, shape_);
}

void Tensor::throw_recorded() const {
  fail(
      "mutable_data: tensor {} is a value of a tape and cannot be changed; detach() or clone() it "
      "first",
      shape_);
}

void* Tensor::mutable_raw_data() {
  if (!defined()) throw_data(dtype_);
  return visit_dtype(
      dtype_, [&](auto tag) -> void* { return mutable_data<typename decltype(tag)::type>(); });
}

double Tensor::item() const {
  LIPGRAD_CHECK(defined() && numel() == 1, "item: expects one element, got {}",
                defined() ? shape_.str() : "an undefined tensor");
  if (!device().is_cpu()) return detach().to(cpu_device).item();
  return visit_dtype(
      dtype_, [&](auto tag) { return static_cast<double>(*data<typename decltype(tag)::type>()); });
}

Tensor Tensor::detach() const {
  Tensor copy = *this;
  copy.ref_ = {};
  return copy;
}

Tensor Tensor::clone() const {
  LIPGRAD_CHECK(defined(), "clone: the tensor is undefined");
  Tensor copy = empty(shape_, dtype_, device());
  runtime(device()).copy(copy, *this);
  return copy;
}

Tensor Tensor::to(Device device) const {
  LIPGRAD_CHECK(defined(), "to: the tensor is undefined");
  if (device == this->device()) return *this;
  LIPGRAD_CHECK(!Tape::is_recorded(*this),
                "to: tensor {} has a gradient that a copy to {} would lose; use transfer() or "
                "detach() it first",
                shape_, device);
  Tensor copy = empty(shape_, dtype_, device);
  runtime(device.is_cpu() ? this->device() : device).copy(copy, *this);
  return copy;
}

Tensor Tensor::to(DType dtype) const {
  LIPGRAD_CHECK(defined(), "to: the tensor is undefined");
  if (dtype == dtype_) return *this;
  LIPGRAD_CHECK(!Tape::is_recorded(*this),
                "to: tensor {} has a gradient that a conversion to {} would lose; use cast() or "
                "detach() it first",
                shape_, dtype);
  Tensor copy = empty(shape_, dtype, device());
  visit_dtype(dtype_, [&](auto from_tag) {
    using From = typename decltype(from_tag)::type;
    visit_dtype(dtype, [&](auto to_tag) {
      using To = typename decltype(to_tag)::type;
      if constexpr (!std::is_same_v<From, To>)
        LIPGRAD_LAUNCH(device(), convert, numel(), data<From>(), copy.mutable_data<To>());
    });
  });
  return copy;
}

Tensor Tensor::alias(const Shape& shape, std::int64_t offset) const {
  LIPGRAD_CHECK(defined() && offset >= 0 && offset + shape.numel() <= numel(),
                "alias: {} elements from {} on do not lie within {}", shape.numel(), offset,
                shape_);
  Tensor part = *this;
  part.shape_ = shape;
  part.offset_ += offset;
  part.ref_ = {};
  return part;
}

std::string Tensor::str() const {
  if (!defined()) return "Tensor(undefined)";
  std::string text = fmt::format("Tensor({}, {}, {})", dtype_, shape_, device());
  const Tensor local = detach().to(cpu_device);
  const std::int64_t shown = std::min<std::int64_t>(numel(), 8);
  visit_dtype(dtype_, [&](auto tag) {
    using T = typename decltype(tag)::type;
    text += " [";
    for (std::int64_t i = 0; i < shown; ++i)
      text += fmt::format("{}{}", i ? ", " : "", local.data<T>()[i]);
    text += shown < numel() ? ", ...]" : "]";
  });
  return text;
}

Tensor empty(const Shape& shape, DType dtype, Device device) {
  std::int64_t bytes = 0;
  LIPGRAD_CHECK(!__builtin_mul_overflow(shape.numel(), size_of(dtype), &bytes) &&
                    bytes < (std::int64_t{1} << 62),
                "empty: a {} tensor of shape {} is too large", dtype, shape);
  Tensor x;
  x.storage_ = StorageRef(allocate_storage(device, bytes));
  x.shape_ = shape;
  x.dtype_ = dtype;
  return x;
}

Tensor full(const Shape& shape, double value, DType dtype, Device device) {
  Tensor x = empty(shape, dtype, device);
  runtime(device).fill(x, value);
  return x;
}

Tensor zeros(const Shape& shape, DType dtype, Device device) {
  return full(shape, 0, dtype, device);
}
Tensor ones(const Shape& shape, DType dtype, Device device) {
  return full(shape, 1, dtype, device);
}

Tensor arange(std::int64_t n, DType dtype) {
  Tensor x = empty({n}, dtype);
  visit_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* values = x.mutable_data<T>();
    for (std::int64_t i = 0; i < n; ++i) values[i] = static_cast<T>(i);
  });
  return x;
}

template <class T>
Tensor from_span(const Shape& shape, std::span<const T> values) {
  LIPGRAD_CHECK(static_cast<std::int64_t>(values.size()) == shape.numel(),
                "from_span: {} values given for shape {}, which has {} elements", values.size(),
                shape, shape.numel());
  Tensor x = empty(shape, dtype_of<T>());
  std::copy(values.begin(), values.end(), x.mutable_data<T>());
  return x;
}
template Tensor from_span<float>(const Shape&, std::span<const float>);
template Tensor from_span<double>(const Shape&, std::span<const double>);
template Tensor from_span<std::int32_t>(const Shape&, std::span<const std::int32_t>);
template Tensor from_span<std::int64_t>(const Shape&, std::span<const std::int64_t>);
template Tensor from_span<std::uint8_t>(const Shape&, std::span<const std::uint8_t>);

void copy_into(Tensor& to, const Tensor& from) {
  LIPGRAD_CHECK(
      to.defined() && from.defined() && to.shape() == from.shape() && to.dtype() == from.dtype(),
      "copy_into: cannot copy {} into {}", from.str(), to.str());
  runtime(from.device().is_cuda() ? from.device() : to.device()).copy(to, from);
}

bool bitwise_equal(const Tensor& a, const Tensor& b) {
  if (a.defined() != b.defined()) return false;
  if (!a.defined()) return true;
  if (a.dtype() != b.dtype() || !(a.shape() == b.shape())) return false;
  const Tensor x = a.detach().to(cpu_device), y = b.detach().to(cpu_device);
  return x.nbytes() == 0 || std::memcmp(x.raw_data(), y.raw_data(), x.nbytes()) == 0;
}

void check_same_kind(const char* op, std::initializer_list<const Tensor*> tensors) {
  const Tensor* first = nullptr;
  for (const Tensor* x : tensors) {
    LIPGRAD_CHECK(x->defined(), "{}: an input is undefined", op);
    if (!first) first = x;
    LIPGRAD_CHECK(x->dtype() == first->dtype(),
                  "{}: inputs of dtype {} and {}; convert one with cast()", op, first->dtype(),
                  x->dtype());
    LIPGRAD_CHECK(x->device() == first->device(), "{}: inputs on {} and {}; move one with to()", op,
                  first->device(), x->device());
  }
}

void detail::check_map(const char* op, const Tensor& x, const Tensor* g) {
  LIPGRAD_CHECK(x.defined(), "{}: the input is undefined", op);
  LIPGRAD_CHECK(x.device().is_cpu(),
                "{}: runs on the CPU only, the input is on {}; move it with to(cpu_device)", op,
                x.device());
  if (!g) return;
  check_same_kind(op, {&x, g});
  LIPGRAD_CHECK(x.shape() == g->shape(), "{}: shapes {} and {} differ", op, x.shape(), g->shape());
}

}  // namespace lipgrad
