#include <lipgrad/graph/ogb_cache.h>

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <system_error>

#include <lipgrad/core/check.h>
#include <lipgrad/core/crc32c.h>
#include <lipgrad/core/record_file.h>

namespace lipgrad {
namespace {

using Json = nlohmann::json;

constexpr int kFormat = 1;  // raised when what is cached changes its meaning
constexpr std::int64_t kIndexBytes = 1 << 20;
constexpr std::array kTypes = {f32, i32, i64};

std::uint32_t checksum(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> buffer(1 << 20);
  std::uint32_t crc = 0;
  while (file.read(buffer.data(), static_cast<std::streamsize>(buffer.size())), file.gcount() > 0)
    crc = crc32c(buffer.data(), static_cast<std::size_t>(file.gcount()), crc);
  return crc;
}

// What has changed since the cache was made; empty when nothing has.
std::string difference(const std::string& folder, const Json& cached,
                       const std::vector<CacheSource>& sources) {
  if (cached.size() != sources.size()) return "there are other files now";
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const Json& was = cached.at(i);
    const CacheSource& is = sources[i];
    if (was.at("name").get<std::string>() != is.name) return "there are other files now";
    if (was.at("size").get<std::int64_t>() != is.size ||
        (was.at("modified").get<std::int64_t>() != is.modified &&
         was.at("crc").get<std::uint32_t>() != checksum(folder + "/" + is.name)))
      return is.name + " has changed";
  }
  return {};
}

NamedTensor read_tensor(const RecordReader& reader, const Json& entry) {
  const std::string name = entry.at("name").get<std::string>();
  const auto type = entry.at("type").get<std::size_t>();
  const auto sizes = entry.at("shape").get<std::vector<std::int64_t>>();
  const auto offset = entry.at("offset").get<std::int64_t>();
  if (type >= kTypes.size() || offset < 0 ||
      sizes.size() > static_cast<std::size_t>(Shape::max_rank))
    reader.damaged("an entry of its index makes no sense");
  const Shape shape{std::span<const std::int64_t>(sizes)};
  // Nothing larger than the file is allocated.
  if (shape.numel() > reader.file_size() / size_of(kTypes[type]))
    reader.damaged("an entry of its index is larger than the file");
  Tensor tensor = empty(shape, kTypes[type]);
  reader.read_into(offset, RecordType::chunk,
                   {static_cast<std::byte*>(tensor.mutable_raw_data()),
                    static_cast<std::size_t>(tensor.nbytes())},
                   name);
  return {name, tensor};
}

}  // namespace

CacheSource source_of(const std::string& folder, const std::string& name) {
  const std::string path = folder + "/" + name;
  struct stat status;
  LIPGRAD_CHECK(::stat(path.c_str(), &status) == 0, "{}: cannot open: {}", path,
                std::generic_category().message(errno));
  LIPGRAD_CHECK(S_ISREG(status.st_mode), "{}: is not a regular file", path);
  return {name, static_cast<std::int64_t>(status.st_size),
          static_cast<std::int64_t>(status.st_mtim.tv_sec) * 1'000'000'000 +
              static_cast<std::int64_t>(status.st_mtim.tv_nsec),
          0};
}

void write_cache(const std::string& folder, const std::string& file,
                 const std::vector<CacheSource>& sources, const std::vector<NamedTensor>& tensors) {
  RecordWriter writer(folder + "/" + file);
  Json index = {{"kind", "ogb"}, {"format", kFormat}, {"sources", Json::array()}};
  for (const CacheSource& source : sources)
    index["sources"].push_back({{"name", source.name},
                                {"size", source.size},
                                {"modified", source.modified},
                                {"crc", source.crc}});
  index["tensors"] = Json::array();
  for (const auto& [name, tensor] : tensors) {
    const auto type = std::find(kTypes.begin(), kTypes.end(), tensor.dtype()) - kTypes.begin();
    const std::int64_t offset =
        writer.write(RecordType::chunk, std::span(static_cast<const std::byte*>(tensor.raw_data()),
                                                  static_cast<std::size_t>(tensor.nbytes())));
    index["tensors"].push_back(
        {{"name", name},
         {"type", type},
         {"shape", std::vector<std::int64_t>(tensor.shape().begin(), tensor.shape().end())},
         {"offset", offset}});
  }
  writer.commit(writer.write(RecordType::index, index.dump()));
}

std::vector<NamedTensor> read_cache(const std::string& folder, const std::string& file,
                                    const std::vector<CacheSource>& sources, std::string& reason) {
  reason.clear();
  const std::string path = folder + "/" + file;
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return {};
  try {
    const RecordReader reader(path);
    const Json index =
        Json::parse(reader.read(reader.index_offset(), RecordType::index, kIndexBytes));
    if (index.at("kind") != "ogb" || index.at("format") != kFormat) {
      reason = "it was made by another version";
      return {};
    }
    reason = difference(folder, index.at("sources"), sources);
    if (!reason.empty()) return {};
    std::vector<NamedTensor> tensors;
    for (const Json& entry : index.at("tensors")) tensors.push_back(read_tensor(reader, entry));
    return tensors;
  } catch (const Error& e) {
    reason = e.what();
  } catch (const Json::exception&) {
    reason = "its index makes no sense";
  }
  return {};
}

}  // namespace lipgrad
