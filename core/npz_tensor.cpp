#include <cstring>

#include <lipgrad/core/check.h>
#include <lipgrad/core/npz.h>

namespace lipgrad {

Tensor to_tensor(const NpyArray& array) {
  Tensor tensor = empty(array.shape, array.dtype);
  LIPGRAD_CHECK(static_cast<std::int64_t>(array.bytes.size()) == tensor.nbytes(),
                "npy: {} bytes for {} elements of {}", array.bytes.size(), tensor.numel(),
                array.dtype);
  if (!array.bytes.empty())
    std::memcpy(tensor.mutable_raw_data(), array.bytes.data(), array.bytes.size());
  return tensor;
}

Tensor load_npy(const std::string& path) { return to_tensor(read_npy(path)); }

std::map<std::string, Tensor> load_npz(const std::string& path,
                                       const std::vector<std::string>& names) {
  const NpzFile file(path);
  std::map<std::string, Tensor> tensors;
  for (const std::string& name : names.empty() ? file.names() : names)
    tensors[name] = to_tensor(file.read(name));
  return tensors;
}

namespace {

NpyView view_of(const Tensor& tensor) {
  return {tensor.dtype(), tensor.shape(),
          std::span(static_cast<const std::byte*>(tensor.raw_data()),
                    static_cast<std::size_t>(tensor.nbytes()))};
}

}  // namespace

void save_npy(const std::string& path, const Tensor& tensor) {
  LIPGRAD_CHECK(tensor.defined(), "{}: cannot save an undefined tensor", path);
  write_npy(path, view_of(tensor.detach().to(cpu_device)));
}

void save_npz(const std::string& path, const std::map<std::string, Tensor>& tensors) {
  std::vector<Tensor> local;  // keeps copies from another device alive
  std::vector<std::pair<std::string, NpyView>> views;
  for (const auto& [name, tensor] : tensors) {
    LIPGRAD_CHECK(tensor.defined(), "{}: cannot save '{}', an undefined tensor", path, name);
    local.push_back(tensor.detach().to(cpu_device));
    views.emplace_back(name, view_of(local.back()));
  }
  write_npz(path, views);
}

}  // namespace lipgrad
