#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <lipgrad/core/random.h>
#include <lipgrad/core/tape.h>
#include <lipgrad/core/tensor.h>

namespace lipgrad {

class Module;

// Fills a parameter's new value; the tensor is on the CPU.
using Initializer = std::function<void(Tensor& value, Generator& rng)>;

// A trainable tensor of a module. It converts to a Tensor that tapes know as a leaf. It has no
// value until Module::initialize() or a checkpoint gives it one; using it before is an error.
class Parameter {
 public:
  // Registers with the owner, whose parameters must have different names (no '.' in them).
  Parameter(Module& owner, std::string name, const Shape& shape, Initializer initializer,
            DType dtype = f32);
  ~Parameter();
  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;
  Parameter& operator=(const Tensor&) = delete;  // set_value() copies elements

  const std::string& name() const { return name_; }
  // Path from the root module: "a.weight".
  std::string path() const;
  const Shape& shape() const { return shape_; }
  std::int64_t numel() const { return shape_.numel(); }
  DType dtype() const { return dtype_; }
  bool initialized() const { return value_.defined(); }

  // Error while there is no value.
  const Tensor& value() const;
  operator const Tensor&() const { return value(); }
  // Copies elements of the same shape and dtype in.
  void set_value(const Tensor& value);
  // For optimisers: to write the elements in place.
  template <class T>
  T* mutable_data() {
    value();
    return value_.mutable_data<T>();
  }

  // The sum of the gradients since zero_grad(); undefined if there was none.
  const Tensor& grad() const { return grad_; }
  Tensor& mutable_grad() { return grad_; }
  void add_grad(Tensor g);
  void zero_grad() { grad_ = {}; }

  // A parameter that is not trainable counts as a constant.
  bool trainable() const { return trainable_; }
  void set_trainable(bool trainable) { trainable_ = trainable; }

  void initialize(Generator& rng);
  void to(Device device);
  void to(DType dtype);

 private:
  friend class Module;
  void adopt(Tensor value);

  Module* owner_;
  std::string name_;
  Shape shape_;
  DType dtype_;
  Device device_;
  Initializer initializer_;
  Tensor value_, grad_;
  bool trainable_ = true;
};

// A tensor of a module that is saved with it but not trained, such as a running mean. It is written
// through mutable_data(), which changes nothing while checkpoint() replays a forward pass.
class Buffer {
 public:
  Buffer(Module& owner, std::string name, const Shape& shape, double initial, DType dtype = f32);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  Buffer& operator=(const Tensor&) = delete;

  const std::string& name() const { return name_; }
  std::string path() const;
  const Shape& shape() const { return value_.shape(); }
  DType dtype() const { return value_.dtype(); }
  const Tensor& value() const { return value_; }
  operator const Tensor&() const { return value_; }
  void set_value(const Tensor& value);
  template <class T>
  T* mutable_data() {
    return writable().mutable_data<T>();
  }

  void initialize();
  void to(Device device);
  void to(DType dtype);

 private:
  friend class Module;
  Tensor& writable();

  Module* owner_;
  std::string name_;
  double initial_;
  Tensor value_;
  Tensor replayed_;  // takes the writes of a replay
};

// A piece of a model. Members register themselves with their parent as they are constructed:
//
//   struct Net : Module {
//     Linear a{*this, "a", 16, 32};
//     std::optional<Linear> b;            // b.emplace(*this, "b", 32, 4);
//     ModuleList<Linear> rest{*this, "rest"};
//   };
//
// Modules are neither copied nor moved. forward() has whatever signature the model needs.
class Module {
 public:
  Module() = default;  // the root of a model
  Module(Module& parent, std::string name);
  virtual ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // Path from the root: "blocks.3.attention"; the root's is empty.
  const std::string& path() const { return path_; }

  // Parameters and buffers of this module and those below it, with their paths from this module, in
  // the order of registration.
  std::vector<std::pair<std::string, Parameter*>> named_parameters() const;
  std::vector<std::pair<std::string, Buffer*>> named_buffers() const;
  std::vector<Parameter*> parameters() const;
  // Number of trainable elements.
  std::int64_t num_parameters() const;

  // Runs every parameter's own initialiser, in order, and sets buffers to their initial values.
  void initialize(Generator& rng);
  void zero_grad();
  // Swaps the storage inside parameters, gradients and buffers: optimisers stay valid.
  void to(Device device);
  void to(DType dtype);

 private:
  friend class Parameter;
  friend class Buffer;
  using Member = std::variant<Parameter*, Buffer*, Module*>;
  void register_member(Member member, const std::string& name);
  void unregister_member(Member member) noexcept;
  template <class F>
  void each_member(const std::string& prefix, F&& f) const;

  Module* parent_ = nullptr;
  std::string name_, path_;
  std::vector<Member> members_;
};

// Modules of one kind, named "0", "1", ...
template <class M>
class ModuleList : public Module {
 public:
  ModuleList(Module& parent, std::string name) : Module(parent, std::move(name)) {}

  // Constructs one more with M(list, its number, args...).
  template <class... Args>
  M& emplace_back(Args&&... args) {
    modules_.push_back(
        std::make_unique<M>(*this, std::to_string(modules_.size()), std::forward<Args>(args)...));
    return *modules_.back();
  }
  std::size_t size() const { return modules_.size(); }
  M& operator[](std::size_t i) { return *modules_[i]; }
  const M& operator[](std::size_t i) const { return *modules_[i]; }

 private:
  std::vector<std::unique_ptr<M>> modules_;
};

}  // namespace lipgrad
