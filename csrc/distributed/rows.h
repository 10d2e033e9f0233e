// Parts of a call's rows.
#pragma once

#include <cstdint>
#include <vector>

#include "distributed/work.h"

namespace ocl::distributed {

/// Elements of each.
std::vector<int64_t> sizes_of(const Tensors& parts);
/// One tensor of parts on the host that lie one after the other, in their memory. It keeps them
/// alive. Undefined if they don't lie so.
at::Tensor joined(const Tensors& parts);

}  // namespace ocl::distributed
