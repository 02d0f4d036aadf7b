#include <lipgrad/core/npz.h>

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <lipgrad/core/error.h>
#include <lipgrad/core/file.h>
#include <support/data.h>
#include <support/errors.h>
#include <support/temporary_directory.h>

namespace lipgrad {
namespace detail {
void write_npz(const std::string& path, std::span<const std::pair<std::string, NpyView>> arrays,
               std::uint64_t limit);
}
namespace {

using Bytes = std::vector<std::byte>;

using test::contains;
using test::error_of;

template <class T>
void check_array(const NpyArray& array, const Shape& shape, std::vector<T> expected) {
  CHECK(array.shape == shape);
  const auto values = array.values<T>();
  CHECK(std::vector<T>(values.begin(), values.end()) == expected);
}

template <class T>
NpyArray array_of(const Shape& shape, const std::vector<T>& values) {
  NpyArray array;
  array.dtype = dtype_of<T>();
  array.shape = shape;
  array.bytes.resize(values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(array.bytes.data(), values.data(), array.bytes.size());
  return array;
}

// A .npy file of version 1 with this header text, however wrong.
Bytes npy(const std::string& header, std::size_t data_bytes) {
  std::string text("\x93NUMPY\x01\x00", 8);
  text += static_cast<char>(header.size() & 0xff);
  text += static_cast<char>(header.size() >> 8);
  text += header + std::string(data_bytes, '\0');
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

// Opens the archive and reads every array; damage must come out as Error and nothing else.
bool reads(const Bytes& bytes) {
  bool good = true;
  try {
    const NpzFile file(bytes, "x.npz");
    for (const std::string& name : file.names()) {
      try {
        file.read(name);
      } catch (const Error&) {
        good = false;
      }
    }
  } catch (const Error&) {
    good = false;
  }
  return good;
}

}  // namespace

TEST_CASE("npz: what numpy wrote, stored and deflated") {
  for (const char* name : {"npz/stored.npz", "npz/deflated.npz"}) {
    CAPTURE(name);
    const NpzFile file(test::golden(name));
    check_array<float>(file.read("f4"), {2, 3}, {0, 0.25, 0.5, 0.75, 1, 1.25});
    check_array<double>(file.read("f8"), {3},
                        {0.1, -1e300, std::numeric_limits<double>::infinity()});
    check_array<std::int32_t>(file.read("i4"), {}, {-7});
    check_array<std::int64_t>(file.read("i8"), {2, 0}, {});
    check_array<std::uint8_t>(file.read("u1"), {3}, {0, 1, 255});
    check_array<std::int32_t>(file.read("i1"), {2, 2}, {-128, 0, 1, 127});
    check_array<std::uint8_t>(file.read("masks"), {3, 4}, {1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0});
    std::vector<float> counting(24);
    for (int i = 0; i < 24; ++i) counting[i] = static_cast<float>(i);
    check_array<float>(file.read("fortran"), {2, 3, 4}, counting);
    check_array<std::int64_t>(file.read("fortran_i8"), {3, 2}, {0, 1, 2, 3, 4, 5});
    // Unreadable types are listed, and refused when asked for.
    for (const char* refused : {"names", "big_endian", "half", "record"})
      CHECK(file.contains(refused));
    CHECK(contains(error_of([&] { file.read("names"); }), "array 'names': its type is '<U2'; "));
    CHECK(contains(error_of([&] { file.read("big_endian"); }), "'>f4' (big-endian)"));
    CHECK(contains(error_of([&] { file.read("record"); }), "structured types are not supported"));
    CHECK_THROWS_AS(file.read("half"), Error);
    CHECK(contains(error_of([&] { file.read("x"); }), "no array 'x'; it holds: "));
    CHECK(contains(error_of([&] { file.read("f4").values<double>(); }), "f32 was read as f64"));
  }
  const NpzFile deflated(test::golden("npz/deflated.npz"));
  check_array<float>(deflated.read("zeros"), {5000}, std::vector<float>(5000));
}

TEST_CASE("npy: the three format versions") {
  for (const char* name : {"npz/v1.npy", "npz/v2.npy", "npz/v3.npy"})
    check_array<std::int32_t>(read_npy(test::golden(name)), {2, 2}, {0, 1, 2, 3});
}

TEST_CASE("npy: Fortran order of any rank and size") {
  // Value i0 + 100 i1 + 10000 i2 ... stored with the first index fastest.
  for (const Shape& shape : {Shape{70, 45}, Shape{3, 2, 5, 7}, Shape{1, 40, 33}, Shape{40, 1, 33},
                             Shape{5}, Shape{2, 0, 3}}) {
    std::string sizes;
    for (std::int64_t size : shape) sizes += std::to_string(size) + ",";
    Bytes bytes = npy("{'descr': '<i4', 'fortran_order': True, 'shape': (" + sizes + "), }\n",
                      4 * shape.numel());
    std::vector<std::int32_t> expected(shape.numel());
    for (std::int64_t i = 0; i < shape.numel(); ++i) {  // i counts in Fortran order
      std::int64_t rest = i, at = 0;
      std::int32_t value = 0, factor = 1;
      for (int dim = 0; dim < shape.rank(); ++dim, factor *= 100) {
        const std::int64_t index = rest % shape[dim];
        rest /= shape[dim];
        at += index * shape.trailing(dim + 1);
        value += factor * static_cast<std::int32_t>(index);
      }
      std::memcpy(bytes.data() + bytes.size() - 4 * (shape.numel() - i), &value, 4);
      expected[at] = value;
    }
    check_array<std::int32_t>(parse_npy(bytes, "x.npy"), shape, expected);
  }
}

TEST_CASE("npy: headers are Python literals, and nothing else is accepted") {
  const auto parse = [](const std::string& header, std::size_t data_bytes) {
    return error_of([&] { parse_npy(npy(header, data_bytes), "x.npy"); });
  };
  for (const char* good : {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }   \n",
                           "{'shape':(2,3),'fortran_order':False,'descr':'<f4'}",
                           "{\"descr\": \"<f4\", \"fortran_order\": False, \"shape\": (2L, 3L)}",
                           "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3,), }"})
    CHECK(parse(good, 24) == "");
  CHECK(parse("{'descr': '<f4', 'fortran_order': False, 'shape': ()}", 4) == "");
  for (const char* bad :
       {"",
        "{",
        "{}",
        "{'descr': '<f4', 'fortran_order': False}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (6)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2 3)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,, 3)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-2, -3)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)} x",
        "{'descr': '<f4', 'fortran_order': 0, 'shape': (2, 3)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), 'more': 1}",
        "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}",
        "{'descr': '<f4, 'fortran_order': False, 'shape': (2, 3)}",
        "{'descr': '<f4' 'fortran_order': False, 'shape': (2, 3)}",
        "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2, 3)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387905, 4)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387910,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,2,3)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,2,3)}"})
    CHECK_MESSAGE(parse(bad, 24).starts_with("x.npy: "), bad);
  CHECK(parse("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}", 20) ==
        "x.npy: shape (2, 3) of type <f4 does not match its 20 bytes of data");
}

TEST_CASE("npz: errors are one line, whatever stands in the file") {
  for (const std::string& message :
       {error_of([] { read_npy(test::golden("npz/newline_in_error.npy")); }), error_of([] {
          parse_npy(npy("{'descr': '<f\n\x1b[2J', 'fortran_order'\n\n: False}", 0), "x");
        }),
        error_of([] {
          parse_npy(npy("{'descr': '>\n4', 'fortran_order': False, 'shape': ()}", 4), "x");
        })}) {
    CHECK(message != "");
    CHECK(message.find('\n') == std::string::npos);
    CHECK(message.find('\x1b') == std::string::npos);
  }
}

TEST_CASE("npz: a promise of a terabyte allocates none") {
  // The header promises 2^38 floats, and the directory as many bytes as that would be.
  const std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (274877906944,), }";
  const Bytes start = npy(header, 0);
  const std::uint64_t promised = start.size() + (std::uint64_t{1} << 40);
  // Deflate in stored blocks: byte 1, length, its complement, the bytes.
  Bytes deflated{std::byte{1}};
  for (unsigned value : {static_cast<unsigned>(start.size()), ~static_cast<unsigned>(start.size())})
    for (int shift : {0, 8}) deflated.push_back(static_cast<std::byte>(value >> shift));
  deflated.insert(deflated.end(), start.begin(), start.end());
  std::string zip;
  const auto put = [&](std::uint64_t value, int size) {
    for (int i = 0; i < size; ++i) zip += static_cast<char>(value >> 8 * i);
  };
  const std::string name = "a.npy";
  const auto text = [&](const Bytes& bytes) {
    zip.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  put(0x04034b50, 4), put(45, 2), put(0, 2), put(8, 2), put(0, 8);
  put(0xffffffff, 4), put(0xffffffff, 4), put(name.size(), 2), put(20, 2);
  zip += name;
  put(1, 2), put(16, 2), put(promised, 8), put(deflated.size(), 8);
  text(deflated);
  const std::size_t directory = zip.size();
  put(0x02014b50, 4), put(45, 2), put(45, 2), put(0, 2), put(8, 2), put(0, 8);
  put(0xffffffff, 4), put(0xffffffff, 4), put(name.size(), 2), put(20, 2), put(0, 2);
  put(0, 2), put(0, 2), put(0, 4), put(0, 4);
  zip += name;
  put(1, 2), put(16, 2), put(promised, 8), put(deflated.size(), 8);
  const std::size_t end = zip.size();
  put(0x06054b50, 4), put(0, 4), put(1, 2), put(1, 2), put(end - directory, 4), put(directory, 4);
  put(0, 2);
  const auto bytes = std::as_bytes(std::span(zip));
  const NpzFile file(Bytes(bytes.begin(), bytes.end()), "x.npz");
  CHECK(error_of([&] { file.read("a"); }) == "x.npz: the compressed data of 'a.npy' are damaged");
}

TEST_CASE("npz: what is written is read back, with zip64 fields too") {
  test::TemporaryDirectory dir;
  const NpyArray a = array_of<float>({2, 3}, {1, 2, 3, 4, 5, 6});
  const NpyArray b = array_of<std::int64_t>({}, {std::numeric_limits<std::int64_t>::min()});
  const NpyArray c = array_of<std::uint8_t>({0, 5}, {});
  const NpyArray d = array_of<double>({1}, {-0.5});
  const NpyArray e = array_of<std::int32_t>({1, 1, 2}, {8, 9});
  const std::vector<std::pair<std::string, NpyView>> all{
      {"a", a}, {"b", b}, {"module.c/\xc3\xa9", c}, {"d", d}, {"e", e}};
  // Limits that put everything, or only some members' offsets, into zip64 fields.
  for (std::uint64_t limit : {0xffffffffu, 0u, 200u, 500u}) {
    CAPTURE(limit);
    detail::write_npz(dir / "x.npz", all, limit);
    const NpzFile file(dir / "x.npz");
    CHECK(file.names() == std::vector<std::string>{"a", "b", "module.c/\xc3\xa9", "d", "e"});
    for (const auto& [name, array] : all) {
      const NpyArray read = file.read(name);
      CHECK(read.dtype == array.dtype);
      CHECK(read.shape == array.shape);
      CHECK(read.bytes == Bytes(array.bytes.begin(), array.bytes.end()));
    }
  }
  write_npz(dir / "y.npz", all);
  detail::write_npz(dir / "z.npz", all, 0xffffffff);
  CHECK(read_file(dir / "y.npz") == read_file(dir / "z.npz"));
  write_npz(dir / "empty.npz", {});
  CHECK(NpzFile(dir / "empty.npz").names().empty());
  write_npy(dir / "a.npy", a);
  CHECK(read_npy(dir / "a.npy").bytes == a.bytes);
  CHECK(read_file(dir / "a.npy").size() == 128 + 24);

  const std::vector<std::pair<std::string, NpyView>> twice{{"a", a}, {"a", b}}, unnamed{{"", a}};
  CHECK_THROWS_AS(write_npz(dir / "y.npz", twice), Error);
  CHECK_THROWS_AS(write_npz(dir / "y.npz", unnamed), Error);
  CHECK_THROWS_AS(write_npy(dir / "a.npy", NpyView(f32, {7}, a.bytes)), Error);
  CHECK(read_file(dir / "y.npz") == read_file(dir / "z.npz"));
}

TEST_CASE("npz: every truncation is an error") {
  for (const char* name : {"npz/stored.npz", "npz/deflated.npz"}) {
    const Bytes bytes = read_file(test::golden(name));
    for (std::size_t size = 0; size < bytes.size(); ++size)
      CHECK_THROWS_AS(NpzFile(Bytes(bytes.begin(), bytes.begin() + size), "x.npz"), Error);
  }
  const Bytes bytes = read_file(test::golden("npz/v1.npy"));
  for (std::size_t size = 0; size < bytes.size(); ++size)
    CHECK_THROWS_AS(parse_npy(std::span(bytes).first(size), "x.npy"), Error);
}

TEST_CASE("npz: a changed byte never crashes, and never goes unnoticed in the data") {
  test::TemporaryDirectory dir;
  const NpyArray a = array_of<float>({2, 3}, {1, 2, 3, 4, 5, 6});
  const std::vector<std::pair<std::string, NpyView>> all{{"a", a}};
  write_npz(dir / "x.npz", all);
  const Bytes small = read_file(dir / "x.npz");
  const Bytes deflated = read_file(test::golden("npz/deflated.npz"));
  int unnoticed = 0;
  for (std::size_t i = 0; i < small.size(); ++i)
    for (int change = 1; change < 256; ++change) {
      Bytes bytes = small;
      bytes[i] ^= static_cast<std::byte>(change);
      if (!reads(bytes)) continue;
      ++unnoticed;
      // What may change unnoticed: dates, versions, flags, attributes, and the like in the headers.
      const NpzFile file(bytes, "x.npz");
      CHECK((!file.contains("a") || file.read("a").bytes == a.bytes));
    }
  CHECK(unnoticed > 0);
  for (std::size_t i = 0; i < deflated.size(); ++i)
    for (int change : {1, 0x80, 0xff}) {
      Bytes bytes = deflated;
      bytes[i] ^= static_cast<std::byte>(change);
      reads(bytes);
    }
}

TEST_CASE("npz: archives that try to deceive are refused") {
  test::TemporaryDirectory dir;
  const NpyArray a = array_of<float>({2, 3}, {1, 2, 3, 4, 5, 6});
  const NpyArray b = array_of<float>({2, 3}, {6, 5, 4, 3, 2, 1});
  const std::vector<std::pair<std::string, NpyView>> all{{"a", a}, {"b", b}};
  write_npz(dir / "x.npz", all);
  const Bytes good = read_file(dir / "x.npz");
  const std::size_t end = good.size() - 22;
  std::size_t directory = 0;
  std::memcpy(&directory, good.data() + end + 16, 4);
  const std::size_t second = directory + 46 + 5;
  const auto changed = [&](std::size_t at, auto value) {
    Bytes bytes = good;
    std::memcpy(bytes.data() + at, &value, sizeof(value));
    return error_of([&] { NpzFile(bytes, "x.npz").read("a"); });
  };
  CHECK(contains(changed(second + 46, 'a'), "does not match the directory"));
  CHECK(contains(changed(second + 42, std::uint32_t{0}), "does not match the directory"));
  CHECK(contains(changed(directory + 8, std::uint16_t{1}), "is encrypted"));
  CHECK(contains(changed(end + 4, std::uint16_t{1}), "several disks"));
  CHECK(contains(changed(end + 16, std::uint32_t{0x7fffffff}), "the directory"));
  CHECK(contains(changed(directory + 24, std::uint32_t{0x7fffffff}), "is stored as"));
  CHECK(contains(changed(directory + 20, std::uint64_t{0x7000000070000000}), "reach beyond"));
  CHECK(contains(changed(good.size() - 2, std::uint16_t{1}), "no end record"));

  // The same name twice, in both headers.
  Bytes twice = good;
  std::uint32_t local = 0;
  std::memcpy(&local, good.data() + second + 42, 4);
  twice[second + 46] = twice[local + 30] = std::byte{'a'};
  CHECK(contains(error_of([&] { NpzFile(twice, "x.npz"); }), "two members are called 'a.npy'"));

  // Two names for the same data.
  Bytes overlap = good;
  std::memcpy(overlap.data() + directory, good.data() + second, 51);
  overlap[directory + 46] = std::byte{'b'};
  CHECK(contains(error_of([&] { NpzFile(overlap, "x.npz"); }), "members overlap"));

  // A method that is neither stored nor deflated is refused when the array is asked for.
  Bytes method = good;
  method[directory + 10] = method[8] = std::byte{14};
  const NpzFile file(method, "x.npz");
  CHECK(contains(error_of([&] { file.read("a"); }), "compressed with method 14"));
  CHECK(file.read("b").bytes == b.bytes);
}

TEST_CASE("npz: tensors") {
  test::TemporaryDirectory dir;
  const std::map<std::string, Tensor> tensors{{"a", from_values<float>({2, 2}, {1, 2, 3, 4})},
                                              {"b", full({}, -3, i64)},
                                              {"part", arange(6, i32).alias({3}, 2)},
                                              {"none", zeros({0, 4}, f64)}};
  save_npz(dir / "x.npz", tensors);
  const auto read = load_npz(dir / "x.npz");
  CHECK(read.size() == 4);
  for (const auto& [name, tensor] : tensors) {
    CHECK(bitwise_equal(read.at(name), tensor));
    save_npy(dir / "x.npy", tensor);
    CHECK(bitwise_equal(load_npy(dir / "x.npy"), tensor));
  }
  CHECK(load_npz(dir / "x.npz", {"b"}).size() == 1);
  CHECK(load_npz(test::golden("npz/stored.npz"), {"f4", "masks"}).at("masks").dtype() == u8);
  CHECK_THROWS_AS(load_npz(test::golden("npz/stored.npz")), Error);  // strings are among its arrays
  CHECK_THROWS_AS(save_npy(dir / "x.npy", Tensor()), Error);
  CHECK_THROWS_AS(save_npz(dir / "x.npz", std::map<std::string, Tensor>{{"u", Tensor()}}), Error);
}

TEST_CASE("npz: the data sets at hand") {
  if (const std::string path = test::find_data("npz/cora.npz"); !path.empty()) {
    const NpzFile file(path);
    const NpyArray edges = file.read("edges");
    CHECK(edges.shape == Shape{5278, 2});
    std::int64_t u = 0, v = 0;
    const auto values = edges.values<std::int32_t>();
    for (std::size_t i = 0; i < values.size(); i += 2) {
      u += values[i];
      v += values[i + 1];
    }
    CHECK(u == 4700087);
    CHECK(v == 9120131);
  }
  // Fortran-ordered masks, zip64 extra fields in the local headers.
  if (const std::string path = test::find_data("heterophilous/texas.npz"); !path.empty()) {
    const NpzFile file(path);
    const NpyArray train = file.read("train_masks"), val = file.read("val_masks"),
                   test = file.read("test_masks");
    CHECK(train.shape == Shape{10, 183});
    const auto a = train.values<std::uint8_t>(), b = val.values<std::uint8_t>(),
               c = test.values<std::uint8_t>();
    int wrong = 0;
    for (std::size_t i = 0; i < a.size(); ++i) wrong += a[i] + b[i] + c[i] != 1;
    CHECK(wrong == 0);
  }
}

}  // namespace lipgrad
