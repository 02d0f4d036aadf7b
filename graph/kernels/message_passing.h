#pragma once

// C++17. Message passing over the edges of a graph. Rows are nodes; entry e of row i, for e from
// offsets[i] to before offsets[i + 1], is an edge whose other end is columns[e]. `edges` is
// offsets[rows].

#include <cstdint>

#include <lipgrad/core/kernel.h>

LIPGRAD_KERNELS(
    // y(rows, features): the largest of x[columns[e], :] over the entries of a row, and argmax (may
    // be null): the column that has it, of the first of equal entries. A NaN is the largest. Rows
    // without entries: 0 and -1.
    template <class T>
    void neighbor_max(std::int64_t rows, std::int64_t edges, std::int64_t features,
                      const std::int64_t* offsets, const std::int32_t* columns, const T* x, T* y,
                      std::int32_t* argmax);

    // gx(rows, features) of neighbor_max: rows, offsets and columns are those of the reverse graph,
    // in which the columns of a row ascend. gx[j] = the sum of gy[i] over the different columns i
    // of row j with argmax[i] = j.
    template <class T>
    void neighbor_max_backward(std::int64_t rows, std::int64_t edges, std::int64_t features,
                               const std::int64_t* offsets, const std::int32_t* columns,
                               const std::int32_t* argmax, const T* gy, T* gx);

    // y(edges, features): x[columns[e], :] of the edge's other end, plus, where it is not null,
    // own[row of e, :].
    template <class T> void edge_ends(std::int64_t rows, std::int64_t edges, std::int64_t features,
                                      const std::int64_t* offsets, const std::int32_t* columns,
                                      const T* x, const T* own, T* y);)
