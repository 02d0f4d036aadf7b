#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include <lipgrad/core/dtype.h>
#include <lipgrad/core/shape.h>

namespace lipgrad {

// A number or text among the state of an optimiser or a schedule.
using StateValue = std::variant<double, std::int64_t, std::string>;
using StateValues = std::map<std::string, StateValue>;

enum class TensorRole : std::uint8_t { parameter = 1, buffer = 2, state = 3 };

// "parameter", "buffer" or "state".
const char* name_of(TensorRole role);

// What a checkpoint holds, without its tensors' elements.
struct CheckpointInfo {
  struct TensorInfo {
    std::string name;
    TensorRole role = TensorRole::parameter;  // names are unique among the tensors of one role
    DType dtype = f32;
    Shape shape;
    std::int64_t offset = 0;  // in the file

    std::int64_t bytes() const { return shape.numel() * size_of(dtype); }
  };
  struct GeneratorInfo {
    std::uint64_t seed = 0, draw = 0;  // draw: the number of the next draw
  };
  struct StateInfo {
    std::string kind;  // "adam", "cosine"
    StateValues values;
  };

  std::uint32_t format = 0;     // of the file
  std::string library_version;  // of the lipgrad that wrote it
  std::int64_t step = 0, epoch = 0;
  std::string config;  // the model's configuration as the program stored it, usually JSON
  std::map<std::string, GeneratorInfo> generators;
  std::map<std::string, StateInfo> states;  // "optimizer", "schedule"
  std::map<std::string, std::string> metadata;
  std::vector<TensorInfo> tensors;
};

// Reads what a checkpoint holds; with `verify` also every tensor's checksums. The memory taken is
// bounded by the size of the file. Error "<path>: ..." in one line when there is no such file, it
// is no checkpoint, truncated, damaged, or written by a newer lipgrad in a format unknown here.
CheckpointInfo read_checkpoint_info(const std::string& path, bool verify = false);

}  // namespace lipgrad
