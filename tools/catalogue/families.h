#pragma once

#include "catalogue/catalogue.h"

// One function a family, defined in <family>.cpp and called by all().
namespace lipgrad::catalogue {

void add_gat(Catalogue& c);
void add_graph_norm(Catalogue& c);
void add_layers(Catalogue& c);
void add_linear(Catalogue& c);
void add_matmul(Catalogue& c);
void add_recompute(Catalogue& c);
void add_residual(Catalogue& c);
void add_shape(Catalogue& c);
void add_spmm(Catalogue& c);
void add_elementwise(Catalogue& c);
void add_activation(Catalogue& c);
void add_reduce(Catalogue& c);
void add_softmax(Catalogue& c);
void add_norm(Catalogue& c);
void add_index(Catalogue& c);
void add_dropout(Catalogue& c);
void add_loss(Catalogue& c);

}  // namespace lipgrad::catalogue
