#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <lipgrad/core/checkpoint_info.h>
#include <lipgrad/core/module.h>
#include <lipgrad/core/optimizer.h>
#include <lipgrad/core/random.h>

namespace lipgrad {

// What goes into a checkpoint beside the module's parameters and buffers; null parts are left out.
// A run that goes on from a checkpoint with all its parts gives the same bits as one that never
// stopped.
struct SaveOptions {
  const Optimizer* optimizer = nullptr;
  const Schedule* schedule = nullptr;
  const Generator* generator = nullptr;
  // More state by name, such as averages of the parameters; no name is one of the optimiser's.
  std::map<std::string, Tensor> tensors = {};
  std::int64_t step = 0, epoch = 0;                  // >= 0
  std::string config = {};                           // of the model, usually JSON
  std::map<std::string, std::string> metadata = {};  // anything else; 1 MiB with the above
};

// Writes a checkpoint. The file appears whole, flushed to disk, or not at all: whatever happens,
// what was at `path` before stays readable (see AtomicFile). The same content gives the same bytes.
// Error
// "<path>: ..." when it cannot be written, or a parameter has no value.
void save_checkpoint(const std::string& path, const Module& module,
                     const SaveOptions& options = {});

struct LoadOptions {
  // Parts to restore; each of them must be in the file and fit. Null: not restored.
  Optimizer* optimizer = nullptr;
  Schedule* schedule = nullptr;
  Generator* generator = nullptr;
  // More state to read: all tensors of these names, which get the file's elements; shapes and
  // dtypes must be equal.
  std::map<std::string, Tensor>* tensors = nullptr;
  // Whether the module must have exactly the file's parameters and buffers. Otherwise those are
  // loaded that have the same name, shape and dtype on both sides; the report lists the others.
  bool strict = true;
};

struct LoadReport {
  CheckpointInfo info;
  // Parameters and buffers, each with what is wrong with it.
  std::vector<std::string> missing;     // of the module, not in the file
  std::vector<std::string> unexpected;  // in the file, not of the module
  std::vector<std::string> mismatched;  // of another shape or dtype in the file
};

// Reads a checkpoint into a module, which need not be initialised. All is read and checked before
// anything is changed: on an error nothing is loaded. Error "<path>: ..." in one line, for a file
// that cannot be used (see read_checkpoint_info), and for one that does not fit, naming everything
// that is missing, unexpected or of another shape or dtype.
LoadReport load_checkpoint(const std::string& path, Module& module,
                           const LoadOptions& options = {});

// Reads single tensors of a checkpoint, without a module: to look into a file, to convert it, to
// take over parts.
class CheckpointReader {
 public:
  // Error "<path>: ..." as read_checkpoint_info() gives.
  explicit CheckpointReader(const std::string& path);
  ~CheckpointReader();
  CheckpointReader(CheckpointReader&&) noexcept;
  CheckpointReader& operator=(CheckpointReader&&) noexcept;

  const CheckpointInfo& info() const;
  std::int64_t file_bytes() const;

  // One of info().tensors, on the CPU, its checksums verified; what another CheckpointInfo holds is
  // looked up by its name and role. Error "<path>: ..." when it is damaged or the file has none.
  Tensor read(const CheckpointInfo::TensorInfo& tensor) const;
  // The tensor of that name; Error when the file holds none.
  Tensor read(const std::string& name, TensorRole role = TensorRole::parameter) const;

 private:
  std::unique_ptr<class CheckpointFileReader> file_;
};

}  // namespace lipgrad
