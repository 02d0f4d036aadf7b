#include <lipgrad/graph/pickle.h>

#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <vector>

#include <lipgrad/core/error.h>
#include <lipgrad/core/file.h>
#include <support/data.h>
#include <support/errors.h>

namespace lipgrad {
namespace {

using Bytes = std::vector<std::byte>;
using namespace std::string_literals;

Bytes bytes_of(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

using test::error_of;

std::string refusal(const std::string& pickle) {
  return error_of([&] { Pickle(bytes_of(pickle), "x"); });
}

// Asks each value for all it can give. Depth is limited here, since cycles are legal.
void visit(const PickleValue& value, int depth) {
  if (depth == 0) return;
  switch (value.kind()) {
    case PickleKind::list:
    case PickleKind::tuple:
      for (std::int64_t i = 0; i < value.size(); ++i) visit(value[i], depth - 1);
      break;
    case PickleKind::dict:
      for (std::int64_t i = 0; i < value.size(); ++i) {
        visit(value.key(i), depth - 1);
        visit(value.value(i), depth - 1);
      }
      break;
    case PickleKind::array:
      value.array();
      break;
    case PickleKind::csr_matrix:
      value.csr();
      break;
    default:
      break;
  }
}

bool reads(const Bytes& bytes) {
  try {
    visit(Pickle(bytes, "x").root(), 3);
  } catch (const Error&) {
    return false;
  }
  return true;
}

template <class T>
std::vector<T> values_of(const PickleArray& array) {
  CHECK(array.dtype == dtype_of<T>());
  std::vector<T> values(array.shape.numel());
  REQUIRE(array.bytes.size() == values.size() * sizeof(T));
  std::memcpy(values.data(), array.bytes.data(), array.bytes.size());
  return values;
}

}  // namespace

TEST_CASE("pickle: plain values") {
  const Pickle pickle(bytes_of("\x80\x02(K\x07M\x01\x02J\xfe\xff\xff\xffU\x03"
                               "abcT\x02\x00\x00\x00xyX\x01\x00\x00\x00zN\x88\x89]q\x01(K\x01K\x02"
                               "eK\x03"
                               "a}(U\x01kK\x05uh\x01j\x01\x00\x00\x00)K\x04\x85K\x08K\x09\x86t."s),
                      "x");
  const PickleValue root = pickle.root();
  REQUIRE(root.kind() == PickleKind::tuple);
  REQUIRE(root.size() == 16);
  CHECK(root[0].integer() == 7);
  CHECK(root[1].integer() == 0x201);
  CHECK(root[2].integer() == -2);
  CHECK(root[3].string() == "abc");
  CHECK(root[4].string() == "xy");
  CHECK(root[5].string() == "z");
  CHECK(root[6].kind() == PickleKind::none);
  CHECK(root[7].integer() == 1);
  CHECK(root[8].integer() == 0);
  for (int i : {9, 11, 12}) {  // the list, and the same list through the memo
    REQUIRE(root[i].size() == 3);
    CHECK(root[i][2].integer() == 3);
  }
  CHECK(root[10].get("k").integer() == 5);
  CHECK(root[10].key(0).string() == "k");
  CHECK(root[13].size() == 0);
  CHECK(root[14][0].integer() == 4);
  CHECK(root[15][1].integer() == 9);

  CHECK(error_of([&] { root.integer(); }) == "x: expected int, found tuple");
  CHECK(error_of([&] { root[0].size(); }) == "x: expected list, found int");
  CHECK(error_of([&] { root[0].array(); }) == "x: expected array, found int");
  CHECK(error_of([&] { root[10].get("z"); }) == "x: no 'z' in a dict of 1 entries");
  CHECK_THROWS_AS(root[16], Error);
  CHECK_THROWS_AS(root[-1], Error);
  CHECK_THROWS_AS(root[13][0], Error);
  CHECK_THROWS_AS(root[10].key(1), Error);
}

TEST_CASE("pickle: whatever does not occur in the data sets is refused by name and offset") {
  CHECK(refusal("\x80\x02K\x01\x93."s) ==
        "x: cannot read the pickle at offset 4: opcode 0x93 is not supported");
  CHECK(refusal("\x80\x02"
                "cposix\nsystem\nU\x02ls\x85R.") ==
        "x: cannot read the pickle at offset 2: global 'posix system' is not allowed");
  CHECK(refusal("\x80\x04K\x01.") ==
        "x: cannot read the pickle at offset 0: protocol 4, at most 2 is supported");
  for (const std::string& bad : {"."s,
                                 "t."s,
                                 "(."s,
                                 "(K\x01."s,
                                 "K\x01K\x02."s,
                                 "K\x01.K"s,
                                 "]K\x01"s,
                                 "h\x00."s,
                                 "h\x05."s,
                                 "q\x01."s,
                                 "K\x01r\xff\xff\xff\xff."s,
                                 "a."s,
                                 "]a."s,
                                 "](K\x01"s,
                                 "K\x01(K\x02e."s,
                                 "}(K\x01u."s,
                                 "](K\x01K\x02u."s,
                                 "(e."s,
                                 "]((e."s,
                                 "K\x01R."s,
                                 "K\x01K\x02R."s,
                                 "Nb."s,
                                 "NNb."s,
                                 "N)\x81."s,
                                 "U\x05"s + "abc."s,
                                 "T\xff\xff\xff\xff"s,
                                 "X\xff\xff\xff\xff."s,
                                 "c"s + std::string(200, 'a'),
                                 "cnumpy\ndtype\n)R."s,
                                 "cnumpy\nndarray\n)R."s,
                                 "cnumpy\ndtype\nU\x02i2K\x00K\x01\x87R."s,
                                 "cscipy.sparse.csr\ncsr_matrix\nN\x81."s,
                                 "ccollections\ndefaultdict\ncnumpy\ndtype\n\x85R."s,
                                 "K\x01(\x85."s,
                                 "(K\x01\x86."s,
                                 "]K\x01\x86(a."s})
    CHECK_MESSAGE(refusal(bad).starts_with("x: "), bad);
}

TEST_CASE("pickle: cyclic, shared and deep values cost no more than their opcodes") {
  // A list that holds itself, and a matrix whose state holds the matrix.
  const Pickle cycle(bytes_of("]q\x00h\x00"
                              "a."s),
                     "x");
  CHECK(cycle.root()[0][0][0].size() == 1);
  const Pickle matrix(bytes_of("cscipy.sparse.csr\ncsr_matrix\n)\x81q\x00}(U\x06_shapeh\x00ub."s),
                      "x");
  CHECK_THROWS_AS(matrix.root().csr(), Error);
  // Each list holds the one before twice: 2^40 elements if they were copied.
  std::string shared = "(]q\x00"s;  // all of them in one tuple
  for (char i = 1; i <= 40; ++i)
    shared += "]q"s + i + "(h" + static_cast<char>(i - 1) + "h" + static_cast<char>(i - 1) + "e";
  const Pickle laughs(bytes_of(shared + "t."), "x");
  CHECK(laughs.root().size() == 41);
  // A million levels of nesting, built and released without recursion.
  const std::string deep = "N" + std::string(1000000, '\x85') + ".";
  CHECK(Pickle(bytes_of(deep), "x").root().size() == 1);
}

TEST_CASE("pickle: a small data set in Planetoid's format") {
  const Pickle x(test::golden("planetoid/ind.tiny.allx"));
  const PickleCsr csr = x.root().csr();
  CHECK(csr.rows == 9);
  CHECK(csr.cols == 6);
  CHECK(csr.row_offsets == std::vector<std::int64_t>{0, 2, 4, 6, 8, 10, 10, 12, 14, 16});
  CHECK(csr.columns == std::vector<std::int32_t>{0, 2, 1, 3, 2, 4, 3, 5, 0, 4, 0, 2, 1, 3, 2, 4});
  CHECK(csr.values[2] == 1.25f);
  const Pickle y(test::golden("planetoid/ind.tiny.y"));
  CHECK(y.root().array().shape == Shape{3, 3});
  CHECK(values_of<std::int32_t>(y.root().array()) ==
        std::vector<std::int32_t>{1, 0, 0, 0, 1, 0, 0, 0, 1});
  const Pickle graph(test::golden("planetoid/ind.tiny.graph"));
  CHECK(graph.root().size() == 14);
  CHECK(graph.root().key(5).integer() == 5);
  CHECK(graph.root().value(5).size() == 4);
}

TEST_CASE("pickle: truncated or changed files give errors, never crashes") {
  for (const char* part : {"x", "y", "graph"}) {
    const Bytes bytes = read_file(test::golden(std::string("planetoid/ind.tiny.") + part));
    CHECK(reads(bytes));
    for (std::size_t size = 0; size < bytes.size(); ++size)
      CHECK_THROWS_AS(Pickle(Bytes(bytes.begin(), bytes.begin() + size), "x"), Error);
    for (std::size_t i = 0; i < bytes.size(); ++i)
      for (int change = 1; change < 256; ++change) {
        Bytes changed = bytes;
        changed[i] ^= static_cast<std::byte>(change);
        reads(changed);
      }
  }
}

TEST_CASE("pickle: csr_matrix parts that do not fit together are refused") {
  const Bytes good = read_file(test::golden("planetoid/ind.tiny.x"));
  const std::string text(reinterpret_cast<const char*>(good.data()), good.size());
  // Offsets 0 2 4 6 in the file, as little-endian i4.
  const std::size_t offsets = text.find("\0\0\0\0\2\0\0\0\4\0\0\0"s);
  REQUIRE(offsets != std::string::npos);
  const std::size_t columns = text.find("\0\0\0\0\2\0\0\0\1\0\0\0\3\0\0\0"s);
  REQUIRE(columns != std::string::npos);
  const auto with = [&](std::size_t at, char value) {
    std::string changed = text;
    changed[at] = value;
    return error_of([&] { Pickle(bytes_of(changed), "x").root().csr(); });
  };
  CHECK(with(offsets, '\1') == "x: csr_matrix: indptr does not ascend from 0 to 6");
  CHECK(with(offsets + 4, '\5') == "x: csr_matrix: indptr does not ascend from 0 to 6");
  CHECK(with(offsets + 12, '\5') == "x: csr_matrix: indptr does not ascend from 0 to 6");
  CHECK(with(columns + 4, '\6') == "x: csr_matrix: column 6 of 6");
  CHECK(with(columns + 7, '\xff').starts_with("x: csr_matrix: column -"));
  CHECK(with(text.find("_shape"), '-') == "x: no '_shape' in a dict of 7 entries");
}

TEST_CASE("pickle: every original Planetoid file at hand") {
  const std::string folder = test::find_data("planetoid");
  if (folder.empty()) return;
  int files = 0;
  for (const char* name : {"cora", "citeseer", "pubmed"})
    for (const char* part : {"x", "y", "tx", "ty", "allx", "ally", "graph"}) {
      const std::string path = folder + "/ind." + name + "." + part;
      if (!std::filesystem::exists(path)) continue;
      CAPTURE(path);
      const Pickle pickle(path);
      ++files;
      if (std::string(part).ends_with("x")) CHECK(pickle.root().csr().rows > 0);
      if (std::string(part).ends_with("y")) CHECK(pickle.root().array().dtype == i32);
      if (std::string(part) == "graph") CHECK(pickle.root().size() > 2000);
    }
  CHECK(files >= 20);
}

}  // namespace lipgrad
