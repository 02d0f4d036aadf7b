// Fuzzes the pickle reader and the assembly of Planetoid's data sets: each input is read as a
// pickle, and then stands in for those of the eight files of a small data set that it could be.
#include <array>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include <lipgrad/core/file.h>
#include <lipgrad/graph/graph.h>
#include <lipgrad/graph/pickle.h>
#include <lipgrad/graph/planetoid.h>

#include "allocation_limit.h"
#include "attempt.h"

namespace {

using lipgrad::fuzz::attempt;
using Bytes = std::vector<std::byte>;

// Memory may grow to 64 KiB and this many times the input and the small data set. The worst there
// is: tuples of one element, whose opcodes are one byte, take a node, a vector and its element.
constexpr std::size_t kFactor = 64;

constexpr std::array kParts = {"x", "tx", "allx", "y", "ty", "ally", "graph", "test.index"};

struct Tiny {
  std::array<Bytes, 8> parts;
  std::size_t size = 0;

  Tiny() {
    for (std::size_t i = 0; i < kParts.size(); ++i) {
      parts[i] =
          lipgrad::read_file(std::string(LIPGRAD_GOLDEN_DIR "/planetoid/ind.tiny.") + kParts[i]);
      size += parts[i].size();
    }
  }
};

// Asks the value for all it can give. Depth is limited, as a value may hold itself; so is the
// number of values, as one list may stand in many places.
void visit(const lipgrad::PickleValue& value, int depth, int& budget) {
  using lipgrad::PickleKind;
  if (depth == 0 || --budget < 0) return;
  switch (value.kind()) {
    case PickleKind::list:
    case PickleKind::tuple:
      for (std::int64_t i = 0; i < value.size() && budget > 0; ++i)
        visit(value[i], depth - 1, budget);
      break;
    case PickleKind::dict:
      for (std::int64_t i = 0; i < value.size() && budget > 0; ++i) {
        visit(value.key(i), depth - 1, budget);
        visit(value.value(i), depth - 1, budget);
      }
      break;
    case PickleKind::array:
      attempt([&] { value.array(); });
      break;
    case PickleKind::csr_matrix:
      attempt([&] { value.csr(); });
      break;
    case PickleKind::string:
      value.string();
      break;
    default:
      break;
  }
}

void assemble(const Tiny& tiny, std::size_t replaced, const Bytes& bytes) {
  attempt([&] {
    const lipgrad::PlanetoidData data =
        lipgrad::parse_planetoid("", [&](const std::string& file) -> Bytes {
          for (std::size_t i = 0; i < kParts.size(); ++i)
            if (file == kParts[i]) return i == replaced ? bytes : tiny.parts[i];
          std::abort();
        });
    const lipgrad::Graph graph(data.num_nodes, data.source, data.destination,
                               {.symmetrize = true, .remove_duplicates = true});
    if (data.row_offsets.size() != static_cast<std::size_t>(graph.num_nodes()) + 1) std::abort();
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Tiny tiny;
  const auto* begin = reinterpret_cast<const std::byte*>(data);
  const Bytes bytes(begin, begin + size);
  const lipgrad::fuzz::AllocationLimit limit((64 << 10) + kFactor * (size + tiny.size));
  int kind = -1;
  attempt([&] {
    const lipgrad::Pickle pickle(bytes, "fuzz.pickle");
    int budget = 10000;
    visit(pickle.root(), 8, budget);
    kind = static_cast<int>(pickle.root().kind());
  });
  using lipgrad::PickleKind;
  if (kind == static_cast<int>(PickleKind::csr_matrix))
    for (std::size_t part : {0, 1, 2}) assemble(tiny, part, bytes);
  else if (kind == static_cast<int>(PickleKind::array))
    for (std::size_t part : {3, 4, 5}) assemble(tiny, part, bytes);
  else if (kind == static_cast<int>(PickleKind::dict))
    assemble(tiny, 6, bytes);
  else if (kind < 0)
    assemble(tiny, 7, bytes);
  return 0;
}
