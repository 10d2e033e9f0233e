// For AOTInductor's models, before any of its own headers: the class of models for this device.
//
// Its header (aoti_runtime/model_base.h) has branches for torch's own devices alone. The one for
// MPS asks functions of the backend for everything: memory, copies, the device's type. So it is
// taken, with these functions in their place. A model is then made for "mps:<index>" (runner.cpp).
#pragma once

#ifdef USE_MPS
#error "a model can't be for ocl and for mps"
#endif
#include <torch/csrc/inductor/aoti_torch/c/shim_mps.h>

#include "aoti/kernels.h"

#define USE_MPS 1
#define aoti_torch_device_type_mps aoti_torch_device_type_privateuse1
#define aoti_torch_mps_free aoti_torch_ocl_free
// Their error codes are left alone there.
#define aoti_torch_mps_malloc(...) AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_ocl_malloc(__VA_ARGS__))
#define aoti_torch_mps_memcpy(...) AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_ocl_memcpy(__VA_ARGS__))
#define aoti_torch_mps_copy_buffer(...) \
  AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_ocl_copy_buffer(__VA_ARGS__))

#include <torch/csrc/inductor/aoti_include/common.h>
#include <torch/csrc/inductor/aoti_runtime/model_container.h>

#undef USE_MPS
#undef aoti_torch_device_type_mps
#undef aoti_torch_mps_malloc
#undef aoti_torch_mps_free
#undef aoti_torch_mps_memcpy
#undef aoti_torch_mps_copy_buffer
