#pragma once

// C++17. The largest of the numbers of a node's sources, for each head, as the denominators of
// normalised attention scores want it.

#include <cstdint>

#include <lipgrad/core/kernel.h>
#include <lipgrad/graph/kernels/gat.h>

LIPGRAD_KERNELS(
    // For value (sources, H): top (targets, H), the largest value[j,h] over the sources j of the
    // edges into target i, its own with self_loops, plus value[i,h] if centre; argmax (targets, H),
    // that j, of equal ones the lowest. A target without sources has 0 and -1. If global, j goes
    // over all sources for every target, and argmax is (H).
    template <class T>
    void largest_source(const GatGraph& graph, bool self_loops, bool global, bool centre,
                        std::int64_t heads, const T* value, T* top, std::int32_t* argmax);

    // grad_value (sources, H) = factor[h] (the sum of grad[i,h] over the targets i whose
    // argmax[i,h] is j, plus grad[j,h] if centre). The rows of grad are `stride` apart; factor (H),
    // null: ones.
    template <class T> void largest_source_backward(const GatGraph& graph, bool self_loops,
                                                    bool global, bool centre, std::int64_t heads,
                                                    const std::int32_t* argmax, std::int64_t stride,
                                                    const T* grad, const T* factor, T* grad_value);)
