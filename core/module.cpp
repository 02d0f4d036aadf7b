#include <lipgrad/core/module.h>

#include <algorithm>

#include <lipgrad/core/check.h>
#include <lipgrad/core/recompute.h>
#include <lipgrad/core/runtime.h>

namespace lipgrad {
namespace {

std::string joined(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}

}  // namespace

// ---- Parameter

Parameter::Parameter(Module& owner, std::string name, const Shape& shape, Initializer initializer,
                     DType dtype)
    : owner_(&owner),
      name_(std::move(name)),
      shape_(shape),
      dtype_(dtype),
      initializer_(std::move(initializer)) {
  LIPGRAD_CHECK(is_floating(dtype), "parameter '{}': expects f32 or f64, got {}", path(), dtype);
  owner.register_member(this, name_);
}

Parameter::~Parameter() {
  if (value_.defined()) value_.storage()->parameter.store(nullptr);
  owner_->unregister_member(this);
}

std::string Parameter::path() const { return joined(owner_->path(), name_); }

const Tensor& Parameter::value() const {
  LIPGRAD_CHECK(
      value_.defined(),
      "parameter '{}' {} has no value: call initialize() on the model or load a checkpoint", path(),
      shape_);
  return value_;
}

void Parameter::adopt(Tensor value) {
  if (value_.defined()) value_.storage()->parameter.store(nullptr);
  value_ = std::move(value);
  value_.set_ref({ValueRef::of_parameter, -1});
  value_.storage()->parameter.store(this);
}

void Parameter::set_value(const Tensor& value) {
  LIPGRAD_CHECK(value.defined() && value.shape() == shape_ && value.dtype() == dtype_,
                "parameter '{}': expects {} {}, got {}", path(), dtype_, shape_, value.str());
  if (!value_.defined()) adopt(empty(shape_, dtype_, device_));
  copy_into(value_, value.detach());
}

void Parameter::initialize(Generator& rng) {
  LIPGRAD_CHECK(initializer_, "parameter '{}' has no initialiser", path());
  Tensor value = empty(shape_, dtype_);
  initializer_(value, rng);
  set_value(value);
}

void Parameter::add_grad(Tensor g) {
  LIPGRAD_CHECK(g.defined() && g.shape() == shape_ && g.dtype() == dtype_,
                "parameter '{}' {}: gradient {}", path(), shape_, g.str());
  if (grad_.defined()) {
    if (!grad_.owns_storage()) grad_ = grad_.clone();
    runtime(g.device()).accumulate(grad_, g);
  } else {
    g.set_ref({});
    grad_ = g.owns_storage() ? std::move(g) : g.clone();
  }
}

void Parameter::to(Device device) {
  device_ = device;
  if (value_.defined()) adopt(value_.detach().to(device));
  if (grad_.defined()) grad_ = grad_.to(device);
}

void Parameter::to(DType dtype) {
  LIPGRAD_CHECK(is_floating(dtype), "parameter '{}': cannot be {}; expects f32 or f64", path(),
                dtype);
  dtype_ = dtype;
  if (value_.defined()) adopt(value_.detach().to(dtype));
  if (grad_.defined()) grad_ = grad_.to(dtype);
}

// ---- Buffer

Buffer::Buffer(Module& owner, std::string name, const Shape& shape, double initial, DType dtype)
    : owner_(&owner),
      name_(std::move(name)),
      initial_(initial),
      value_(full(shape, initial, dtype)) {
  owner.register_member(this, name_);
}

Buffer::~Buffer() { owner_->unregister_member(this); }

std::string Buffer::path() const { return joined(owner_->path(), name_); }

Tensor& Buffer::writable() {
  if (!is_replaying()) return value_;
  replayed_ = value_.clone();
  return replayed_;
}

void Buffer::set_value(const Tensor& value) {
  LIPGRAD_CHECK(value.defined() && value.shape() == shape() && value.dtype() == dtype(),
                "buffer '{}': expects {} {}, got {}", path(), dtype(), shape(), value.str());
  copy_into(value_, value.detach());
}

void Buffer::initialize() { runtime(value_.device()).fill(value_, initial_); }
void Buffer::to(Device device) { value_ = value_.to(device); }
void Buffer::to(DType dtype) {
  if (is_floating(value_.dtype())) value_ = value_.to(dtype);
}

// ---- Module

Module::Module(Module& parent, std::string name)
    : parent_(&parent), name_(std::move(name)), path_(joined(parent.path_, name_)) {
  parent.register_member(this, name_);
}

Module::~Module() {
  if (parent_) parent_->unregister_member(this);
}

void Module::register_member(Member member, const std::string& name) {
  LIPGRAD_CHECK(!name.empty() && name.find('.') == std::string::npos,
                "module '{}': '{}' is no name for a member (empty, or with a '.')", path_, name);
  for (const Member& other : members_)
    LIPGRAD_CHECK(
        std::visit([](const auto* m) -> const std::string& { return m->name_; }, other) != name,
        "module '{}': two members are named '{}'", path_, name);
  members_.push_back(member);
}

void Module::unregister_member(Member member) noexcept { std::erase(members_, member); }

template <class F>
void Module::each_member(const std::string& prefix, F&& f) const {
  for (const Member& member : members_) {
    if (Module* const* module = std::get_if<Module*>(&member)) {
      (*module)->each_member(joined(prefix, (*module)->name_), f);
    } else if (Parameter* const* parameter = std::get_if<Parameter*>(&member)) {
      f(joined(prefix, (*parameter)->name_), *parameter);
    } else {
      Buffer* buffer = std::get<Buffer*>(member);
      f(joined(prefix, buffer->name_), buffer);
    }
  }
}

std::vector<std::pair<std::string, Parameter*>> Module::named_parameters() const {
  std::vector<std::pair<std::string, Parameter*>> found;
  each_member("", [&](std::string path, auto* member) {
    if constexpr (std::is_same_v<decltype(member), Parameter*>)
      found.emplace_back(std::move(path), member);
  });
  return found;
}

std::vector<std::pair<std::string, Buffer*>> Module::named_buffers() const {
  std::vector<std::pair<std::string, Buffer*>> found;
  each_member("", [&](std::string path, auto* member) {
    if constexpr (std::is_same_v<decltype(member), Buffer*>)
      found.emplace_back(std::move(path), member);
  });
  return found;
}

std::vector<Parameter*> Module::parameters() const {
  std::vector<Parameter*> found;
  for (auto& [path, parameter] : named_parameters()) found.push_back(parameter);
  return found;
}

std::int64_t Module::num_parameters() const {
  std::int64_t count = 0;
  for (const Parameter* parameter : parameters())
    if (parameter->trainable()) count += parameter->numel();
  return count;
}

void Module::initialize(Generator& rng) {
  each_member("", [&](const std::string&, auto* member) {
    if constexpr (std::is_same_v<decltype(member), Parameter*>) {
      member->initialize(rng);
    } else {
      member->initialize();
    }
  });
}

void Module::zero_grad() {
  for (Parameter* parameter : parameters()) parameter->zero_grad();
}

void Module::to(Device device) {
  each_member("", [&](const std::string&, auto* member) { member->to(device); });
}

void Module::to(DType dtype) {
  each_member("", [&](const std::string&, auto* member) { member->to(dtype); });
}

}  // namespace lipgrad
