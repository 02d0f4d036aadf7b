#include <algorithm>
#include <array>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>

#include <lipgrad/core/check.h>
#include <lipgrad/core/file.h>
#include <lipgrad/core/printable.h>
#include <lipgrad/core/safetensors.h>

namespace lipgrad {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kSizeBytes = 8, kAlignment = 64, kMaxHeaderBytes = 100'000'000;

struct Spelling {
  DType dtype;
  const char* name;
};
// In the order of the official writer.
constexpr std::array<Spelling, 5> kTypes = {
    {{i64, "I64"}, {f64, "F64"}, {f32, "F32"}, {i32, "I32"}, {u8, "U8"}}};

const Spelling* spelling(DType dtype) {
  return std::find_if(kTypes.begin(), kTypes.end(),
                      [&](const Spelling& type) { return type.dtype == dtype; });
}

std::string in_json(const std::string& path, const std::string& text) {
  try {
    return Json(text).dump();
  } catch (const Json::exception&) {
    fail("{}: cannot save \"{}\": it is not UTF-8", path, printable(text));
  }
}

// Everything before the data, for items in their order.
std::string header_of(const std::string& path, const std::vector<SafetensorsItem>& items,
                      const std::map<std::string, std::string>& metadata) {
  std::string json;
  for (const auto& [name, text] : metadata)
    json += fmt::format("{}{}:{}", json.empty() ? "{\"__metadata__\":{" : ",", in_json(path, name),
                        in_json(path, text));
  json += metadata.empty() ? "{" : "}";
  std::int64_t offset = 0;
  for (const SafetensorsItem& item : items) {
    const std::int64_t begin = offset;
    std::int64_t bytes = 0;
    LIPGRAD_CHECK(!__builtin_mul_overflow(item.shape.numel(), size_of(item.dtype), &bytes) &&
                      !__builtin_add_overflow(offset, bytes, &offset),
                  "{}: cannot save: the tensors' sizes overflow", path);
    json += fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                        json == "{" ? "" : ",", in_json(path, item.name),
                        spelling(item.dtype)->name, fmt::join(item.shape, ","), begin, offset);
  }
  json += '}';
  json.append(kAlignment - 1 - (kSizeBytes + json.size() + kAlignment - 1) % kAlignment, ' ');
  LIPGRAD_CHECK(json.size() <= kMaxHeaderBytes,
                "{}: cannot save: the header has {} bytes, at most {} are possible", path,
                json.size(), kMaxHeaderBytes);
  std::string header;
  for (std::size_t i = 0; i < kSizeBytes; ++i)
    header += static_cast<char>(json.size() >> 8 * i & 0xff);
  return header + json;
}

}  // namespace

void write_safetensors(const std::string& path, std::vector<SafetensorsItem> items,
                       const std::map<std::string, std::string>& metadata) {
  std::sort(items.begin(), items.end(), [](const SafetensorsItem& a, const SafetensorsItem& b) {
    return a.dtype == b.dtype ? a.name < b.name : spelling(a.dtype) < spelling(b.dtype);
  });
  std::vector<std::string_view> names = {"__metadata__"};
  for (const SafetensorsItem& item : items) names.push_back(item.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  LIPGRAD_CHECK(twice == names.end(),
                "{}: cannot save: two tensors are called \"{}\", or it is no tensor's name", path,
                printable(*twice));
  AtomicFile file(path);
  const std::string header = header_of(path, items, metadata);
  file.write(header.data(), header.size());
  for (const SafetensorsItem& item : items) {
    const Tensor tensor = item.load().detach().to(cpu_device);
    LIPGRAD_CHECK(tensor.defined() && tensor.dtype() == item.dtype && tensor.shape() == item.shape,
                  "{}: cannot save \"{}\": it is {} {}, expected {} {}", path, printable(item.name),
                  tensor.dtype(), tensor.shape(), item.dtype, item.shape);
    file.write(tensor.raw_data(), static_cast<std::size_t>(tensor.nbytes()));
  }
  file.commit();
}

void save_safetensors(const std::string& path, const std::map<std::string, Tensor>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  std::vector<SafetensorsItem> items;
  for (const auto& [name, tensor] : tensors) {
    LIPGRAD_CHECK(tensor.defined(), "{}: cannot save \"{}\", an undefined tensor", path,
                  printable(name));
    items.push_back({name, tensor.dtype(), tensor.shape(), [&tensor = tensor] { return tensor; }});
  }
  write_safetensors(path, std::move(items), metadata);
}

}  // namespace lipgrad
