#include <lipgrad/core/checkpoint_file.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include <core/checkpoint.pb.h>
#include <lipgrad/config.h>
#include <lipgrad/core/check.h>

namespace lipgrad {
namespace {

constexpr std::int64_t kMaxManifestBytes = std::int64_t{1} << 20;
constexpr std::uint32_t kMaxEntryBytes = std::uint32_t{64} << 10;
constexpr std::size_t kMaxNameBytes = 4096;

proto::DType to_proto(DType dtype) {
  switch (dtype) {
    case f32:
      return proto::F32;
    case f64:
      return proto::F64;
    case i32:
      return proto::I32;
    case i64:
      return proto::I64;
    case u8:
      return proto::U8;
  }
  return proto::DTYPE_UNSPECIFIED;
}

bool from_proto(int dtype, DType& out) {
  for (const DType candidate : {f32, f64, i32, i64, u8}) {
    if (to_proto(candidate) != dtype) continue;
    out = candidate;
    return true;
  }
  return false;
}

void add_item(proto::Item& item, const std::string& key, const StateValue& value) {
  item.set_key(key);
  if (const auto* number = std::get_if<double>(&value))
    item.set_number(*number);
  else if (const auto* integer = std::get_if<std::int64_t>(&value))
    item.set_integer(*integer);
  else
    item.set_text(std::get<std::string>(value));
}

std::string serialized(const google::protobuf::MessageLite& message, const std::string& path) {
  std::string bytes;
  LIPGRAD_CHECK(message.SerializeToString(&bytes), "{}: protobuf cannot write {}", path,
                message.GetTypeName());
  return bytes;
}

// Bytes that a chunk of this many bytes takes in the file.
std::int64_t stride(std::int64_t chunk) { return RecordReader::next_offset(48, chunk) - 48; }

}  // namespace

const char* name_of(TensorRole role) {
  switch (role) {
    case TensorRole::parameter:
      return "parameter";
    case TensorRole::buffer:
      return "buffer";
    case TensorRole::state:
      return "state";
  }
  return "?";
}

std::string printable(const std::string& text, std::size_t limit) {
  std::string out;
  for (const char c : text.substr(0, limit)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f)
      out += fmt::format("\\x{:02x}", byte);
    else
      out += c;
  }
  return text.size() > limit ? out + "..." : out;
}

std::string quoted(const std::string& name) { return fmt::format("\"{}\"", printable(name, 200)); }

CheckpointFileWriter::CheckpointFileWriter(const std::string& path, const CheckpointInfo& info,
                                           std::int64_t chunk_bytes)
    : path_(path), records_(path), chunk_bytes_(chunk_bytes) {
  LIPGRAD_CHECK(chunk_bytes >= 1 && chunk_bytes <= checkpoint_chunk_bytes,
                "{}: chunks of {} bytes, expected 1 to {}", path, chunk_bytes,
                checkpoint_chunk_bytes);
  LIPGRAD_CHECK(info.step >= 0 && info.epoch >= 0, "{}: step {} and epoch {} must not be negative",
                path, info.step, info.epoch);
  proto::Manifest manifest;
  manifest.set_library_version(kVersion);
  manifest.set_step(info.step);
  manifest.set_epoch(info.epoch);
  manifest.set_config(info.config);
  manifest.set_chunk_bytes(chunk_bytes);
  for (const auto& [name, generator] : info.generators) {
    auto& out = *manifest.add_generators();
    out.set_name(name);
    out.set_seed(generator.seed);
    out.set_draw(generator.draw);
  }
  for (const auto& [name, state] : info.states) {
    auto& out = *manifest.add_states();
    out.set_name(name);
    out.set_kind(state.kind);
    for (const auto& [key, value] : state.values) add_item(*out.add_items(), key, value);
  }
  for (const auto& [key, value] : info.metadata) add_item(*manifest.add_metadata(), key, value);
  const std::string bytes = serialized(manifest, path);
  LIPGRAD_CHECK(static_cast<std::int64_t>(bytes.size()) <= kMaxManifestBytes,
                "{}: configuration, states and metadata take {} bytes, at most {} are possible",
                path, bytes.size(), kMaxManifestBytes);
  records_.write(RecordType::manifest, bytes);
}

void CheckpointFileWriter::add(const CheckpointInfo::TensorInfo& tensor,
                               std::span<const std::byte> data) {
  LIPGRAD_CHECK(!tensor.name.empty() && tensor.name.size() <= kMaxNameBytes,
                "{}: a {}'s name must have 1 to {} bytes, got {}", path_, name_of(tensor.role),
                kMaxNameBytes, tensor.name.size());
  LIPGRAD_CHECK(names_.emplace(tensor.role, tensor.name).second, "{}: two {}s are called {}", path_,
                name_of(tensor.role), quoted(tensor.name));
  LIPGRAD_CHECK(tensor.bytes() == static_cast<std::int64_t>(data.size()),
                "{}: {} has {} bytes, its shape {} needs {}", path_, quoted(tensor.name),
                data.size(), tensor.shape, tensor.bytes());
  proto::TensorEntry entry;
  entry.set_name(tensor.name);
  entry.set_role(static_cast<proto::Role>(tensor.role));
  entry.set_dtype(to_proto(tensor.dtype));
  for (const std::int64_t size : tensor.shape) entry.add_shape(size);
  entry.set_offset(records_.position());
  const std::string bytes = serialized(entry, path_);
  const auto size = static_cast<std::uint32_t>(bytes.size());
  index_.append(reinterpret_cast<const char*>(&size), sizeof size);
  index_ += bytes;
  while (!data.empty()) {
    const auto chunk = std::min(data.size(), static_cast<std::size_t>(chunk_bytes_));
    records_.write(RecordType::chunk, data.first(chunk));
    data = data.subspan(chunk);
  }
}

void CheckpointFileWriter::commit() { records_.commit(records_.write(RecordType::index, index_)); }

CheckpointFileReader::CheckpointFileReader(const std::string& path) : records_(path) {
  info_.format = records_.format();
  read_manifest();
  read_index();
}

void CheckpointFileReader::read_manifest() {
  const std::string bytes =
      records_.read(records_.first_offset(), RecordType::manifest, kMaxManifestBytes);
  first_chunk_ =
      RecordReader::next_offset(records_.first_offset(), static_cast<std::int64_t>(bytes.size()));
  proto::Manifest manifest;
  if (!manifest.ParseFromString(bytes)) records_.damaged("its manifest cannot be parsed");
  info_.library_version = manifest.library_version();
  info_.step = manifest.step();
  info_.epoch = manifest.epoch();
  if (info_.step < 0 || info_.epoch < 0)
    records_.damaged(
        fmt::format("its manifest claims step {} and epoch {}", info_.step, info_.epoch));
  chunk_bytes_ = manifest.chunk_bytes();
  if (chunk_bytes_ < 1 || chunk_bytes_ > checkpoint_chunk_bytes)
    records_.damaged(fmt::format("its manifest claims chunks of {} bytes", chunk_bytes_));
  info_.config = manifest.config();
  const auto check_new = [&](bool inserted, const char* kind, const std::string& name) {
    if (!inserted)
      records_.damaged(fmt::format("its manifest holds the {} {} twice", kind, quoted(name)));
  };
  for (const auto& generator : manifest.generators())
    check_new(info_.generators
                  .try_emplace(generator.name(),
                               CheckpointInfo::GeneratorInfo{generator.seed(), generator.draw()})
                  .second,
              "generator", generator.name());
  for (const auto& state : manifest.states()) {
    const auto [at, inserted] = info_.states.try_emplace(state.name());
    check_new(inserted, "state", state.name());
    at->second.kind = state.kind();
    for (const auto& item : state.items()) {
      StateValue value;
      // A kind of value that a later version added is left out; who needs it reports it missing.
      if (item.has_number())
        value = item.number();
      else if (item.has_integer())
        value = std::int64_t{item.integer()};
      else if (item.has_text())
        value = item.text();
      else
        continue;
      check_new(at->second.values.try_emplace(item.key(), std::move(value)).second, "value",
                state.name() + "." + item.key());
    }
  }
  for (const auto& item : manifest.metadata())
    check_new(info_.metadata.try_emplace(item.key(), item.text()).second, "metadata", item.key());
}

void CheckpointFileReader::read_index() {
  const std::int64_t index = records_.index_offset();
  const std::string bytes = records_.read(index, RecordType::index, records_.file_size());
  if (RecordReader::next_offset(index, static_cast<std::int64_t>(bytes.size())) !=
      records_.footer_offset())
    records_.damaged("its index is not followed by its footer");
  std::int64_t position = first_chunk_;
  for (std::size_t at = 0; at < bytes.size();) {
    std::uint32_t size = 0;
    if (bytes.size() - at >= sizeof size) std::memcpy(&size, bytes.data() + at, sizeof size);
    at += sizeof size;
    if (size == 0 || size > kMaxEntryBytes || at > bytes.size() || size > bytes.size() - at)
      records_.damaged(
          fmt::format("entry {} of its index claims {} bytes", info_.tensors.size(), size));
    add_tensor(bytes.data() + at, size, position);
    at += size;
  }
  if (position != index)
    records_.damaged(
        fmt::format("its tensors end at byte {}, its index starts at {}", position, index));
  std::set<std::pair<TensorRole, std::string_view>> names;
  for (const auto& tensor : info_.tensors) {
    if (!names.emplace(tensor.role, tensor.name).second)
      records_.damaged(fmt::format("its index lists the {} {} twice", name_of(tensor.role),
                                   quoted(tensor.name)));
  }
}

void CheckpointFileReader::add_tensor(const char* bytes, std::uint32_t size,
                                      std::int64_t& position) {
  proto::TensorEntry entry;
  if (!entry.ParseFromArray(bytes, static_cast<int>(size)))
    records_.damaged(fmt::format("entry {} of its index cannot be parsed", info_.tensors.size()));
  CheckpointInfo::TensorInfo tensor;
  tensor.name = entry.name();
  const std::string name = quoted(tensor.name);
  if (tensor.name.empty() || tensor.name.size() > kMaxNameBytes)
    records_.damaged(fmt::format("entry {} of its index has a name of {} bytes",
                                 info_.tensors.size(), tensor.name.size()));
  if (entry.role() < proto::PARAMETER || entry.role() > proto::STATE)
    records_.damaged(
        fmt::format("tensor {} has the unknown role {}", name, static_cast<int>(entry.role())));
  tensor.role = static_cast<TensorRole>(entry.role());
  if (!from_proto(entry.dtype(), tensor.dtype))
    records_.damaged(
        fmt::format("tensor {} has the unknown dtype {}", name, static_cast<int>(entry.dtype())));
  std::int64_t data = 0;
  try {
    tensor.shape =
        Shape(std::span(entry.shape().data(), static_cast<std::size_t>(entry.shape_size())));
    LIPGRAD_CHECK(!__builtin_mul_overflow(tensor.shape.numel(), size_of(tensor.dtype), &data),
                  "shape: {} is too large", tensor.shape);
  } catch (const Error& error) {
    records_.damaged(fmt::format("tensor {}: {}", name, error.what()));
  }
  tensor.offset = entry.offset();
  if (tensor.offset != position)
    records_.damaged(fmt::format("tensor {} should start at byte {}, its index says {}", name,
                                 position, tensor.offset));
  const std::int64_t room = records_.index_offset() - position;
  const std::int64_t whole = data / chunk_bytes_, rest = data % chunk_bytes_;
  if (data > room || whole > room / stride(chunk_bytes_))
    records_.damaged(fmt::format("tensor {} of shape {} needs more bytes than the {} it can have",
                                 name, tensor.shape, std::max<std::int64_t>(room, 0)));
  position += whole * stride(chunk_bytes_) + (rest > 0 ? stride(rest) : 0);
  info_.tensors.push_back(std::move(tensor));
}

void CheckpointFileReader::read(const CheckpointInfo::TensorInfo& tensor,
                                std::span<std::byte> out) const {
  LIPGRAD_CHECK(static_cast<std::int64_t>(out.size()) == tensor.bytes(),
                "{}: {} bytes of room for {} bytes", records_.path(), out.size(), tensor.bytes());
  const std::string what = "tensor " + quoted(tensor.name);
  std::int64_t offset = tensor.offset;
  while (!out.empty()) {
    const auto chunk = std::min(out.size(), static_cast<std::size_t>(chunk_bytes_));
    records_.read_into(offset, RecordType::chunk, out.first(chunk), what);
    offset += stride(static_cast<std::int64_t>(chunk));
    out = out.subspan(chunk);
  }
}

void CheckpointFileReader::verify() const {
  std::vector<std::byte> buffer;
  for (const auto& tensor : info_.tensors) {
    std::int64_t offset = tensor.offset;
    for (std::int64_t left = tensor.bytes(); left > 0;) {
      const std::int64_t chunk = std::min(left, chunk_bytes_);
      buffer.resize(static_cast<std::size_t>(chunk));
      records_.read_into(offset, RecordType::chunk, buffer, "tensor " + quoted(tensor.name));
      offset += stride(chunk);
      left -= chunk;
    }
  }
}

CheckpointInfo read_checkpoint_info(const std::string& path, bool verify) {
  const CheckpointFileReader reader(path);
  if (verify) reader.verify();
  return reader.info();
}

}  // namespace lipgrad
