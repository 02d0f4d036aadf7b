#include "support/data.h"

namespace lipgrad::test {

std::string golden(const std::string& name) { return LIPGRAD_GOLDEN_DIR "/" + name; }

}  // namespace lipgrad::test
