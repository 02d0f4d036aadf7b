#pragma once

#include <cstdlib>
#include <cstring>

#include <lipgrad/core/error.h>

namespace lipgrad::fuzz {

// Runs f; what it may throw is an Error of one line.
template <class F>
void attempt(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    if (std::strchr(error.what(), '\n') != nullptr) std::abort();
  }
}

}  // namespace lipgrad::fuzz
