#include <lipgrad/graph/pickle.h>

#include <algorithm>
#include <cstring>

#include <lipgrad/core/check.h>

namespace lipgrad {
namespace {

// The elements of a one-dimensional array as T, which must hold them.
template <class T, class From>
std::vector<T> convert(std::span<const std::byte> bytes) {
  std::vector<T> values(bytes.size() / sizeof(From));
  for (std::size_t i = 0; i < values.size(); ++i) {
    From value;
    std::memcpy(&value, bytes.data() + i * sizeof(From), sizeof(From));
    values[i] = static_cast<T>(value);
  }
  return values;
}

}  // namespace

const char* name_of(PickleKind kind) {
  constexpr const char* names[] = {"None", "bool",  "int",        "string", "list",  "tuple",
                                   "dict", "array", "csr_matrix", "dtype",  "global"};
  return names[static_cast<int>(kind)];
}

void PickleValue::expect(PickleKind kind) const {
  LIPGRAD_CHECK(this->kind() == kind, "{}: expected {}, found {}", pickle_->file_, name_of(kind),
                name_of(this->kind()));
}

PickleKind PickleValue::kind() const { return pickle_->nodes_[node_].kind; }

std::int64_t PickleValue::integer() const {
  if (kind() != PickleKind::boolean) expect(PickleKind::integer);
  return pickle_->nodes_[node_].value;
}

std::string_view PickleValue::string() const {
  expect(PickleKind::string);
  const auto& node = pickle_->nodes_[node_];
  return {reinterpret_cast<const char*>(pickle_->bytes_.data()) + node.value, node.link};
}

std::int64_t PickleValue::size() const {
  if (kind() != PickleKind::tuple && kind() != PickleKind::dict) expect(PickleKind::list);
  const std::uint32_t link = pickle_->nodes_[node_].link;
  if (link == Pickle::kNothing) return 0;
  const auto items = static_cast<std::int64_t>(pickle_->containers_[link].size());
  return kind() == PickleKind::dict ? items / 2 : items;
}

PickleValue PickleValue::child(std::uint64_t index) const {
  const std::uint32_t link = pickle_->nodes_[node_].link;
  LIPGRAD_CHECK(link != Pickle::kNothing && index < pickle_->containers_[link].size(),
                "{}: {} has no element {}", pickle_->file_, name_of(kind()), index);
  return {pickle_, pickle_->containers_[link][index]};
}

PickleValue PickleValue::operator[](std::int64_t index) const {
  if (kind() != PickleKind::tuple) expect(PickleKind::list);
  return child(static_cast<std::uint64_t>(index));
}

PickleValue PickleValue::key(std::int64_t index) const {
  expect(PickleKind::dict);
  return child(2 * static_cast<std::uint64_t>(index));
}

PickleValue PickleValue::value(std::int64_t index) const {
  expect(PickleKind::dict);
  return child(2 * static_cast<std::uint64_t>(index) + 1);
}

PickleValue PickleValue::get(std::string_view wanted) const {
  for (std::int64_t i = size(); i-- > 0;)
    if (key(i).kind() == PickleKind::string && key(i).string() == wanted) return value(i);
  fail("{}: no '{}' in a dict of {} entries", pickle_->file_, wanted, size());
}

PickleArray PickleValue::array() const {
  expect(PickleKind::array);
  const std::uint32_t link = pickle_->nodes_[node_].link;
  LIPGRAD_CHECK(link != Pickle::kNothing, "{}: an array without content", pickle_->file_);
  return pickle_->arrays_[link];
}

PickleCsr PickleValue::csr() const {
  expect(PickleKind::csr_matrix);
  const std::string& file = pickle_->file_;
  const std::uint32_t link = pickle_->nodes_[node_].link;
  LIPGRAD_CHECK(link != Pickle::kNothing, "{}: a csr_matrix without content", file);
  const PickleValue state(pickle_, link);
  const PickleValue shape = state.get("_shape");
  const PickleArray offsets = state.get("indptr").array(), columns = state.get("indices").array(),
                    values = state.get("data").array();
  LIPGRAD_CHECK(shape.kind() == PickleKind::tuple && shape.size() == 2,
                "{}: csr_matrix: its shape is not a pair", file);
  PickleCsr csr;
  csr.rows = shape[0].integer();
  csr.cols = shape[1].integer();
  LIPGRAD_CHECK(offsets.dtype == i32 && columns.dtype == i32 && is_floating(values.dtype),
                "{}: csr_matrix: indptr, indices, data are {}, {}, {}; expected i32, i32, f32",
                file, offsets.dtype, columns.dtype, values.dtype);
  LIPGRAD_CHECK(csr.rows >= 0 && csr.cols >= 0 && offsets.shape == Shape{csr.rows + 1} &&
                    columns.shape.rank() == 1 && values.shape == columns.shape,
                "{}: csr_matrix of {} x {}: the shapes of indptr, indices, data are {}, {}, {}",
                file, csr.rows, csr.cols, offsets.shape, columns.shape, values.shape);
  csr.row_offsets = convert<std::int64_t, std::int32_t>(offsets.bytes);
  csr.columns = convert<std::int32_t, std::int32_t>(columns.bytes);
  csr.values = values.dtype == f32 ? convert<float, float>(values.bytes)
                                   : convert<float, double>(values.bytes);
  LIPGRAD_CHECK(csr.row_offsets.front() == 0 && csr.row_offsets.back() == columns.shape[0] &&
                    std::is_sorted(csr.row_offsets.begin(), csr.row_offsets.end()),
                "{}: csr_matrix: indptr does not ascend from 0 to {}", file, columns.shape[0]);
  for (std::int32_t column : csr.columns)
    LIPGRAD_CHECK(column >= 0 && column < csr.cols, "{}: csr_matrix: column {} of {}", file, column,
                  csr.cols);
  return csr;
}

}  // namespace lipgrad
