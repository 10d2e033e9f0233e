// Complex numbers that are only put together or turned over: as bits they go through vectors.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/view_as_real.h>

#include "engine/pointwise/pointwise.h"
#include "opencl/device.h"
#include "opencl/platform.h"
#include "runtime/stream.h"

namespace ocl::native {

namespace {

const pointwise::Op conj_op{"conj_physical", 0};
const pointwise::Op conj_bits_op{"conj_bits", 0, pointwise::flag::bits};
const pointwise::Op complex_op{"complex", 0, pointwise::flag::compute_in_output};
const pointwise::Op complex_bits_op{"complex_bits", 0, pointwise::flag::compute_in_output};

const pointwise::Op angle_op{"angle", 0};
const pointwise::Op atan2_op{"atan2", 0};

}  // namespace

// Behind angle_stub: of a complex number in the real part. A CPU's vectors hold real numbers.
void angle(at::TensorIteratorBase& iter) {
  const at::ScalarType dtype = iter.dtype(0);
  if ((dtype != at::kComplexFloat && dtype != at::kComplexDouble) || iter.dtype(1) != dtype ||
      iter.is_cpu_scalar(1) || iter.numel() == 0 || iter.data_ptr(0) == iter.data_ptr(1) ||
      !device(iter.device(0).index()).is_cpu()) {
    pointwise::run(iter, angle_op);
    return;
  }
  const at::Tensor out = at::view_as_real(iter.tensor(0));
  const at::Tensor in = at::view_as_real(iter.tensor(1));
  auto parts = at::TensorIteratorConfig()
                   .set_check_mem_overlap(false)
                   .resize_outputs(false)
                   .add_owned_output(out.select(-1, 0))
                   .add_owned_const_input(in.select(-1, 1))
                   .add_owned_const_input(in.select(-1, 0))
                   .build();
  pointwise::run(parts, atan2_op);
  out.select(-1, 1).zero_();
}

// Behind conj_physical_stub.
void conj_physical(at::TensorIteratorBase& iter) {
  const at::ScalarType dtype = iter.dtype(0);
  const bool bits = (dtype == at::kComplexFloat || dtype == at::kComplexHalf) &&
                    iter.dtype(1) == dtype && !iter.is_cpu_scalar(1);
  pointwise::run(iter, bits ? conj_bits_op : conj_op);
}

// Behind complex_stub.
void complex_of_parts(at::TensorIterator& iter) {
  if (iter.dtype(0) != at::kComplexFloat || iter.dtype(1) != at::kFloat ||
      iter.dtype(2) != at::kFloat || iter.is_cpu_scalar(1) || iter.is_cpu_scalar(2)) {
    pointwise::run(iter, complex_op);
    return;
  }
  auto bits = at::TensorIteratorConfig()
                  .set_check_mem_overlap(false)
                  .check_all_same_dtype(false)
                  .resize_outputs(false)
                  .add_owned_output(iter.tensor(0).view(at::kLong))
                  .add_owned_const_input(iter.tensor(1).view(at::kInt))
                  .add_owned_const_input(iter.tensor(2).view(at::kInt))
                  .build();
  pointwise::run(bits, complex_bits_op);
}

}  // namespace ocl::native
