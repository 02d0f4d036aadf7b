#include <lipgrad/core/checkpoint_file.h>

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include <lipgrad/core/crc32c.h>
#include <lipgrad/core/error.h>
#include <support/errors.h>
#include <support/temporary_directory.h>

namespace lipgrad {
namespace {

using Bytes = std::vector<std::byte>;

using test::error_of;

CheckpointInfo sample_info() {
  CheckpointInfo info;
  info.step = 120;
  info.epoch = 7;
  info.config = "{\"model\":\"gat\"}";
  info.generators["train"] = {42, std::uint64_t{1} << 63};
  info.states["optimizer"] = {"adam",
                              {{"lr", 0.1}, {"steps", std::int64_t{-5}}, {"note", "x\xff"}}};
  info.states["schedule"] = {"plateau", {{"best", std::numeric_limits<double>::infinity()}}};
  info.metadata["dataset"] = "cora";
  return info;
}

struct Sample {
  CheckpointInfo::TensorInfo info;
  Bytes data;
};

std::vector<Sample> sample_tensors() {
  std::vector<Sample> samples;
  const auto add = [&](std::string name, TensorRole role, DType dtype, Shape shape) {
    Sample sample{{std::move(name), role, dtype, shape}, {}};
    sample.data.resize(static_cast<std::size_t>(sample.info.bytes()));
    for (std::size_t i = 0; i < sample.data.size(); ++i)
      sample.data[i] = static_cast<std::byte>(i * 7 + samples.size() + 1);
    samples.push_back(std::move(sample));
  };
  add("a.weight", TensorRole::parameter, f32, {5, 9});
  add("a.bias", TensorRole::parameter, f64, {9});
  add("a.weight", TensorRole::state, f32, {5, 9});
  add("empty", TensorRole::buffer, i32, {3, 0});
  add("scalar", TensorRole::buffer, i64, {});
  add("mask", TensorRole::buffer, u8, {100});
  return samples;
}

void write_sample(const std::string& path, std::int64_t chunk_bytes) {
  CheckpointFileWriter writer(path, sample_info(), chunk_bytes);
  for (const auto& sample : sample_tensors()) writer.add(sample.info, sample.data);
  writer.commit();
}

// Without the flush to disk of write_file, which would take most of the time of these tests.
void put(const std::string& path, std::span<const std::byte> bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

void read_all(const std::string& path) { CheckpointFileReader(path).verify(); }

// A file with any payloads, correctly framed.
void write_records(const std::string& path, const std::string& manifest, const std::string& index,
                   const std::vector<std::string>& chunks) {
  RecordWriter writer(path);
  writer.write(RecordType::manifest, manifest);
  for (const auto& chunk : chunks) writer.write(RecordType::chunk, chunk);
  writer.commit(writer.write(RecordType::index, index));
}

std::string varint(std::uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  return out + static_cast<char>(value);
}

std::string entry(const std::string& name, int role, int dtype, std::vector<std::int64_t> shape,
                  std::int64_t offset) {
  std::string sizes;
  for (const std::int64_t size : shape) sizes += varint(static_cast<std::uint64_t>(size));
  const std::string message = "\x0a" + varint(name.size()) + name + "\x10" + varint(role) + "\x18" +
                              varint(dtype) + "\x22" + varint(sizes.size()) + sizes + "\x28" +
                              varint(static_cast<std::uint64_t>(offset));
  const auto size = static_cast<std::uint32_t>(message.size());
  return std::string(reinterpret_cast<const char*>(&size), 4) + message;
}

}  // namespace

TEST_CASE("checkpoint file: everything comes back, whatever the size of the chunks") {
  test::TemporaryDirectory dir;
  const std::string path = dir / "a.lip";
  const auto samples = sample_tensors();
  for (const std::int64_t chunk_bytes : {1, 16, 48, 64, 180, 181, 1 << 20}) {
    write_sample(path, chunk_bytes);
    const CheckpointFileReader reader(path);
    reader.verify();
    const CheckpointInfo& info = reader.info();
    const CheckpointInfo expected = sample_info();
    CHECK(info.format == 1);
    CHECK(!info.library_version.empty());
    CHECK(info.step == 120);
    CHECK(info.epoch == 7);
    CHECK(info.config == expected.config);
    CHECK(info.generators.at("train").seed == 42);
    CHECK(info.generators.at("train").draw == std::uint64_t{1} << 63);
    CHECK(info.states.at("optimizer").kind == "adam");
    CHECK((info.states.at("optimizer").values == expected.states.at("optimizer").values));
    CHECK((info.states.at("schedule").values == expected.states.at("schedule").values));
    CHECK((info.metadata == expected.metadata));
    REQUIRE(info.tensors.size() == samples.size());
    for (std::size_t i = 0; i < samples.size(); ++i) {
      CHECK(info.tensors[i].name == samples[i].info.name);
      CHECK(info.tensors[i].role == samples[i].info.role);
      CHECK(info.tensors[i].dtype == samples[i].info.dtype);
      CHECK(info.tensors[i].shape == samples[i].info.shape);
      Bytes data(samples[i].data.size());
      reader.read(info.tensors[i], data);
      CHECK((data == samples[i].data));
    }
  }
  // Payloads start at multiples of 64, so that they can be mapped.
  for (const auto& tensor : read_checkpoint_info(path).tensors)
    CHECK((tensor.offset + 16) % 64 == 0);
}

TEST_CASE("checkpoint file: any changed byte and any missing end is found") {
  test::TemporaryDirectory dir;
  const std::string path = dir / "a.lip", bad = dir / "bad.lip";
  write_sample(path, 100);
  const Bytes good = read_file(path);
  int unnoticed = 0;
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (const int mask : {0x01, 0x80, 0xff}) {
      Bytes changed = good;
      changed[i] ^= static_cast<std::byte>(mask);
      put(bad, changed);
      const std::string message = error_of([&] { read_all(bad); });
      if (message.empty()) ++unnoticed;
      REQUIRE(message.starts_with(bad + ": "));
      REQUIRE(message.find('\n') == std::string::npos);
    }
  }
  CHECK(unnoticed == 0);
  for (std::size_t size = 0; size < good.size(); ++size) {
    put(bad, std::span(good).first(size));
    const std::string message = error_of([&] { read_all(bad); });
    REQUIRE(message.starts_with(
        bad + (size < 8 ? (size == 0 ? ": not a lipgrad checkpoint: " : ": truncated: ")
                        : ": truncated: ")));
  }
  Bytes longer = good;
  longer.resize(longer.size() + 64);
  put(bad, longer);
  CHECK(error_of([&] { read_all(bad); }).starts_with(bad + ": truncated: "));
}

TEST_CASE("checkpoint file: foreign and newer files are named for what they are") {
  test::TemporaryDirectory dir;
  const std::string path = dir / "a.lip";
  CHECK(error_of([&] { read_all(path); }) == path + ": cannot open: No such file or directory");
  CHECK(error_of([&] { read_all(dir.path()); }) ==
        dir.path() + ": is a directory, expected a file");
  put(path, {});
  CHECK(error_of([&] { read_all(path); }) ==
        path +
            ": not a lipgrad checkpoint: the file is empty; expected a file that "
            "save_checkpoint wrote");
  const std::string zip = "PK\x03\x04 and so on";
  put(path, std::as_bytes(std::span(zip.data(), zip.size())));
  CHECK(error_of([&] { read_all(path); }) ==
        path +
            ": not a lipgrad checkpoint: it starts with 50 4b 03 04 20 61 6e 64; expected a "
            "file that save_checkpoint wrote");
  write_sample(path, 100);
  Bytes bytes = read_file(path);
  const auto set_versions = [&](std::uint32_t format, std::uint32_t oldest) {
    std::memcpy(bytes.data() + 8, &format, 4);
    std::memcpy(bytes.data() + 12, &oldest, 4);
    const std::uint32_t crc = mask_crc(crc32c(bytes.data(), 44));
    std::memcpy(bytes.data() + 44, &crc, 4);
    put(path, bytes);
  };
  set_versions(3, 2);
  CHECK(error_of([&] {
          read_all(path);
        }).starts_with(path + ": written in checkpoint format 3 by a newer lipgrad; lipgrad "));
  set_versions(3, 1);  // newer, but this reader understands it
  CHECK(read_checkpoint_info(path, true).format == 3);
  set_versions(1, 3);
  CHECK(error_of([&] { read_all(path); }) != "");
  set_versions(0, 0);
  CHECK(error_of([&] { read_all(path); }).find("claims format 0") != std::string::npos);
}

TEST_CASE(
    "checkpoint file: hostile content with right checksums is refused before it costs memory") {
  test::TemporaryDirectory dir;
  const std::string path = dir / "a.lip";
  const std::string manifest = "\x40" + varint(32);  // chunk_bytes = 32
  const std::int64_t at = RecordReader::next_offset(48, static_cast<std::int64_t>(manifest.size()));
  const std::string data(40, 'x');
  const std::vector<std::string> chunks{data.substr(0, 32), data.substr(32)};
  const auto error_for = [&](const std::string& index) {
    write_records(path, manifest, index, chunks);
    return error_of([&] { read_all(path); });
  };
  CHECK(error_for(entry("w", 1, 1, {2, 5}, at)) == "");
  const std::int64_t large = std::int64_t{1} << 62;
  const struct {
    std::string index, problem;
  } cases[] = {
      {entry("w", 1, 1, {large >> 20}, at), "needs more bytes than"},
      {entry("w", 1, 5, {large, 2}, at), "more elements than fit in 64 bits"},
      {entry("w", 1, 2, {large}, at), "shape: (4611686018427387904) is too large"},
      {entry("w", 1, 1, {-1}, at), "negative size -1"},
      {entry("w", 1, 1, std::vector<std::int64_t>(9, 1), at), "9 dimensions"},
      {entry("w", 1, 9, {10}, at), "unknown dtype 9"},
      {entry("w", 0, 1, {10}, at), "unknown role 0"},
      {entry("w", 4, 1, {10}, at), "unknown role 4"},
      {entry("", 1, 1, {10}, at), "a name of 0 bytes"},
      {entry(std::string(5000, 'n'), 1, 1, {10}, at), "a name of 5000 bytes"},
      {entry("w", 1, 1, {10}, 48), "should start at byte"},
      {entry("w\n", 1, 1, {10}, -16), "tensor \"w\\x0a\" should start at byte"},
      {entry("w", 1, 1, {9}, at), "(tensor \"w\") holds 8 bytes, expected 4"},
      {entry("w", 1, 1, {8}, at), "its tensors end at byte"},
      {entry("w", 1, 1, {11}, at), "holds 8 bytes, expected 12"},
      {"", "its tensors end at byte"},
      {std::string("\xff\xff\xff\xff", 4), "claims 4294967295 bytes"},
      {std::string(4, '\0'), "claims 0 bytes"},
      {"abc", "claims 0 bytes"},
      {std::string("\x02\0\0\0\xff\xff", 6), "cannot be parsed"},
  };
  for (const auto& test : cases) {
    const std::string message = error_for(test.index);
    CHECK_MESSAGE(message.starts_with(path + ": damaged: "), message);
    CHECK_MESSAGE(message.find(test.problem) != std::string::npos, message);
  }
  const std::int64_t next = at + 128;
  CHECK(error_for(entry("w", 1, 1, {10}, at) + entry("w", 1, 5, {0}, next)).find("twice") !=
        std::string::npos);
  CHECK(error_for(entry("w", 1, 1, {10}, at) + entry("w", 2, 5, {0}, next)) == "");

  for (const std::string& bad :
       {std::string("\x40\x00", 2), "\x40" + varint(1 << 30), std::string(),
        "\x10" + varint(~std::uint64_t{0}) + manifest, std::string("\xff")}) {
    write_records(path, bad, "", {});
    CHECK(error_of([&] { read_all(path); }).find("its manifest") != std::string::npos);
  }
  write_records(path, manifest + std::string(1 << 20, '\0'), "", {});
  CHECK(error_of([&] { read_all(path); }).find("the manifest claims 1048578 bytes") !=
        std::string::npos);
}

TEST_CASE("checkpoint file: what could not be read again is not written") {
  test::TemporaryDirectory dir;
  const std::string path = dir / "a.lip";
  write_sample(path, 100);
  const Bytes before = read_file(path);
  CheckpointInfo info = sample_info();
  info.config = std::string(2 << 20, ' ');
  CHECK_THROWS_AS(CheckpointFileWriter(path, info), Error);
  info = sample_info();
  info.step = -1;
  CHECK_THROWS_AS(CheckpointFileWriter(path, info), Error);
  CHECK_THROWS_AS(CheckpointFileWriter(path, sample_info(), 0), Error);
  {
    CheckpointFileWriter writer(path, sample_info());
    const Sample sample = sample_tensors()[0];
    writer.add(sample.info, sample.data);
    CHECK_THROWS_AS(writer.add(sample.info, sample.data), Error);
    CHECK_THROWS_AS(writer.add({"", TensorRole::buffer, f32, {0}}, {}), Error);
    CHECK_THROWS_AS(writer.add({std::string(5000, 'x'), TensorRole::buffer, f32, {0}}, {}), Error);
    CHECK_THROWS_AS(writer.add({"x", TensorRole::buffer, f32, {1}}, {}), Error);
  }
  CHECK((read_file(path) == before));
}

}  // namespace lipgrad
