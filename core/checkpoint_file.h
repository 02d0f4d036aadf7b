#pragma once

// Private: the file under core/checkpoint.h, in terms of bytes instead of tensors.

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>

#include <lipgrad/core/checkpoint_info.h>
#include <lipgrad/core/record_file.h>

namespace lipgrad {

// Far below protobuf's 2 GiB, and a bound on what a reader needs beside the tensor itself.
inline constexpr std::int64_t checkpoint_chunk_bytes = std::int64_t{64} << 20;

// Text from a file, fit for one line of an error message: other than ASCII characters escaped, long
// text cut. quoted() adds quotation marks.
std::string printable(const std::string& text, std::size_t limit);
std::string quoted(const std::string& name);

class CheckpointFileWriter {
 public:
  // Writes the manifest: everything in `info` but its tensors, its format and its library_version,
  // which are this library's. Error when the manifest would be too long to read again.
  CheckpointFileWriter(const std::string& path, const CheckpointInfo& info,
                       std::int64_t chunk_bytes = checkpoint_chunk_bytes);
  // Appends a tensor of tensor.bytes() bytes; tensor.offset is ignored.
  void add(const CheckpointInfo::TensorInfo& tensor, std::span<const std::byte> data);
  // Completes the file and makes it visible.
  void commit();

 private:
  std::string path_;
  RecordWriter records_;
  std::int64_t chunk_bytes_;
  std::string index_;
  std::set<std::pair<TensorRole, std::string>> names_;
};

class CheckpointFileReader {
 public:
  // Reads manifest and index and checks that the tensors fill the file without gap or overlap.
  explicit CheckpointFileReader(const std::string& path);

  const CheckpointInfo& info() const { return info_; }
  const std::string& path() const { return records_.path(); }
  std::int64_t file_bytes() const { return records_.file_size(); }
  // The elements of one of info().tensors, tensor.bytes() bytes.
  void read(const CheckpointInfo::TensorInfo& tensor, std::span<std::byte> out) const;
  // Reads all tensors once, for their checksums.
  void verify() const;

 private:
  void read_manifest();
  void read_index();
  void add_tensor(const char* entry, std::uint32_t size, std::int64_t& position);

  RecordReader records_;
  CheckpointInfo info_;
  std::int64_t chunk_bytes_ = 0, first_chunk_ = 0;
};

}  // namespace lipgrad
