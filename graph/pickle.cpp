#include <lipgrad/graph/pickle.h>

#include <algorithm>
#include <limits>
#include <utility>

#include <lipgrad/core/check.h>
#include <lipgrad/core/file.h>
#include <lipgrad/core/printable.h>

namespace lipgrad {
namespace {

enum Global : std::uint32_t { kCsrMatrix, kReconstruct, kNdarray, kDtype, kDefaultDict, kList };
constexpr std::string_view kGlobals[] = {"scipy.sparse.csr csr_matrix",
                                         "numpy.core.multiarray _reconstruct",
                                         "numpy ndarray",
                                         "numpy dtype",
                                         "collections defaultdict",
                                         "__builtin__ list"};

struct ElementType {
  std::string_view name;
  DType dtype;
};
constexpr ElementType kElementTypes[] = {{"f4", f32}, {"f8", f64}, {"i4", i32}, {"i8", i64}};

}  // namespace

// The stack machine that the opcodes of a pickle drive.
class PickleMachine {
 public:
  explicit PickleMachine(Pickle& pickle) : p_(pickle) {}

  void run() {
    LIPGRAD_CHECK(p_.bytes_.size() <= std::numeric_limits<std::int32_t>::max(),
                  "{}: {} bytes, pickles above 2 GiB are not supported", p_.file_,
                  p_.bytes_.size());
    while (step()) {
    }
    LIPGRAD_CHECK(stack_.size() == 1 && marks_.empty(),
                  "{}: damaged pickle: {} values are left at its end, expected 1", p_.file_,
                  stack_.size());
    LIPGRAD_CHECK(at_ == p_.bytes_.size(), "{}: damaged pickle: {} bytes follow its end", p_.file_,
                  p_.bytes_.size() - at_);
    p_.root_ = stack_[0];
  }

 private:
  using Node = Pickle::Node;
  static constexpr std::uint32_t kNothing = Pickle::kNothing;

  // Executes one opcode; false after STOP.
  bool step() {
    opcode_at_ = at_;
    const auto opcode = static_cast<unsigned char>(number(1));
    switch (opcode) {
      case 0x80: {  // PROTO
        const std::int64_t protocol = number(1);
        if (protocol > 2) refuse(fmt::format("protocol {}, at most 2 is supported", protocol));
        break;
      }
      case 'c':  // GLOBAL
        push_global();
        break;
      case ')':  // EMPTY_TUPLE
        push({PickleKind::tuple, kNothing, 0});
        break;
      case ']':  // EMPTY_LIST
        push({PickleKind::list, kNothing, 0});
        break;
      case '}':  // EMPTY_DICT
        push({PickleKind::dict, kNothing, 0});
        break;
      case '(':  // MARK
        marks_.push_back(static_cast<std::uint32_t>(stack_.size()));
        break;
      case 't':  // TUPLE
        push_tuple(pop_mark());
        break;
      case 0x85:  // TUPLE1
      case 0x86:  // TUPLE2
      case 0x87:  // TUPLE3
        need(opcode - 0x84u);
        push_tuple(stack_.size() - (opcode - 0x84u));
        break;
      case 0x81: {  // NEWOBJ
        const std::uint32_t arguments = pop(), type = pop();
        if (!is_global(type, kCsrMatrix) || !is_empty_tuple(arguments))
          refuse("expected csr_matrix.__new__()");
        push({PickleKind::csr_matrix, kNothing, 0});
        break;
      }
      case 'R': {  // REDUCE
        const std::uint32_t arguments = pop(), function = pop();
        reduce(function, arguments);
        break;
      }
      case 'b': {  // BUILD
        const std::uint32_t state = pop();
        build(top(), state);
        break;
      }
      case 'q':  // BINPUT
        put(number(1));
        break;
      case 'r':  // LONG_BINPUT
        put(number(4));
        break;
      case 'h':  // BINGET
        get(number(1));
        break;
      case 'j':  // LONG_BINGET
        get(number(4));
        break;
      case 'J':  // BININT
        push({PickleKind::integer, 0, static_cast<std::int32_t>(number(4))});
        break;
      case 'K':  // BININT1
        push({PickleKind::integer, 0, number(1)});
        break;
      case 'M':  // BININT2
        push({PickleKind::integer, 0, number(2)});
        break;
      case 'U':  // SHORT_BINSTRING
        push_string(number(1));
        break;
      case 'T':  // BINSTRING
      case 'X':  // BINUNICODE
        push_string(number(4));
        break;
      case 'N':  // NONE
        push({PickleKind::none, 0, 0});
        break;
      case 0x88:  // NEWTRUE
        push({PickleKind::boolean, 0, 1});
        break;
      case 0x89:  // NEWFALSE
        push({PickleKind::boolean, 0, 0});
        break;
      case 'a':  // APPEND
        need(2);
        add_items(PickleKind::list, stack_.size() - 1);
        break;
      case 'e':  // APPENDS
        add_items(PickleKind::list, pop_mark());
        break;
      case 'u':  // SETITEMS
        add_items(PickleKind::dict, pop_mark());
        break;
      case '.':  // STOP
        return false;
      default:
        refuse(fmt::format("opcode 0x{:02x} is not supported", opcode));
    }
    return true;
  }

  [[noreturn]] void refuse(std::string_view why) const {
    fail("{}: cannot read the pickle at offset {}: {}", p_.file_, opcode_at_, why);
  }

  // A little-endian number of 1, 2 or 4 bytes, without sign.
  std::int64_t number(std::size_t size) {
    LIPGRAD_CHECK(size <= p_.bytes_.size() - at_, "{}: the pickle is truncated at offset {}",
                  p_.file_, p_.bytes_.size());
    std::int64_t value = 0;
    for (std::size_t i = 0; i < size; ++i)
      value |= std::to_integer<std::int64_t>(p_.bytes_[at_++]) << 8 * i;
    return value;
  }

  // Values below the last mark are out of reach.
  void need(std::size_t count) const {
    const std::size_t floor = marks_.empty() ? 0 : marks_.back();
    if (stack_.size() - floor < count) refuse("too few values on the stack");
  }
  std::uint32_t top() const {
    need(1);
    return stack_.back();
  }
  std::uint32_t pop() {
    const std::uint32_t node = top();
    stack_.pop_back();
    return node;
  }
  // Removes the last mark and returns the number of values that were below it.
  std::size_t pop_mark() {
    if (marks_.empty()) refuse("no mark on the stack");
    const std::size_t below = marks_.back();
    marks_.pop_back();
    return below;
  }
  void push(Node node) {
    stack_.push_back(static_cast<std::uint32_t>(p_.nodes_.size()));
    p_.nodes_.push_back(node);
  }

  void put(std::int64_t id) {
    // Every put takes two bytes or more, and they are numbered from 0 or 1 on.
    if (id > static_cast<std::int64_t>(p_.bytes_.size())) refuse("a memo number out of range");
    const auto index = static_cast<std::size_t>(id);
    if (memo_.size() <= index) memo_.resize(index + 1, kNothing);
    memo_[index] = top();
  }
  void get(std::int64_t id) {
    const auto index = static_cast<std::size_t>(id);
    if (index >= memo_.size() || memo_[index] == kNothing) refuse("a memo number never put");
    stack_.push_back(memo_[index]);
  }

  void push_string(std::int64_t size) {
    if (size > std::numeric_limits<std::int32_t>::max()) refuse("a string of negative size");
    LIPGRAD_CHECK(static_cast<std::size_t>(size) <= p_.bytes_.size() - at_,
                  "{}: the pickle is truncated: a string of {} bytes at offset {}, {} are left",
                  p_.file_, size, opcode_at_, p_.bytes_.size() - at_);
    push({PickleKind::string, static_cast<std::uint32_t>(size), static_cast<std::int64_t>(at_)});
    at_ += static_cast<std::size_t>(size);
  }

  void push_global() {
    std::string name;
    for (int line = 0; line < 2; ++line) {
      if (line > 0) name += ' ';
      for (char c; (c = static_cast<char>(number(1))) != '\n';) {
        name += c;
        if (name.size() > 100) refuse("a global with a long name");
      }
    }
    const auto found = std::find(std::begin(kGlobals), std::end(kGlobals), name);
    if (found == std::end(kGlobals))
      refuse(fmt::format("global '{}' is not allowed", printable(name)));
    push({PickleKind::global, static_cast<std::uint32_t>(found - std::begin(kGlobals)), 0});
  }

  void push_tuple(std::size_t below) {
    if (below == stack_.size()) return push({PickleKind::tuple, kNothing, 0});
    p_.containers_.emplace_back(stack_.begin() + static_cast<std::ptrdiff_t>(below), stack_.end());
    stack_.resize(below);
    push({PickleKind::tuple, static_cast<std::uint32_t>(p_.containers_.size() - 1), 0});
  }

  // Moves the values from `below` on into the list or dict under them.
  void add_items(PickleKind kind, std::size_t below) {
    const std::size_t floor = marks_.empty() ? 0 : marks_.back();
    if (below <= floor) refuse("too few values on the stack");
    Node& target = node(stack_[below - 1]);
    if (target.kind != kind)
      refuse(fmt::format("expected {}, found {}", name_of(kind), name_of(target.kind)));
    if (kind == PickleKind::dict && (stack_.size() - below) % 2 != 0)
      refuse("a key without a value");
    if (below == stack_.size()) return;
    if (target.link == kNothing) {
      target.link = static_cast<std::uint32_t>(p_.containers_.size());
      p_.containers_.emplace_back();
    }
    auto& items = p_.containers_[target.link];
    items.insert(items.end(), stack_.begin() + static_cast<std::ptrdiff_t>(below), stack_.end());
    stack_.resize(below);
  }

  void reduce(std::uint32_t function, std::uint32_t arguments) {
    if (is_global(function, kReconstruct)) {
      const auto items = tuple(arguments, 3);
      if (!is_global(items[0], kNdarray)) refuse("expected an ndarray");
      push({PickleKind::array, kNothing, 0});
    } else if (is_global(function, kDtype)) {
      const std::string_view name = string(tuple(arguments, 3)[0]);
      for (const ElementType& type : kElementTypes)
        if (name == type.name)
          return push({PickleKind::dtype, static_cast<std::uint32_t>(type.dtype), 0});
      refuse(fmt::format("elements of type '{}' are not supported", printable(name, 20)));
    } else if (is_global(function, kDefaultDict)) {
      if (!is_global(tuple(arguments, 1)[0], kList)) refuse("expected a defaultdict of lists");
      push({PickleKind::dict, kNothing, 0});
    } else {
      refuse("a call of something that cannot be called");
    }
  }

  void build(std::uint32_t object, std::uint32_t state) {
    Node& target = node(object);
    if (target.kind == PickleKind::csr_matrix && node(state).kind == PickleKind::dict) {
      target.link = state;
    } else if (target.kind == PickleKind::dtype) {
      // (3, '<', None, None, None, -1, -1, 0): the version and the byte order come first.
      if (string(tuple(state, 8)[1]) != "<") refuse("only little-endian arrays are supported");
      target.value = 1;
    } else if (target.kind == PickleKind::array) {
      build_array(target, state);
    } else {
      refuse(fmt::format("a state for {} that it cannot have", name_of(target.kind)));
    }
  }

  // State: (1, shape, dtype, fortran order, bytes).
  void build_array(Node& target, std::uint32_t state) {
    const auto items = tuple(state, 5);
    const Node& dtype = node(items[2]);
    const Node& fortran = node(items[3]);
    if (dtype.kind != PickleKind::dtype || dtype.value != 1) refuse("an array without a dtype");
    if (fortran.kind != PickleKind::boolean || fortran.value != 0)
      refuse("arrays in Fortran order are not supported");
    const Node& sizes = node(items[1]);
    if (sizes.kind != PickleKind::tuple) refuse("an array without a shape");
    std::vector<std::int64_t> shape;
    if (sizes.link != kNothing)
      for (std::uint32_t item : p_.containers_[sizes.link]) {
        if (node(item).kind != PickleKind::integer || shape.size() == Shape::max_rank)
          refuse("an array with a strange shape");
        shape.push_back(node(item).value);
      }
    PickleArray array;
    array.dtype = static_cast<DType>(dtype.link);
    try {
      array.shape = Shape(shape);
    } catch (const Error& error) {
      refuse(error.what());
    }
    const std::string_view data = string(items[4]);
    const auto element = static_cast<std::size_t>(size_of(array.dtype));
    if (data.size() % element != 0 ||
        data.size() / element != static_cast<std::size_t>(array.shape.numel()))
      refuse(fmt::format("an array of {} and shape {} with {} bytes", array.dtype, array.shape,
                         data.size()));
    array.bytes = std::as_bytes(std::span(data));
    if (target.link == kNothing) {
      target.link = static_cast<std::uint32_t>(p_.arrays_.size());
      p_.arrays_.emplace_back();
    }
    p_.arrays_[target.link] = array;
  }

  Node& node(std::uint32_t index) { return p_.nodes_[index]; }
  bool is_global(std::uint32_t index, Global global) {
    return node(index).kind == PickleKind::global && node(index).link == global;
  }
  bool is_empty_tuple(std::uint32_t index) {
    return node(index).kind == PickleKind::tuple && node(index).link == kNothing;
  }
  std::span<const std::uint32_t> tuple(std::uint32_t index, std::size_t size) {
    const Node& tuple = node(index);
    if (tuple.kind != PickleKind::tuple || tuple.link == kNothing ||
        p_.containers_[tuple.link].size() != size)
      refuse(fmt::format("expected a tuple of {}", size));
    return p_.containers_[tuple.link];
  }
  std::string_view string(std::uint32_t index) {
    const Node& string = node(index);
    if (string.kind != PickleKind::string) refuse("expected a string");
    return {reinterpret_cast<const char*>(p_.bytes_.data()) + string.value, string.link};
  }

  Pickle& p_;
  std::size_t at_ = 0, opcode_at_ = 0;
  std::vector<std::uint32_t> stack_, marks_, memo_;
};

Pickle::Pickle(const std::string& path) : Pickle(read_file(path), path) {}

Pickle::Pickle(std::vector<std::byte> bytes, std::string file)
    : bytes_(std::move(bytes)), file_(std::move(file)) {
  PickleMachine(*this).run();
}

}  // namespace lipgrad
