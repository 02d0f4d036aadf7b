#include <lipgrad/core/safetensors.h>

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>

#include <lipgrad/core/error.h>
#include <lipgrad/core/file.h>
#include <support/data.h>
#include <support/errors.h>
#include <support/temporary_directory.h>

namespace lipgrad {
namespace {

using test::contains;
using test::error_of;

template <class T>
void check_values(const SafetensorsFile& file, const char* name, const Shape& shape,
                  const std::vector<T>& expected) {
  CAPTURE(name);
  const Tensor tensor = file.read(name);
  CHECK(tensor.shape() == shape);
  REQUIRE(tensor.dtype() == dtype_of<T>());
  CHECK(tensor.to_vector<T>() == expected);
}

std::string content(const std::string& path) {
  const auto bytes = read_file(path);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// A file with this header and this many bytes of data.
std::string file_of(const std::string& header, std::size_t data_bytes) {
  std::string text;
  for (int i = 0; i < 8; ++i) text += static_cast<char>(header.size() >> 8 * i & 0xff);
  return text + header + std::string(data_bytes, '\x01');
}

void put(const std::string& path, std::string_view text) {
  write_file(path, std::as_bytes(std::span(text.data(), text.size())));
}

// What is wrong with a file of this header, without the path.
std::string problem(const std::string& header, std::size_t data_bytes) {
  test::TemporaryDirectory dir;
  const std::string path = dir / "x.safetensors";
  put(path, file_of(header, data_bytes));
  const std::string error = error_of([&] { load_safetensors(path); });
  if (error.empty()) return error;
  REQUIRE(error.starts_with(path + ": "));
  REQUIRE(!contains(error, "\n"));
  return error.substr(path.size() + 2);
}

std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

const std::string kNest(100000, '[');

}  // namespace

TEST_CASE("safetensors: every dtype, as the official library writes it") {
  const float inf = std::numeric_limits<float>::infinity();
  const SafetensorsFile file(test::golden("safetensors/dtypes.safetensors"));
  CHECK(file.tensors().size() == 17);
  CHECK(file.metadata() ==
        std::map<std::string, std::string>{{"format", "pt"}, {"note", "line\nbreak"}});
  check_values<float>(file, "f32", {2, 3}, {0, 0.25, 0.5, 0.75, 1, 1.25});
  check_values<double>(file, "f64", {3}, {0.1, -1e300, inf});
  check_values<std::int64_t>(file, "i64", {}, {-(std::int64_t{1} << 62)});
  check_values<std::int32_t>(file, "i32", {2}, {-7, 2147483647});
  check_values<std::uint8_t>(file, "u8", {3}, {0, 1, 255});
  check_values<float>(file, "empty", {0, 4}, {});
  check_values<float>(file, "a/b.\u00f6 \"x\"", {1}, {1});
  // Widened.
  const float third = 1365.0F / 4096;  // 1/3 in half precision
  check_values<float>(file, "f16", {7}, {1, -2.5, 65504, 0x1p-24F, -0.0F, inf, third});
  CHECK(std::signbit(file.read("f16").data<float>()[4]));
  check_values<float>(file, "bf16", {2, 2}, {1, -2.5, 0x1.c4p127F, 0x1p-133F});
  check_values<std::int32_t>(file, "i16", {2}, {-32768, 7});
  check_values<std::int32_t>(file, "i8", {2, 1}, {-128, 127});
  check_values<std::int32_t>(file, "u16", {1}, {65535});
  check_values<std::int64_t>(file, "u32", {1}, {4294967295});
  check_values<std::uint8_t>(file, "bool", {3}, {1, 0, 1});
  // Refused by name, when asked for.
  const std::string start = file.path() + ": tensor ";
  CHECK(error_of([&] { file.read("u64"); }) ==
        start + "\"u64\" is U64, for which lipgrad has no dtype");
  CHECK(error_of([&] { file.read("c64"); }) ==
        start + "\"c64\" is C64, for which lipgrad has no dtype");
  CHECK(error_of([&] { file.read("f8"); }) ==
        start + "\"f8\" is F8_E4M3, for which lipgrad has no dtype");
  CHECK(error_of([&] { file.read("other"); }) == file.path() + ": it holds no tensor \"other\"");
  CHECK(file.find("other") == nullptr);
  CHECK(file.find("u64")->bytes == 8);
}

TEST_CASE("safetensors: halves widen exactly") {
  test::TemporaryDirectory dir;
  const std::string path = dir / "x.safetensors";
  const std::string header = R"({"x":)" + entry("F16", "[65536]", "[0,131072]") + "}";
  std::string text = file_of(header, 0);
  for (unsigned i = 0; i < 65536; ++i)
    text += {static_cast<char>(i & 0xff), static_cast<char>(i >> 8)};
  put(path, text);
  const Tensor x = load_safetensors(path, {"x"}).at("x");
  int wrong = 0;
  for (int i = 0; i < 65536; ++i) {
    const int exponent = i >> 10 & 31, fraction = i & 1023;
    double size =
        exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
    if (exponent == 31) size = fraction ? std::nan("") : std::numeric_limits<double>::infinity();
    const float got = x.data<float>()[i];
    const bool same = std::isnan(size) ? std::isnan(got) : std::abs(got) == size;
    if (!same || std::signbit(got) != (i >= 32768)) ++wrong;
  }
  CHECK(wrong == 0);
}

TEST_CASE("safetensors: writes what the official library writes, with data at a multiple of 64") {
  test::TemporaryDirectory dir;
  const std::string theirs = test::golden("safetensors/plain.safetensors"),
                    ours = dir / "x.safetensors";
  const auto tensors = load_safetensors(theirs);
  save_safetensors(ours, tensors, {{"format", "pt"}});
  const auto parts = [](const std::string& text) {
    std::uint64_t size = 0;
    std::memcpy(&size, text.data(), 8);
    std::string header = text.substr(8, size);
    CHECK((8 + size) % 8 == 0);
    header.erase(header.find_last_not_of(' ') + 1);
    return std::pair{header, text.substr(8 + size)};
  };
  const std::string written = content(ours);
  CHECK(parts(written) == parts(content(theirs)));
  CHECK(SafetensorsFile(ours).tensors()[0].offset % 64 == 0);
  // The same again for what was read.
  const auto again = load_safetensors(ours);
  CHECK(again.size() == tensors.size());
  for (const auto& [name, tensor] : tensors) CHECK(bitwise_equal(again.at(name), tensor));
  save_safetensors(ours, again, {{"format", "pt"}});
  CHECK(content(ours) == written);
}

TEST_CASE("safetensors: no tensors, no metadata, odd names") {
  test::TemporaryDirectory dir;
  const std::string path = dir / "x.safetensors";
  save_safetensors(path, std::map<std::string, Tensor>{});
  CHECK(content(path).size() == 64);
  CHECK(SafetensorsFile(path).tensors().empty());
  save_safetensors(path, {{"", zeros({0})}}, {{"only", "this"}});
  CHECK(SafetensorsFile(path).find("")->shape == Shape{0});
  CHECK(SafetensorsFile(path).metadata().at("only") == "this");
  save_safetensors(path, {{"\t\"\\ \u00e9\x7f", ones({2, 1, 2})}});
  CHECK(load_safetensors(path).at("\t\"\\ \u00e9\x7f").numel() == 4);
}

TEST_CASE("safetensors: what cannot be written leaves the file as it was") {
  test::TemporaryDirectory dir;
  const std::string path = dir / "x.safetensors";
  save_safetensors(path, {{"x", ones({2})}});
  const std::string before = content(path);
  const auto item = [](const char* name, const Tensor& tensor) {
    return SafetensorsItem{name, f32, {2}, [tensor] { return tensor; }};
  };
  const Tensor good = ones({2});
  CHECK(contains(error_of([&] {
                   write_safetensors(path, {item("a", good), item("a", good)});
                 }),
                 "two tensors are called \"a\""));
  CHECK(contains(error_of([&] { write_safetensors(path, {item("__metadata__", good)}); }),
                 "\"__metadata__\", or it is no tensor's name"));
  CHECK(contains(error_of([&] { write_safetensors(path, {item("\xff", good)}); }),
                 "it is not UTF-8"));
  CHECK(contains(error_of([&] { write_safetensors(path, {item("a", ones({3}))}); }),
                 "\"a\": it is f32 (3), expected f32 (2)"));
  CHECK(contains(error_of([&] {
                   save_safetensors(path, {{"a", Tensor()}});
                 }),
                 "\"a\", an undefined tensor"));
  CHECK(content(path) == before);
}

TEST_CASE("safetensors: data at odd addresses") {
  test::TemporaryDirectory dir;
  const std::string path = dir / "x.safetensors";
  std::string header =
      R"({"b":)" + entry("U8", "[1]", "[0,1]") + R"(,"x":)" + entry("F64", "[2]", "[1,17]") + "}";
  for (int shift = 0; shift < 8; ++shift, header += ' ') {
    std::string text = file_of(header, 1);
    const double values[] = {0.1, -3};
    text.append(reinterpret_cast<const char*>(values), sizeof values);
    put(path, text);
    CHECK(load_safetensors(path).at("x").to_vector<double>() == std::vector<double>{0.1, -3});
  }
}

TEST_CASE("safetensors: damaged headers are refused, with their place") {
  const auto one = [](const std::string& fields) { return R"({"x":)" + fields + "}"; };
  CHECK(problem(one(entry("F32", "[2]", "[0,8]")), 8).empty());
  CHECK(problem(one(entry("F32", "[]", "[0,4]")) + " \n ", 4).empty());
  // Not JSON, or not an object.
  CHECK(problem("", 0) == "not a .safetensors file: its header begins with nothing");
  CHECK(problem("[]", 0) == "not a .safetensors file: its header begins with \"[]\"");
  CHECK(problem(" {}", 0) == "not a .safetensors file: its header begins with \" {}\"");
  CHECK(contains(problem("{", 0), "the header is not JSON at byte 10 of the file"));
  CHECK(contains(problem("{} x", 0), "the header is not JSON at byte 12 of the file"));
  CHECK(contains(problem("{\"\xff\":1}", 0), "the header is not JSON"));
  CHECK(contains(problem("{\"a\nb\":1}", 0), "the header is not JSON"));
  CHECK(contains(problem(std::string("{\"a\0b\":1}", 9), 0), "the header is not JSON"));
  // Nesting costs no stack.
  CHECK(problem(R"({"x":)" + kNest, 0) ==
        "tensor \"x\": an array stands for it, expected an object");
  CHECK(contains(problem(one(R"({"shape":)" + kNest), 0), "its shape is or holds an array"));
  // Values of other kinds.
  CHECK(problem(R"({"x":3})", 0) == "tensor \"x\": 3 stands for it, expected an object");
  CHECK(contains(problem(one(R"({"dtype":3})"), 0), "its dtype is or holds 3, expected a text"));
  CHECK(contains(problem(one(R"({"dtype":["F32"]})"), 0), "its dtype is or holds an array"));
  for (const char* value : {"null", "true", "-1", "1.0", "1e3", "\"a\"", "{}"}) {
    CAPTURE(value);
    const std::string v = value;
    CHECK(contains(problem(one(entry("F32", v, "[0,4]")), 4), "tensor \"x\": its shape is or"));
    CHECK(contains(problem(one(entry("F32", "[" + v + "]", "[0,4]")), 4), "its shape is or"));
    CHECK(contains(problem(one(entry("F32", "[1]", "[0," + v + "]")), 4), "its data_offsets is"));
  }
  // Fields.
  CHECK(problem(one("{}"), 0) == "tensor \"x\": it has no dtype");
  CHECK(problem(one(R"({"dtype":"F32","shape":[0]})"), 0) ==
        "tensor \"x\": it has no data_offsets");
  CHECK(problem(one(R"({"dtype":"F32","strides":[0]})"), 0) ==
        "tensor \"x\": unknown field \"strides\"");
  CHECK(problem(one(R"({"dtype":"F32","dtype":"F64"})"), 0) ==
        "tensor \"x\": its dtype comes twice");
  CHECK(contains(problem(one(entry("F32", "[1]", "[0]")), 4), "data_offsets have 1 numbers"));
  CHECK(contains(problem(one(entry("F32", "[1]", "[0,4,4]")), 4), "has more than 2 numbers"));
  CHECK(contains(problem(one(entry("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]")), 4),
                 "its shape has more than 8 numbers"));
  // Names.
  const std::string empty = entry("F32", "[0]", "[0,0]");
  CHECK(problem(R"({"x":)" + empty + R"(,"y":)" + empty + R"(,"\u0078":)" + empty + "}", 0) ==
        "tensor \"x\" comes twice");
  CHECK(problem(R"({"a\nb":{}})", 0) == "tensor \"a?b\": it has no dtype");
  CHECK(problem(R"({"__metadata__":{"a":"b"},"__metadata__":{}})", 0) ==
        "__metadata__: comes twice");
  CHECK(problem(R"({"__metadata__":{"a":"b","a":"c"}})", 0) == "__metadata__: a name comes twice");
  CHECK(contains(problem(R"({"__metadata__":{"a":1}})", 0), "\"a\" is 1, expected a text"));
  CHECK(contains(problem(R"({"__metadata__":{"a":{}}})", 0), "\"a\" is an object"));
  CHECK(contains(problem(R"({"__metadata__":null})", 0), "null stands for it"));
}

TEST_CASE("safetensors: sizes are checked before they are used") {
  const auto one = [](const std::string& fields) { return R"({"x":)" + fields + "}"; };
  const std::string wrong = "which is not what";
  CHECK(contains(problem(one(entry("F32", "[2]", "[0,4]")), 4), wrong));
  CHECK(contains(problem(one(entry("F64", "[2]", "[0,8]")), 8), wrong));
  CHECK(contains(problem(one(entry("F32", "[]", "[0,0]")), 0), wrong));
  CHECK(contains(problem(one(entry("F32", "[0,5]", "[0,4]")), 4), wrong));
  CHECK(contains(problem(one(entry("F4", "[3]", "[0,1]")), 1), wrong));  // 12 bits
  // Overflow: of the product, of the bytes, of one number.
  CHECK(contains(problem(one(entry("U8", "[4294967296,4294967296]", "[0,0]")), 0),
                 "has more elements than fit in 64 bits"));
  CHECK(contains(problem(one(entry("F32", "[4611686018427387904]", "[0,0]")), 0), wrong));
  CHECK(contains(problem(one(entry("F32", "[9223372036854775808]", "[0,0]")), 0),
                 "its shape holds 9223372036854775808, which is too large"));
  CHECK(contains(problem(one(entry("F32", "[99999999999999999999]", "[0,0]")), 0),
                 "its shape is or holds 99999999999999999999"));
  // Offsets.
  CHECK(problem(one(entry("F32", "[1]", "[4,0]")), 4) ==
        "tensor \"x\": its data begin at 4 and end at 0");
  CHECK(problem(one(entry("F32", "[1]", "[0,4]")), 3) ==
        "tensor \"x\": its data end at byte 4, the file holds 3 bytes of data");
  const auto two = [](const std::string& a, const std::string& b) {
    return R"({"a":)" + entry("U8", "[4]", a) + R"(,"b":)" + entry("U8", "[4]", b) + "}";
  };
  CHECK(problem(two("[4,8]", "[0,4]"), 8).empty());
  CHECK(problem(two("[0,4]", "[4,8]"), 9) == "the last 1 bytes belong to no tensor");
  CHECK(contains(problem(two("[0,4]", "[3,7]"), 7), "tensor \"b\": its data overlap"));
  CHECK(contains(problem(two("[0,4]", "[0,4]"), 4), "tensor \"b\": its data overlap"));
  CHECK(problem(two("[0,4]", "[5,9]"), 9) ==
        "tensor \"b\": the 1 bytes before its data belong to no tensor");
  CHECK(problem(two("[1,5]", "[5,9]"), 9) ==
        "tensor \"a\": the 1 bytes before its data belong to no tensor");
  // A dtype that is not known here: only its reader is refused.
  CHECK(problem(one(entry("F128", "[1]", "[0,16]")), 16) ==
        "tensor \"x\" is F128, for which lipgrad has no dtype");
}

TEST_CASE("safetensors: files that end early, and headers that promise too much") {
  test::TemporaryDirectory dir;
  const std::string path = dir / "x.safetensors";
  CHECK(contains(error_of([&] { SafetensorsFile{path}; }), path + ": cannot open"));
  const std::string whole = content(test::golden("safetensors/dtypes.safetensors"));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    put(path, whole.substr(0, size));
    const std::string error = error_of([&] { SafetensorsFile{path}; });
    REQUIRE(error.starts_with(path + ": "));
  }
  // No bit of the header may be wrong unnoticed and crash; most are noticed.
  for (std::size_t bit = 0; bit < 8 * 1063; bit += 7) {
    std::string text = whole;
    text[bit / 8] = static_cast<char>(text[bit / 8] ^ 1 << bit % 8);
    put(path, text);
    const std::string error = error_of([&] { load_safetensors(path, {"f32", "bf16"}); });
    REQUIRE((error.empty() || error.starts_with(path + ": ")));
  }
  std::string text = file_of("{}", 0);
  text[3] = 1;  // 16 MiB
  put(path, text);
  CHECK(error_of([&] { SafetensorsFile{path}; }) ==
        path + ": truncated: a header of 16777218 bytes in a file of 10");
  text[7] = '\xff';
  put(path, text);
  CHECK(contains(error_of([&] { SafetensorsFile{path}; }), "at most 100000000 are accepted"));
}

}  // namespace lipgrad
