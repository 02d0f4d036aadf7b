#pragma once

#include <stdexcept>
#include <string>

namespace lipgrad {

// Every error that lipgrad reports. The message is one line that starts with the name of the op or
// file concerned and says what was given and what was expected.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace lipgrad
