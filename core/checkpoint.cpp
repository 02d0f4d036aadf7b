#include <lipgrad/core/checkpoint.h>

#include <cstddef>
#include <functional>
#include <span>
#include <utility>

#include <fmt/ranges.h>

#include <lipgrad/core/check.h>
#include <lipgrad/core/checkpoint_file.h>

namespace lipgrad {
namespace {

using TensorInfo = CheckpointInfo::TensorInfo;

constexpr const char* kOptimizer = "optimizer";
constexpr const char* kSchedule = "schedule";
constexpr const char* kGenerator = "generator";

void add(CheckpointFileWriter& file, const std::string& name, TensorRole role,
         const Tensor& tensor) {
  const Tensor local = tensor.detach().to(cpu_device);
  file.add(
      {name, role, local.dtype(), local.shape()},
      {static_cast<const std::byte*>(local.raw_data()), static_cast<std::size_t>(local.nbytes())});
}

Tensor read_tensor(const CheckpointFileReader& file, const TensorInfo& info) {
  Tensor tensor = empty(info.shape, info.dtype);
  file.read(info, {static_cast<std::byte*>(tensor.mutable_raw_data()),
                   static_cast<std::size_t>(tensor.nbytes())});
  return tensor;
}

// Matches the file's parameters and buffers with the module's.
class ModuleLoader {
 public:
  ModuleLoader(const Module& module, const CheckpointInfo& info) {
    std::map<std::pair<TensorRole, std::string>, const TensorInfo*> stored;
    for (const TensorInfo& tensor : info.tensors)
      if (tensor.role != TensorRole::state) stored[{tensor.role, tensor.name}] = &tensor;
    for (const auto& [path, parameter] : module.named_parameters())
      match(stored, TensorRole::parameter, path, *parameter, parameters_);
    for (const auto& [path, buffer] : module.named_buffers())
      match(stored, TensorRole::buffer, path, *buffer, buffers_);
    for (const auto& [key, tensor] : stored)
      unexpected.push_back(describe(tensor->role, tensor->name, tensor->dtype, tensor->shape));
  }

  // Reads the tensors that match; then assign() copies them into the module.
  void read(const CheckpointFileReader& file) {
    for (auto& entry : parameters_) entry.value = read_tensor(file, *entry.info);
    for (auto& entry : buffers_) entry.value = read_tensor(file, *entry.info);
  }
  void assign() {
    for (auto& entry : parameters_) entry.target->set_value(entry.value);
    for (auto& entry : buffers_) entry.target->set_value(entry.value);
  }

  std::vector<std::string> missing, unexpected, mismatched;

 private:
  template <class Target>
  struct Entry {
    Target* target;
    const TensorInfo* info;
    Tensor value;
  };

  static std::string describe(TensorRole role, const std::string& path, DType dtype,
                              const Shape& shape) {
    return fmt::format("{} {} {} {}", name_of(role), quoted(path), dtype, shape);
  }

  template <class Stored, class Target>
  void match(Stored& stored, TensorRole role, const std::string& path, Target& target,
             std::vector<Entry<Target>>& entries) {
    const auto at = stored.find({role, path});
    if (at == stored.end()) {
      missing.push_back(describe(role, path, target.dtype(), target.shape()));
      return;
    }
    const TensorInfo* info = at->second;
    stored.erase(at);
    if (info->dtype == target.dtype() && info->shape == target.shape())
      entries.push_back({&target, info, {}});
    else
      mismatched.push_back(fmt::format("{}, the model has {} {}",
                                       describe(role, path, info->dtype, info->shape),
                                       target.dtype(), target.shape()));
  }

  std::vector<Entry<Parameter>> parameters_;
  std::vector<Entry<Buffer>> buffers_;
};

void add_problems(std::vector<std::string>& all, const char* what,
                  const std::vector<std::string>& some) {
  if (!some.empty()) all.push_back(fmt::format("{}: {}", what, fmt::join(some, ", ")));
}

// Its tensors are all of the file's state but those of the names given.
OptimizerState read_optimizer_state(const CheckpointFileReader& file,
                                    const CheckpointInfo::StateInfo& info,
                                    const std::map<std::string, Tensor>* others) {
  OptimizerState state;
  state.kind = info.kind;
  state.values = info.values;
  for (const TensorInfo& tensor : file.info().tensors)
    if (tensor.role == TensorRole::state && !(others && others->contains(tensor.name)))
      state.tensors[tensor.name] = read_tensor(file, tensor);
  return state;
}

// The tensors of the names given; what is wrong is added to `problems`.
std::map<std::string, Tensor> read_tensors(const CheckpointFileReader& file,
                                           const std::map<std::string, Tensor>& wanted,
                                           std::vector<std::string>& problems) {
  std::map<std::string, Tensor> found;
  for (const TensorInfo& tensor : file.info().tensors) {
    const auto at = wanted.find(tensor.name);
    if (tensor.role != TensorRole::state || at == wanted.end()) continue;
    if (tensor.dtype != at->second.dtype() || tensor.shape != at->second.shape())
      problems.push_back(fmt::format("state {} is {} {}, expected {} {}", quoted(tensor.name),
                                     tensor.dtype, tensor.shape, at->second.dtype(),
                                     at->second.shape()));
    found[tensor.name] = read_tensor(file, tensor);
  }
  for (const auto& [name, tensor] : wanted)
    if (!found.contains(name)) problems.push_back(fmt::format("it holds no {}", quoted(name)));
  return found;
}

}  // namespace

void save_checkpoint(const std::string& path, const Module& module, const SaveOptions& options) {
  CheckpointInfo info;
  info.step = options.step;
  info.epoch = options.epoch;
  info.config = options.config;
  info.metadata = options.metadata;
  if (options.generator)
    info.generators[kGenerator] = {options.generator->seed(), options.generator->next_draw()};
  if (options.schedule)
    info.states[kSchedule] = {options.schedule->kind(), options.schedule->state()};
  OptimizerState optimizer;
  if (options.optimizer) {
    optimizer = options.optimizer->state();
    info.states[kOptimizer] = {optimizer.kind, optimizer.values};
  }
  CheckpointFileWriter file(path, info);
  for (const auto& [name, parameter] : module.named_parameters()) {
    LIPGRAD_CHECK(parameter->initialized(), "{}: cannot save: parameter {} has no value", path,
                  quoted(name));
    add(file, name, TensorRole::parameter, parameter->value());
  }
  for (const auto& [name, buffer] : module.named_buffers())
    add(file, name, TensorRole::buffer, buffer->value());
  for (const auto& [name, tensor] : optimizer.tensors) add(file, name, TensorRole::state, tensor);
  for (const auto& [name, tensor] : options.tensors) add(file, name, TensorRole::state, tensor);
  file.commit();
}

LoadReport load_checkpoint(const std::string& path, Module& module, const LoadOptions& options) {
  const CheckpointFileReader file(path);
  const CheckpointInfo& info = file.info();
  ModuleLoader loader(module, info);

  std::vector<std::string> problems;
  if (options.strict) {
    add_problems(problems, "missing", loader.missing);
    add_problems(problems, "unexpected", loader.unexpected);
    add_problems(problems, "mismatched", loader.mismatched);
  }
  const auto part = [&](const void* wanted, const auto& parts, const char* name) {
    const auto at = parts.find(name);
    if (wanted && at == parts.end()) problems.push_back(fmt::format("it holds no {}", name));
    return wanted && at != parts.end() ? &at->second : nullptr;
  };
  const auto* generator = part(options.generator, info.generators, kGenerator);
  const auto* schedule = part(options.schedule, info.states, kSchedule);
  const auto* optimizer = part(options.optimizer, info.states, kOptimizer);
  if (schedule) add_problems(problems, kSchedule, options.schedule->problems(*schedule));
  OptimizerState state;
  if (optimizer) {
    state = read_optimizer_state(file, *optimizer, options.tensors);
    add_problems(problems, kOptimizer, options.optimizer->problems(state));
  }
  std::map<std::string, Tensor> tensors;
  if (options.tensors) tensors = read_tensors(file, *options.tensors, problems);
  if (!problems.empty()) {
    fail("{}: does not fit this program; nothing was loaded: {}{}", path, fmt::join(problems, "; "),
         info.config.empty()
             ? std::string()
             : "; it was saved with the configuration " + printable(info.config, 400));
  }

  loader.read(file);
  loader.assign();
  if (optimizer) options.optimizer->load_state(std::move(state));
  if (schedule) options.schedule->load_state(*schedule);
  if (options.tensors) *options.tensors = std::move(tensors);
  if (generator) options.generator->restore(generator->seed, generator->draw);
  return {info, std::move(loader.missing), std::move(loader.unexpected),
          std::move(loader.mismatched)};
}

CheckpointReader::CheckpointReader(const std::string& path)
    : file_(std::make_unique<CheckpointFileReader>(path)) {}
CheckpointReader::~CheckpointReader() = default;
CheckpointReader::CheckpointReader(CheckpointReader&&) noexcept = default;
CheckpointReader& CheckpointReader::operator=(CheckpointReader&&) noexcept = default;

const CheckpointInfo& CheckpointReader::info() const { return file_->info(); }
std::int64_t CheckpointReader::file_bytes() const { return file_->file_bytes(); }

Tensor CheckpointReader::read(const TensorInfo& tensor) const {
  const std::vector<TensorInfo>& own = info().tensors;
  const std::less<const TensorInfo*> before;
  if (!before(&tensor, own.data()) && before(&tensor, own.data() + own.size()))
    return read_tensor(*file_, tensor);
  // Another one's offset and shape need not be those in this file.
  return read(tensor.name, tensor.role);
}

Tensor CheckpointReader::read(const std::string& name, TensorRole role) const {
  for (const TensorInfo& tensor : info().tensors)
    if (tensor.role == role && tensor.name == name) return read_tensor(*file_, tensor);
  fail("{}: it holds no {} {}", file_->path(), name_of(role), quoted(name));
}

}  // namespace lipgrad
