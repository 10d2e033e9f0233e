// For the C++ that torch.compile generates with cpp_wrapper.
#pragma once

#include <torch/csrc/inductor/cpp_wrapper/common.h>

#include "aoti/kernels.h"
