// For C++ extensions, as <torch_ocl/extension.h>: kernels of one's own, launched on tensors. What
// it includes is installed with the package (codegen/public_headers.py), and nothing else is.
//
//   const ocl::KernelFamily family{"mine/square.cl", "square"};
//   ...
//   ocl::Queue& queue = ocl::current_queue(x.device().index());
//   ocl::launch(family.get(queue.device(), {{"IN", ocl::tag(x.scalar_type())}}), queue,
//               ocl::NDRange::linear(n, 128), ocl::Pointer{x.const_data_ptr()}, ...);
#pragma once

#include "engine/dtype.h"
#include "engine/row_major.h"
#include "opencl/ceil_div.h"
#include "opencl/device_assert.h"
#include "opencl/kernel.h"
#include "opencl/kernel_family.h"
#include "opencl/platform.h"
#include "opencl/sources.h"
#include "runtime/device_guard.h"
#include "runtime/stream.h"
