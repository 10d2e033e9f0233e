// Matrix products whose results a text of torch.compile's takes on.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/gemm/gemm.h"
#include "engine/modified_kernels.h"

namespace ocl::gemm {

/// A text that stores what is computed of each element of out, in place of out itself
/// (EPILOGUE_TEXT in kernels/gemm/gemm.clh).
struct Epilogue {
  const ModifiedKernels& kernels;
  int lanes = 0;                      // columns that its epilogue_lanes() takes; 0 if it has none
  std::vector<const void*> operands;  // what it reads and writes, in the text's order
  std::vector<int64_t> numbers;
};

/// product() with an epilogue, which sees each element once. out says how results are rounded and
/// where they would lie; its data need only be memory of the device. Rows of out are contiguous.
void product(const Description& description, const Epilogue& epilogue);

}  // namespace ocl::gemm
