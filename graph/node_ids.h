#pragma once

// Private: node ids that users pass, for what runs on the host.

#include <cstdint>
#include <vector>

#include <lipgrad/core/check.h>
#include <lipgrad/core/tensor.h>

namespace lipgrad {

// i32 or i64 of rank 1, on any device. Error "<op>: ..." for anything else and for ids that are not
// in [0, num_nodes).
inline std::vector<std::int64_t> node_ids(const char* op, const Tensor& nodes,
                                          std::int64_t num_nodes) {
  LIPGRAD_CHECK(
      nodes.defined() && (nodes.dtype() == i32 || nodes.dtype() == i64) && nodes.rank() == 1,
      "{}: node ids must be i32 or i64 of rank 1, got {}", op, nodes.str());
  const Tensor host = nodes.to(cpu_device);
  std::vector<std::int64_t> ids(static_cast<std::size_t>(host.numel()));
  for (std::int64_t i = 0; i < host.numel(); ++i) {
    const std::int64_t id =
        host.dtype() == i32 ? host.data<std::int32_t>()[i] : host.data<std::int64_t>()[i];
    LIPGRAD_CHECK(id >= 0 && id < num_nodes, "{}: node {} at {}; node ids must be in [0, {})", op,
                  id, i, num_nodes);
    ids[static_cast<std::size_t>(i)] = id;
  }
  return ids;
}

}  // namespace lipgrad
