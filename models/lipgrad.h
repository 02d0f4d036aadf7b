#pragma once

// Everything a lipgrad program needs.
#include <lipgrad/config.h>
#include <lipgrad/core/csr_matrix.h>
#include <lipgrad/core/error.h>
#include <lipgrad/core/map.h>
#include <lipgrad/core/memory.h>
#include <lipgrad/core/module.h>
#include <lipgrad/core/op.h>
#include <lipgrad/core/random.h>
#include <lipgrad/core/recompute.h>
#include <lipgrad/core/tape.h>
#include <lipgrad/core/tensor.h>
#include <lipgrad/core/threads.h>
