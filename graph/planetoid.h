#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace lipgrad {

// The content of one of Planetoid's data sets (Yang, Cohen, Salakhutdinov: Revisiting
// semi-supervised learning with graph embeddings, ICML 2016), as plain vectors.
struct PlanetoidData {
  std::int64_t num_nodes = 0, num_features = 0, num_classes = 0;
  // Features as a sparse matrix: num_nodes + 1 offsets; columns ascending within a row.
  std::vector<std::int64_t> row_offsets;
  std::vector<std::int32_t> columns;
  std::vector<float> values;
  // The adjacency lists as they are in the file: each edge in both directions, with repeated edges
  // and self-loops.
  std::vector<std::int32_t> source, destination;
  // One class a node; 0 for a node without a label, which is in no split.
  std::vector<std::int64_t> labels;
  // The public split: the first nodes, the 500 after them, and those of test.index, ascending.
  std::vector<std::int64_t> train, val, test;
};

// Assembles a data set of the files ind.<name>.{x,y,tx,ty,allx,ally,graph,test.index}. `read` gives
// the content of the file with the name it is passed; `prefix` ("data/ind.cora.") comes before the
// part in those names and in errors. Nodes of the test range that test.index leaves out (15 of
// CiteSeer's) get no features and no label. Error when the parts do not fit together.
PlanetoidData parse_planetoid(
    const std::string& prefix,
    const std::function<std::vector<std::byte>(const std::string& file)>& read);

}  // namespace lipgrad
