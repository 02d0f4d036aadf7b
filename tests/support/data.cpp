#include "support/data.h"

namespace lipgrad::test {

std::string golden(const std::string& name) { return checkout("tests/golden/" + name); }

std::string checkout(const std::string& name) { return LIPGRAD_SOURCE_DIR "/" + name; }

}  // namespace lipgrad::test
