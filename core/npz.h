#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <lipgrad/core/dtype.h>
#include <lipgrad/core/shape.h>
#include <lipgrad/core/tensor.h>
#include <lipgrad/core/zip.h>

namespace lipgrad {

// Tensors in NumPy's files: load_npy, load_npz, save_npy and save_npz below. What they stand on,
// NpyArray and NpzFile, is public as well: it reads an archive array by array.
//
// NumPy's .npy files (format versions 1 to 3) and .npz archives (ZIP, stored or deflated, zip64).
// Element types: <f4 <f8 <i4 <i8 |u1, and |i1, widened to i32, and |b1, as u8 of 0 and 1. Any other
// type (strings, objects, big-endian numbers) is refused when that array is asked for. Fortran
// order is turned into C order. The readers are safe on untrusted input: a damaged file gives Error
// "<file>: ...", and memory is allocated for what the file holds, not for what it promises.

// An array on the host in C order.
struct NpyArray {
  DType dtype = f32;
  Shape shape;
  std::vector<std::byte> bytes;

  // The elements; Error unless T is the array's dtype.
  template <class T>
  std::span<const T> values() const {
    if (dtype != dtype_of<T>()) throw_wrong_dtype(dtype, dtype_of<T>());
    return {reinterpret_cast<const T*>(bytes.data()), static_cast<std::size_t>(shape.numel())};
  }

 private:
  [[noreturn]] static void throw_wrong_dtype(DType given, DType wanted);
};

// The array in a .npy file.
NpyArray read_npy(const std::string& path);
// The same from memory; errors start with `file`.
NpyArray parse_npy(std::span<const std::byte> bytes, const std::string& file);

// The arrays of a .npz file. Opening reads the file and its directory; each array is decoded when
// asked for.
class NpzFile {
 public:
  explicit NpzFile(const std::string& path);
  // The same from memory; errors start with `file`.
  NpzFile(std::vector<std::byte> bytes, const std::string& file);
  // Moved only: a copy would hold the whole file once more.
  NpzFile(NpzFile&&) = default;
  NpzFile& operator=(NpzFile&&) = default;

  // The path, or what stands for it in errors.
  const std::string& file() const { return archive_.file(); }
  // Names as numpy gives them (without ".npy"), in the order of the archive.
  const std::vector<std::string>& names() const { return names_; }
  bool contains(const std::string& name) const { return index_.contains(name); }
  // Error when there is no such array (it lists those there are) or it cannot be read.
  NpyArray read(const std::string& name) const;

 private:
  std::vector<std::byte> bytes_;
  ZipArchive archive_;
  std::vector<std::string> names_;
  std::map<std::string, std::size_t> index_;
};

// What the writers take: elements that lie in memory in C order.
struct NpyView {
  DType dtype;
  Shape shape;
  std::span<const std::byte> bytes;

  NpyView(DType type, const Shape& sizes, std::span<const std::byte> elements)
      : dtype(type), shape(sizes), bytes(elements) {}
  NpyView(const NpyArray& array) : NpyView(array.dtype, array.shape, array.bytes) {}
};

// Writes a .npy file (version 1) that numpy.load reads; whole or not at all (see AtomicFile).
void write_npy(const std::string& path, const NpyView& array);
// Writes a .npz archive, stored, with zip64 fields where sizes need them; whole or not at all. The
// same arrays give the same bytes. Error when a name is empty or used twice.
void write_npz(const std::string& path, std::span<const std::pair<std::string, NpyView>> arrays);

// The tensor of an array, on the CPU.
Tensor to_tensor(const NpyArray& array);

// The tensor in a .npy file.
Tensor load_npy(const std::string& path);
// The tensors in a .npz file by name: those named, or all. Error when one of them cannot be read.
std::map<std::string, Tensor> load_npz(const std::string& path,
                                       const std::vector<std::string>& names = {});
// The same as the writers above. No gradient is recorded.
void save_npy(const std::string& path, const Tensor& tensor);
void save_npz(const std::string& path, const std::map<std::string, Tensor>& tensors);

}  // namespace lipgrad
