#include <lipgrad/core/safetensors.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>

#include <lipgrad/core/check.h>
#include <lipgrad/core/input_file.h>
#include <lipgrad/core/printable.h>

namespace lipgrad {
namespace {

using Json = nlohmann::json;
using TensorInfo = SafetensorsFile::TensorInfo;

static_assert(std::endian::native == std::endian::little, "elements are stored little-endian");

constexpr std::int64_t kSizeBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // as in the official reader
constexpr const char* kMetadata = "__metadata__";

struct ElementType {
  const char* name;
  std::int64_t bits;
  std::optional<DType> read_as = {};
};

constexpr ElementType kTypes[] = {
    {"F32", 32, f32}, {"F64", 64, f64}, {"F16", 16, f32},   {"BF16", 16, f32},  {"I64", 64, i64},
    {"I32", 32, i32}, {"I16", 16, i32}, {"I8", 8, i32},     {"U8", 8, u8},      {"BOOL", 8, u8},
    {"U16", 16, i32}, {"U32", 32, i64}, {"U64", 64},        {"C64", 64},        {"F8_E4M3", 8},
    {"F8_E5M2", 8},   {"F8_E8M0", 8},   {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"F6_E2M3", 6},
    {"F6_E3M2", 6},   {"F4", 4}};

const ElementType* find_type(const std::string& name) {
  for (const ElementType& type : kTypes)
    if (name == type.name) return &type;
  return nullptr;
}

std::string in_quotes(const std::string& text) { return '"' + printable(text) + '"'; }

// What nlohmann's parser finds, piece by piece: no tree is built and nothing recurses, and a name
// that comes twice is seen. Offsets of tensors count from the end of the header.
class HeaderReader final : public nlohmann::json_sax<Json> {
 public:
  HeaderReader(const std::string& path, std::int64_t data_bytes)
      : path_(path), data_bytes_(data_bytes) {}

  std::vector<TensorInfo> tensors;
  std::map<std::string, std::string> metadata;

  bool null() override { refuse_value("null"); }
  bool boolean(bool) override { refuse_value("a truth value"); }
  bool number_integer(std::int64_t value) override { refuse_value(fmt::format("{}", value)); }
  bool number_float(double, const std::string& text) override { refuse_value(printable(text)); }
  bool binary(Json::binary_t&) override { refuse_value("bytes"); }

  bool number_unsigned(std::uint64_t value) override {
    if (at_ != At::numbers) refuse_value(fmt::format("{}", value));
    const std::size_t most = field_ == kShape ? Shape::max_rank : 2;
    if (numbers_.size() == most)
      refuse(fmt::format("its {} has more than {} numbers", kFields[field_], most));
    if (value > std::numeric_limits<std::int64_t>::max())
      refuse(fmt::format("its {} holds {}, which is too large", kFields[field_], value));
    numbers_.push_back(static_cast<std::int64_t>(value));
    return true;
  }

  bool string(std::string& value) override {
    if (at_ == At::metadata) {
      if (!metadata.emplace(std::move(text_name_), std::move(value)).second)
        refuse("a name comes twice");
    } else if (at_ == At::entry && field_ == kDtype) {
      tensors.back().dtype = std::move(value);
    } else {
      refuse_value("the text " + in_quotes(value));
    }
    return true;
  }

  bool key(std::string& name) override {
    if (at_ == At::metadata) {
      text_name_ = std::move(name);
    } else if (at_ == At::entry) {
      field_ = static_cast<Field>(std::find(kFields, kFields + kUnknown, name) - kFields);
      if (field_ == kUnknown) refuse("unknown field " + in_quotes(name));
      if (seen_[field_]) refuse(fmt::format("its {} comes twice", kFields[field_]));
      seen_[field_] = true;
    } else if (name == kMetadata) {
      in_metadata_ = true;
      if (metadata_seen_) refuse("comes twice");
      metadata_seen_ = true;
    } else {
      in_metadata_ = false;
      tensors.emplace_back().name = std::move(name);
    }
    return true;
  }

  bool start_object(std::size_t) override {
    if (at_ == At::start)
      at_ = At::names;
    else if (at_ == At::names)
      at_ = in_metadata_ ? At::metadata : At::entry;
    else
      refuse_value("an object");
    std::fill(seen_, seen_ + kUnknown, false);
    return true;
  }

  bool end_object() override {
    if (at_ == At::entry) finish_entry();
    at_ = at_ == At::names ? At::end : At::names;
    return true;
  }

  bool start_array(std::size_t) override {
    if (at_ != At::entry || field_ == kDtype) refuse_value("an array");
    at_ = At::numbers;
    numbers_.clear();
    return true;
  }

  bool end_array() override {
    at_ = At::entry;
    TensorInfo& tensor = tensors.back();
    if (field_ == kShape) {
      try {
        tensor.shape = Shape(numbers_);
      } catch (const Error& error) {
        refuse(error.what());
      }
    } else {
      if (numbers_.size() != 2)
        refuse(fmt::format("its data_offsets have {} numbers, expected 2", numbers_.size()));
      if (numbers_[0] > numbers_[1])
        refuse(fmt::format("its data begin at {} and end at {}", numbers_[0], numbers_[1]));
      if (numbers_[1] > data_bytes_)
        refuse(fmt::format("its data end at byte {}, the file holds {} bytes of data", numbers_[1],
                           data_bytes_));
      tensor.offset = numbers_[0];
      tensor.bytes = numbers_[1] - numbers_[0];
    }
    return true;
  }

  bool parse_error(std::size_t position, const std::string& last, const Json::exception&) override {
    fail("{}: the header is not JSON at byte {} of the file: {}", path_,
         kSizeBytes + static_cast<std::int64_t>(position), printable(last, 40));
  }

 private:
  enum class At { start, names, metadata, entry, numbers, end };
  enum Field { kDtype, kShape, kOffsets, kUnknown };
  static constexpr const char* kFields[] = {"dtype", "shape", "data_offsets"};

  [[noreturn]] void refuse(const std::string& why) const {
    std::string place = "header";
    if (at_ != At::start && in_metadata_)
      place = kMetadata;
    else if (!tensors.empty())
      place = "tensor " + in_quotes(tensors.back().name);
    fail("{}: {}: {}", path_, place, why);
  }

  [[noreturn]] void refuse_value(const std::string& what) const {
    if (at_ == At::names) refuse(what + " stands for it, expected an object");
    if (at_ == At::metadata) refuse(in_quotes(text_name_) + " is " + what + ", expected a text");
    refuse(fmt::format("its {} is or holds {}, expected {}", kFields[field_], what,
                       field_ == kDtype ? "a text" : "an array of whole numbers"));
  }

  void finish_entry() const {
    for (int field = 0; field < kUnknown; ++field)
      if (!seen_[field]) refuse(fmt::format("it has no {}", kFields[field]));
    const TensorInfo& tensor = tensors.back();
    const ElementType* type = find_type(tensor.dtype);
    if (!type) return;  // nobody can read it, so nobody relies on its size
    std::int64_t bits = 0;
    if (__builtin_mul_overflow(tensor.shape.numel(), type->bits, &bits) || bits % 8 != 0 ||
        bits / 8 != tensor.bytes)
      refuse(fmt::format("it has {} bytes of data, which is not what {} of shape {} needs",
                         tensor.bytes, tensor.dtype, tensor.shape));
  }

  const std::string& path_;
  const std::int64_t data_bytes_;
  At at_ = At::start;
  Field field_ = kDtype;
  bool seen_[kUnknown] = {};
  bool in_metadata_ = false, metadata_seen_ = false;
  std::string text_name_;
  std::vector<std::int64_t> numbers_;
};

// Sorts the tensors by their data, which must fill the file without gap or overlap.
void check_layout(const std::string& path, std::vector<TensorInfo>& tensors,
                  std::int64_t data_bytes) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::tie(a.offset, a.bytes, a.name) < std::tie(b.offset, b.bytes, b.name);
  });
  std::int64_t end = 0;
  for (const TensorInfo& tensor : tensors) {
    LIPGRAD_CHECK(tensor.offset >= end, "{}: tensor {}: its data overlap those of another tensor",
                  path, in_quotes(tensor.name));
    LIPGRAD_CHECK(tensor.offset == end,
                  "{}: tensor {}: the {} bytes before its data belong to no tensor", path,
                  in_quotes(tensor.name), tensor.offset - end);
    end += tensor.bytes;
  }
  LIPGRAD_CHECK(end == data_bytes, "{}: the last {} bytes belong to no tensor", path,
                data_bytes - end);
}

float from_bfloat16(std::uint16_t x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x) << 16);
}

float from_half(std::uint16_t x) {
  const std::uint32_t sign = (x & 0x8000u) << 16, exponent = x >> 10 & 31u, fraction = x & 0x3ffu;
  if (exponent == 0) {
    const float size = static_cast<float>(fraction) * 0x1p-24f;
    return sign ? -size : size;
  }
  const std::uint32_t wide = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

// Reads elements as From and writes f of them, piece by piece.
template <class From, class To, class F>
void read_widened(const InputFile& file, const TensorInfo& info, To* out, F&& f) {
  constexpr std::int64_t piece = 1 << 16;
  const std::int64_t n = info.shape.numel();
  std::vector<From> buffer(static_cast<std::size_t>(std::min(n, piece)));
  for (std::int64_t begin = 0; begin < n; begin += piece) {
    const std::int64_t count = std::min(piece, n - begin);
    constexpr auto width = static_cast<std::int64_t>(sizeof(From));
    file.read(info.offset + begin * width, buffer.data(), static_cast<std::size_t>(count * width));
    for (std::int64_t i = 0; i < count; ++i)
      out[begin + i] = static_cast<To>(f(buffer[static_cast<std::size_t>(i)]));
  }
}

}  // namespace

struct SafetensorsFile::State {
  explicit State(const std::string& path) : file(path) {}

  InputFile file;
  std::vector<TensorInfo> tensors;
  std::vector<std::size_t> by_name;  // places in `tensors`
  std::map<std::string, std::string> metadata;
};

SafetensorsFile::SafetensorsFile(const std::string& path) : state_(std::make_unique<State>(path)) {
  const InputFile& file = state_->file;
  std::uint64_t header_bytes = 0;
  LIPGRAD_CHECK(file.size() >= kSizeBytes, "{}: not a .safetensors file: {} bytes are too few",
                path, file.size());
  file.read(0, &header_bytes, sizeof header_bytes);
  const std::int64_t room = file.size() - kSizeBytes;
  LIPGRAD_CHECK(header_bytes <= kMaxHeaderBytes,
                "{}: not a .safetensors file: its first 8 bytes claim a header of {} bytes, at "
                "most {} are accepted",
                path, header_bytes, kMaxHeaderBytes);
  LIPGRAD_CHECK(static_cast<std::int64_t>(header_bytes) <= room,
                "{}: truncated: a header of {} bytes in a file of {}", path, header_bytes,
                file.size());
  std::string header(header_bytes, '\0');
  file.read(kSizeBytes, header.data(), header.size());
  LIPGRAD_CHECK(header.starts_with('{'), "{}: not a .safetensors file: its header begins with {}",
                path, header.empty() ? "nothing" : in_quotes(header.substr(0, 8)));
  const std::int64_t data = kSizeBytes + static_cast<std::int64_t>(header_bytes);
  HeaderReader reader(path, file.size() - data);
  Json::sax_parse(header, &reader);
  check_layout(path, reader.tensors, file.size() - data);
  for (TensorInfo& tensor : reader.tensors) tensor.offset += data;
  state_->tensors = std::move(reader.tensors);
  state_->metadata = std::move(reader.metadata);

  const auto& tensors = state_->tensors;
  auto& by_name = state_->by_name;
  by_name.resize(tensors.size());
  for (std::size_t i = 0; i < by_name.size(); ++i) by_name[i] = i;
  std::sort(by_name.begin(), by_name.end(),
            [&](std::size_t a, std::size_t b) { return tensors[a].name < tensors[b].name; });
  for (std::size_t i = 1; i < by_name.size(); ++i)
    LIPGRAD_CHECK(tensors[by_name[i - 1]].name != tensors[by_name[i]].name,
                  "{}: tensor {} comes twice", path, in_quotes(tensors[by_name[i]].name));
}

SafetensorsFile::~SafetensorsFile() = default;
SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&&) noexcept = default;

const std::string& SafetensorsFile::path() const { return state_->file.path(); }
std::int64_t SafetensorsFile::file_bytes() const { return state_->file.size(); }
const std::vector<TensorInfo>& SafetensorsFile::tensors() const { return state_->tensors; }
const std::map<std::string, std::string>& SafetensorsFile::metadata() const {
  return state_->metadata;
}

const TensorInfo* SafetensorsFile::find(const std::string& name) const {
  const auto& tensors = state_->tensors;
  const auto found =
      std::lower_bound(state_->by_name.begin(), state_->by_name.end(), name,
                       [&](std::size_t i, const std::string& x) { return tensors[i].name < x; });
  return found != state_->by_name.end() && tensors[*found].name == name ? &tensors[*found]
                                                                        : nullptr;
}

DType SafetensorsFile::dtype_to_read(const TensorInfo& tensor) const {
  const ElementType* type = find_type(tensor.dtype);
  if (!type || !type->read_as)
    fail("{}: tensor {} is {}, for which lipgrad has no dtype", path(), in_quotes(tensor.name),
         printable(tensor.dtype));
  return *type->read_as;
}

Tensor SafetensorsFile::read(const std::string& name) const {
  const TensorInfo* info = find(name);
  LIPGRAD_CHECK(info, "{}: it holds no tensor {}", path(), in_quotes(name));
  const InputFile& file = state_->file;
  Tensor tensor = empty(info->shape, dtype_to_read(*info));
  const auto widen = [&]<class From, class To>(TypeTag<From>, TypeTag<To>, auto&& f) {
    read_widened<From>(file, *info, tensor.mutable_data<To>(), f);
  };
  const auto same = [](auto x) { return x; };
  if (info->dtype == "F16")
    widen(TypeTag<std::uint16_t>{}, TypeTag<float>{}, from_half);
  else if (info->dtype == "BF16")
    widen(TypeTag<std::uint16_t>{}, TypeTag<float>{}, from_bfloat16);
  else if (info->dtype == "I8")
    widen(TypeTag<std::int8_t>{}, TypeTag<std::int32_t>{}, same);
  else if (info->dtype == "I16")
    widen(TypeTag<std::int16_t>{}, TypeTag<std::int32_t>{}, same);
  else if (info->dtype == "U16")
    widen(TypeTag<std::uint16_t>{}, TypeTag<std::int32_t>{}, same);
  else if (info->dtype == "U32")
    widen(TypeTag<std::uint32_t>{}, TypeTag<std::int64_t>{}, same);
  else if (info->dtype == "BOOL")
    widen(TypeTag<std::uint8_t>{}, TypeTag<std::uint8_t>{}, [](auto x) { return x != 0; });
  else if (info->bytes > 0)
    file.read(info->offset, tensor.mutable_raw_data(), static_cast<std::size_t>(info->bytes));
  return tensor;
}

std::map<std::string, Tensor> load_safetensors(const std::string& path,
                                               const std::vector<std::string>& names) {
  const SafetensorsFile file(path);
  std::map<std::string, Tensor> tensors;
  for (const std::string& name : names) tensors[name] = file.read(name);
  if (names.empty())
    for (const TensorInfo& info : file.tensors()) tensors[info.name] = file.read(info.name);
  return tensors;
}

}  // namespace lipgrad
