// Matrix products whose results a text of torch.compile's takes on.
#pragma once

#include "engine/epilogue.h"
#include "engine/gemm/gemm.h"

namespace ocl::gemm {

/// product() with an epilogue, which sees each element. out says how results are rounded and where
/// they would lie; its data need only be memory of the device. Rows of out are contiguous.
void product(const Description& description, const Epilogue& epilogue);

}  // namespace ocl::gemm
