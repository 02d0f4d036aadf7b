#pragma once

#include "catalogue/catalogue.h"

// One function a family, defined in <family>.cpp and called by all().
namespace lipgrad::catalogue {

void add_gat(Catalogue& c);
void add_layers(Catalogue& c);
void add_linear(Catalogue& c);
void add_matmul(Catalogue& c);
void add_recompute(Catalogue& c);
void add_shape(Catalogue& c);
void add_spmm(Catalogue& c);

}  // namespace lipgrad::catalogue
