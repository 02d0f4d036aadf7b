#pragma once

#include <string>

#include <lipgrad/graph/datasets.h>

namespace lipgrad {

// A data set for node property prediction in the form in which the Open Graph Benchmark publishes
// them (Hu et al., NeurIPS 2020): a folder with
//   raw/edge.csv.gz           u,v                    a line for each edge
//   raw/num-node-list.csv.gz  N                      (one graph: one line)
//   raw/num-edge-list.csv.gz  E
//   raw/node-feat.csv.gz      x,x,...                N lines; may be absent
//   raw/node-feat-sparse.csv.gz  node,column,value   (no file of OGB's; read where the former is
//                                                    absent: nonzero features, ascending)
//   raw/edge-feat.csv.gz      x,x,...                E lines; may be absent
//   raw/node-label.csv.gz     a class, or 0,1,...    N lines; nothing or "nan" for not known
//   split/<type>/{train,valid,test}.csv.gz           node ids
//
// The graph has every edge in both directions, each once, as is usual for ogbn-arxiv and what OGB
// does for ogbn-proteins; features of an edge belong to both directions, and an added self-loop has
// zeros. Nodes without features get the mean of those of their edges, as is usual for
// ogbn-proteins, and where edges have none one each of their own. One column of labels are classes,
// judged by accuracy; several are tasks, judged by ROC-AUC. options.splits names the type of the
// split; empty: the only one, or "time", "species" or "public".
//
// The files are read as a stream (see GzText), with progress, and what they hold is kept in
// raw/lipgrad.cache: a checksummed file that later calls read instead, as long as sizes and times,
// or else checksums, of the files are those it was made from. A damaged cache is made anew; in
// a folder that cannot be written to there is none. options.cache turns it off.
//
// Error "<file>: line <n>: ..." for what the files must not hold. Memory grows with what they hold,
// not with what num-node-list and num-edge-list promise.
NodeData load_ogb(const std::string& folder, const NodeDataOptions& options = {});

}  // namespace lipgrad
