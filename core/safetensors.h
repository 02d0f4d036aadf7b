#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <lipgrad/core/tensor.h>

// Tensors by name in .safetensors files, the format of Hugging Face's library of that name:
//
//   u64 size of the header, little-endian | header, JSON | data
//
// The header maps each name to {"dtype", "shape", "data_offsets": [begin, end]}, offsets counted
// from the header's end, and "__metadata__" to texts by name. Elements are little-endian and
// row-major.
//
// Files may be hostile: all that a header says is checked against the file's size when it is
// opened, before anything is allocated for it. Refused are headers of more than 100,000,000 bytes,
// names or fields that come twice, fields that the format does not know, shapes whose sizes
// overflow, offsets that do not fit dtype and shape, and data with gaps or overlaps or bytes left
// over. Elements may lie at any address. Every Error is one line "<path>: ...".
//
// F32, F64, I32, I64 and U8 are read as they are. What lipgrad has no dtype for is widened to one
// that holds every value exactly: F16 and BF16 to f32; I8, I16 and U16 to i32; U32 to i64; BOOL to
// u8, of 0 and 1. A tensor of any other dtype (U64, C64, F8_E4M3, or one that is not known here) is
// refused when it is asked for; the others of its file can be read.
namespace lipgrad {

class SafetensorsFile {
 public:
  struct TensorInfo {
    std::string name;
    std::string dtype;  // as the file spells it: "F32", "BF16"
    Shape shape;
    std::int64_t offset = 0, bytes = 0;  // in the file
  };

  // Reads and checks the header.
  explicit SafetensorsFile(const std::string& path);
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;

  const std::string& path() const;
  std::int64_t file_bytes() const;
  // In the order of their data.
  const std::vector<TensorInfo>& tensors() const;
  const std::map<std::string, std::string>& metadata() const;
  // The tensor of that name, or null.
  const TensorInfo* find(const std::string& name) const;

  // The tensor of that name, on the CPU. Error when there is none or its dtype cannot be read.
  Tensor read(const std::string& name) const;

  // The dtype that read() gives; Error "<path>: tensor ..." when lipgrad has none for it.
  DType dtype_to_read(const TensorInfo& tensor) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A tensor to write: `load` is called once, when its turn comes, so that not all need be in memory
// at once. It must give a tensor of this dtype and shape, on any device.
struct SafetensorsItem {
  std::string name;
  DType dtype = f32;
  Shape shape;
  std::function<Tensor()> load;
};

// Writes a file that appears whole or not at all (see AtomicFile). The same content gives the same
// bytes. Data begin at a multiple of 64 and are sorted as by the official library, by dtype, widest
// first, then by name, so that every tensor is aligned to its elements. Error when a name is used
// twice, is "__metadata__" or no UTF-8.
void write_safetensors(const std::string& path, std::vector<SafetensorsItem> items,
                       const std::map<std::string, std::string>& metadata = {});
// The same for tensors at hand.
void save_safetensors(const std::string& path, const std::map<std::string, Tensor>& tensors,
                      const std::map<std::string, std::string>& metadata = {});

// The tensors of a file by name: those named, or all. Error when one of them cannot be read.
std::map<std::string, Tensor> load_safetensors(const std::string& path,
                                               const std::vector<std::string>& names = {});

}  // namespace lipgrad
