#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <lipgrad/core/npz.h>
#include <lipgrad/graph/generated_graph.h>
#include <lipgrad/graph/node_data.h>

namespace lipgrad {

struct NodeDataOptions {
  // The folder with the data sets. Empty: $LIPGRAD_DATA, then ~/.cache/lipgrad. The files may lie
  // in the folder itself or in its subfolder planetoid, npz, heterophilous or
  // geom_gcn_splits.
  std::string root = {};
  // Whether features are a CsrMatrix. Unset: where less than a quarter of them is nonzero.
  std::optional<bool> sparse_features = {};
  // Whether rows of features are divided by their sums (row_normalize). Unset: for cora, citeseer
  // and pubmed, as their papers do; not for the others.
  std::optional<bool> row_normalize = {};
  SelfLoops self_loops = SelfLoops::remove;
  // Which of several splits: in a file, or geom-gcn's ten.
  std::int64_t split = 0;
  // "": the split in the data set's own files. "geom-gcn": for cora, citeseer and pubmed, one of
  // the ten random splits into 60, 20 and 20 % of Pei et al.: Geom-GCN, ICLR 2020, from
  // <name>_split_0.6_0.2_<split>.npz (the files of the other data sets of that paper hold them).
  std::string splits = {};
  // For large files (see load_ogb): whether to keep a cache beside them, and whether to show
  // progress and notes on stderr; unset: notes, and progress on a terminal.
  bool cache = true;
  std::optional<bool> progress = {};
};

// Planetoid's citation networks with their public split, from the original files
// ind.<name>.{x,y,tx,ty,allx,ally,graph,test.index}. name: "cora" (2708 nodes, 1433 features, 7
// classes; 140 train, 500 validation, 1000 test nodes), "citeseer" (3327, 3703, 6; 120, 500, 1000)
// or "pubmed" (19717, 500, 3; 60, 500, 1000); any other <name> works when its files are there.
// Error when files are missing, with the folders looked into and how to get them.
NodeData load_planetoid(const std::string& name, const NodeDataOptions& options = {});

// A data set in one .npz file, in one of four layouts, N nodes and E edges (each listed once or in
// both directions):
//   x_shape (2), x_indptr (N + 1), x_indices, x_data, edges (E, 2), y (N), and masks (N)
//     train_mask, val_mask, test_mask;
//   node_features (N, F), node_labels (N), edges (E, 2), train_masks, val_masks, test_masks
//     (splits, N), as published with Platonov et al.: A critical look at the evaluation of GNNs
//     under heterophily, 2023; of two classes (minesweeper, tolokers) the score is ROC-AUC;
//   y_multi (N, L), edges (E, 2), and masks as above: nodes with several labels and without
//     features. Each gets a feature of its own, and the score is micro F1;
//   adj_shape, adj_indptr, adj_indices, attr_shape, attr_indptr, attr_indices, attr_data, labels
//     (N), as published with Shchur et al., 2018; it has no split: see random_split().
NodeData load_npz_dataset(const std::string& path, const NodeDataOptions& options = {});
// The same from an archive that is open already.
NodeData load_npz_dataset(const NpzFile& file, const NodeDataOptions& options = {});

// Any of the above, or of load_ogb: "generated", "generated-arxiv" and "generated-proteins"
// (generated_citation_graph, generated_arxiv and generated_proteins with their defaults and seed
// 0), a name that known_node_data() lists, the path of a .npz file (it ends in ".npz"), or that of
// an OGB folder (it has raw/edge.csv.gz), as it is or below a data folder. "ogbn-arxiv" is looked
// for in the data folders and their subfolder ogb as ogbn_arxiv, ogbn-arxiv and arxiv.
NodeData load_node_data(const std::string& name_or_path, const NodeDataOptions& options = {});

// The names that load_node_data() knows, whether or not their files are there.
std::vector<std::string> known_node_data();

// Where the files of such a name are: the path of a .npz file, or what the paths of Planetoid's
// eight files have in common, "<folder>/ind.cora.", or an OGB folder; nothing when one is missing,
// or none is needed
// ("generated").
std::optional<std::string> find_node_data(const std::string& name,
                                          const NodeDataOptions& options = {});

// The folders that are searched, most wanted first: options.root, or else $LIPGRAD_DATA and
// ~/.cache/lipgrad, as far as these are set.
std::vector<std::string> node_data_folders(const NodeDataOptions& options = {});

}  // namespace lipgrad
