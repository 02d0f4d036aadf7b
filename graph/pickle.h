#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lipgrad/core/dtype.h>
#include <lipgrad/core/shape.h>

namespace lipgrad {

// A reader for the pickles of the Planetoid data sets (protocol 2, written by Python 2): the
// opcodes and globals that occur there, and nothing else. Any other opcode or global is refused by
// name and offset, so no file can make the reader do anything but build the values below. The
// values live in one arena and refer to each other by number: shared and even cyclic values cost no
// copies, and neither reading nor releasing them recurses.

enum class PickleKind : std::uint8_t {
  none,
  boolean,
  integer,
  string,
  list,
  tuple,
  dict,
  array,
  csr_matrix,
  dtype,
  global,
};

// "None", "bool", "int", ...
const char* name_of(PickleKind kind);

// A numpy array, its elements in C order, little-endian, where they lie in the file (not aligned).
struct PickleArray {
  DType dtype = f32;
  Shape shape;
  std::span<const std::byte> bytes;
};

// A scipy.sparse.csr_matrix whose parts fit together: row_offsets has rows + 1 ascending entries
// from 0 to the number of elements, columns are in [0, cols). A row's columns may be in any order.
struct PickleCsr {
  std::int64_t rows = 0, cols = 0;
  std::vector<std::int64_t> row_offsets;
  std::vector<std::int32_t> columns;
  std::vector<float> values;
};

class Pickle;

// One value; valid as long as its Pickle. Asking for what it is not gives
// Error "<file>: expected int, found list".
class PickleValue {
 public:
  PickleKind kind() const;
  // Of an int or a bool.
  std::int64_t integer() const;
  std::string_view string() const;
  // Of a list or tuple: elements; of a dict: entries, in the order they were set, repeated keys
  // kept.
  std::int64_t size() const;
  // Element of a list or tuple.
  PickleValue operator[](std::int64_t index) const;
  // Parts of an entry of a dict.
  PickleValue key(std::int64_t index) const;
  PickleValue value(std::int64_t index) const;
  // What a dict holds under a string; Error when it holds nothing. The last of repeated keys
  // counts.
  PickleValue get(std::string_view key) const;
  PickleArray array() const;
  PickleCsr csr() const;

 private:
  friend class Pickle;
  PickleValue(const Pickle* pickle, std::uint32_t node) : pickle_(pickle), node_(node) {}
  void expect(PickleKind kind) const;
  PickleValue child(std::uint64_t index) const;

  const Pickle* pickle_;
  std::uint32_t node_;
};

// A pickle read whole. Not copied or moved: its values point to it.
class Pickle {
 public:
  // Reads the file; every Error starts with the path.
  explicit Pickle(const std::string& path);
  // The same from memory; errors start with `file`.
  Pickle(std::vector<std::byte> bytes, std::string file);
  Pickle(const Pickle&) = delete;
  Pickle& operator=(const Pickle&) = delete;

  const std::string& file() const { return file_; }
  // Bytes of the file.
  std::size_t size() const { return bytes_.size(); }
  PickleValue root() const { return {this, root_}; }

 private:
  friend class PickleValue;
  friend class PickleMachine;

  // What link and value mean depends on the kind. link: the number of a container, an array or a
  // dict node, a string's length. value: an int's value, a string's offset.
  struct Node {
    PickleKind kind;
    std::uint32_t link;
    std::int64_t value;
  };
  // The link of a container that is still empty, of an array or a matrix without its state.
  static constexpr std::uint32_t kNothing = 0xffffffff;

  std::vector<std::byte> bytes_;
  std::string file_;
  // Grow in pieces: a vector would hold its elements twice while it grows.
  std::deque<Node> nodes_;
  std::deque<std::vector<std::uint32_t>> containers_;
  std::deque<PickleArray> arrays_;
  std::uint32_t root_ = 0;
};

}  // namespace lipgrad
