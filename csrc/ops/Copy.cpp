// Copies between the host, a device and another device, with any mix of dtypes and strides.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "ops/copy.h"

#include <ATen/ExpandUtils.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/DeviceGuard.h>

#include "engine/dtype.h"
#include "engine/pointwise/pointwise.h"
#include "opencl/platform.h"
#include "ops/Factories.h"
#include "ops/_copy_from.h"
#include "ops/_copy_from_and_resize.h"
#include "ops/_local_scalar_dense.h"
#include "ops/fill.h"
#include "runtime/counters.h"
#include "runtime/host_allocator.h"
#include "runtime/host_memory.h"
#include "runtime/peer_copy.h"
#include "runtime/staged_copy.h"
#include "runtime/stream.h"

namespace ocl::native {

namespace {

const pointwise::Op copy_op{"copy", 0, pointwise::flag::float8 | pointwise::flag::moves_value};
const pointwise::Op copy_bits_op{"copy", 0, pointwise::flag::bits};
const pointwise::Op conj_op{"conj_physical", 0};
const pointwise::Op neg_op{"neg", 0};

bool same_dense_layout(const at::Tensor& a, const at::Tensor& b) {
  return a.strides() == b.strides() && a.is_non_overlapping_and_dense();
}

/// Copies move the stored values, so a lazy conjugate or negative bit that only one side has is
/// settled here, in place, on the device.
void settle_lazy_bits(const at::Tensor& destination, bool conjugate, bool negate) {
  const auto in_place = [&](const pointwise::Op& op) {
    auto iter = at::TensorIteratorConfig()
                    .set_check_mem_overlap(false)
                    .add_output(destination)
                    .add_const_input(destination)
                    .build();
    pointwise::run(iter, op);
  };
  if (conjugate && destination.is_complex()) in_place(conj_op);
  if (negate) in_place(neg_op);
}

void copy_on_device(const at::Tensor& destination, const at::Tensor& source) {
  auto iter = at::TensorIteratorConfig()
                  .add_output(destination)
                  .add_const_input(source)
                  .resize_outputs(false)
                  .check_all_same_dtype(false)
                  .check_all_same_device(true)
                  .build();
  if (iter.numel() == 0) return;
  if (iter.data_ptr(0) == iter.data_ptr(1) && iter.strides(0) == iter.strides(1) &&
      iter.dtype(0) == iter.dtype(1)) {
    return;
  }
  const c10::DeviceGuard guard(destination.device());
  pointwise::run(iter, iter.dtype(0) == iter.dtype(1) ? copy_bits_op : copy_op);
}

/// Host memory with destination's layout, dtype of source; the same tensor where it fits already.
at::Tensor dense_host_source(const at::Tensor& source, const at::Tensor& destination) {
  if (same_dense_layout(source, destination)) return source;
  at::Tensor dense =
      at::empty_strided(destination.sizes(), destination.strides(), source.options());
  dense.copy_(source);
  return dense;
}

void copy_from_host(const at::Tensor& destination, const at::Tensor& source, bool non_blocking) {
  const c10::DeviceGuard guard(destination.device());
  Device& target = device(destination.device().index());
  if (source.scalar_type() != destination.scalar_type()) {
    const bool on_device =
        target.properties().has_fp64 ||
        (source.scalar_type() != at::kDouble && source.scalar_type() != at::kComplexDouble);
    if (!on_device) {
      // The device can't hold the source's dtype at all: the host is the only place left to narrow
      // it.
      count_host_staged("copy_");
      copy_from_host(destination, source.to(destination.scalar_type()), non_blocking);
      return;
    }
    const at::Tensor staged = empty_with(
        source.sizes(), source.options().device(destination.device()).pinned_memory(false));
    copy_from_host(staged, source, non_blocking);
    copy_on_device(destination, staged);
    return;
  }
  if (!destination.is_non_overlapping_and_dense()) {
    const at::Tensor staged = empty_with(destination.sizes(), destination.options());
    copy_from_host(staged, source, non_blocking);
    copy_on_device(destination, staged);
    return;
  }
  const at::Tensor dense = dense_host_source(source, destination);
  Queue& queue = current_queue(destination.device().index());
  // Only pinned memory may be read after the call returns: the host allocator keeps it until then.
  const bool asynchronous = non_blocking && is_pinned(dense.const_data_ptr());
  if (!asynchronous && defer_host_copy(queue, destination.mutable_data_ptr(),
                                       dense.const_data_ptr(), dense.nbytes())) {
    return;
  }
  if (!is_pinned(dense.const_data_ptr()) && takes_staged_copy(target, dense.nbytes())) {
    staged_write(queue, destination.mutable_data_ptr(), dense.const_data_ptr(), dense.nbytes());
    return;
  }
  queue.write(destination.mutable_data_ptr(), dense.const_data_ptr(), dense.nbytes(),
              !asynchronous);
  if (asynchronous) record_host_use(dense.const_data_ptr(), queue);
}

/// Whether the device of a tensor converts to that dtype.
bool converts(const at::Tensor& tensor, c10::ScalarType dtype) {
  return device(tensor.device().index()).properties().has_fp64 ||
         (dtype != at::kDouble && dtype != at::kComplexDouble);
}

void copy_to_host(const at::Tensor& destination, const at::Tensor& source, bool non_blocking) {
  const c10::DeviceGuard guard(source.device());
  const c10::ScalarType dtype = destination.scalar_type();
  if (source.scalar_type() != dtype) {
    if (converts(source, dtype)) {
      const at::Tensor staged = empty_with(source.sizes(), source.options().dtype(dtype));
      copy_on_device(staged, source);
      copy_to_host(destination, staged, non_blocking);
    } else {
      count_host_staged("copy_");
      const at::Tensor staged = at::empty(source.sizes(), source.options().device(at::kCPU));
      copy_to_host(staged, source, false);
      destination.copy_(staged);
    }
    return;
  }
  if (!source.is_non_overlapping_and_dense()) {
    const at::Tensor staged = empty_with(source.sizes(), source.options());
    copy_on_device(staged, source);
    copy_to_host(destination, staged, non_blocking);
    return;
  }
  Queue& queue = current_queue(source.device().index());
  // Into pageable memory, whose pages are taken first.
  const auto read = [&](const at::Tensor& host) {
    populate_host_memory(host.mutable_data_ptr(), source.nbytes());
    if (takes_staged_copy(queue.device(), source.nbytes())) {
      staged_read(queue, host.mutable_data_ptr(), source.const_data_ptr(), source.nbytes());
    } else {
      queue.read(host.mutable_data_ptr(), source.const_data_ptr(), source.nbytes(), true);
    }
  };
  if (destination.strides() == source.strides()) {
    const bool pinned = is_pinned(destination.const_data_ptr());
    const bool asynchronous = non_blocking && pinned;
    if (pinned) {
      queue.read(destination.mutable_data_ptr(), source.const_data_ptr(), source.nbytes(),
                 !asynchronous);
    } else {
      read(destination);
    }
    if (asynchronous) {
      record_host_use(destination.const_data_ptr(), queue);
    } else {
      raise_after_read(queue);
    }
    return;
  }
  at::Tensor staged = at::empty_strided(source.sizes(), source.strides(), destination.options());
  read(staged);
  raise_after_read(queue);
  destination.copy_(staged);
}

/// Copies tensors with the same dtype and dense layout, as CUDA does it: in the order of both
/// devices' current streams, and without a wait.
void move_across_devices(const at::Tensor& destination, const at::Tensor& source) {
  peer_copy(current_queue(destination.device().index()), destination.mutable_data_ptr(),
            current_queue(source.device().index()), source.const_data_ptr(), source.nbytes());
}

/// The dtype that a copy between devices travels in: the smaller one, if the device that would
/// convert is able to; undefined if neither is.
c10::ScalarType travelling_dtype(const at::Tensor& destination, const at::Tensor& source) {
  const c10::ScalarType from = source.scalar_type(), to = destination.scalar_type();
  if (from == to) return from;
  const bool first = converts(source, from) && converts(source, to);
  const bool second = converts(destination, from) && converts(destination, to);
  const bool shrinks = c10::elementSize(to) <= c10::elementSize(from);
  if (first && (shrinks || !second)) return to;
  return second ? from : c10::ScalarType::Undefined;
}

void copy_across_devices(const at::Tensor& destination, const at::Tensor& source) {
  const c10::ScalarType dtype = travelling_dtype(destination, source);
  if (dtype == c10::ScalarType::Undefined) {  // the host alone has both dtypes
    const at::Tensor staged = at::empty(source.sizes(), source.options().device(at::kCPU));
    copy_to_host(staged, source, false);
    copy_from_host(destination, staged, false);
    return;
  }
  // Converted and laid out on the devices, so that memory is moved in one piece.
  const bool dense = destination.is_non_overlapping_and_dense();
  const auto laid_out = [&](const at::Tensor& on) {
    const c10::DeviceGuard guard(on.device());
    const at::TensorOptions options = on.options().dtype(dtype);
    return dense ? at::empty_strided(destination.sizes(), destination.strides(), options)
                 : at::empty(destination.sizes(), options);
  };
  const bool leaves =
      source.scalar_type() == dtype && dense && same_dense_layout(source, destination);
  const bool arrives = destination.scalar_type() == dtype && dense;
  const at::Tensor sent = leaves ? source : laid_out(source);
  if (!leaves) copy_on_device(sent, source);
  const at::Tensor received = arrives ? destination : laid_out(destination);
  move_across_devices(received, sent);
  if (!arrives) copy_on_device(destination, received);
}

/// A view of the storage without its lazy bits.
at::Tensor raw(const at::Tensor& tensor) {
  if (!tensor.is_conj() && !tensor.is_neg()) return tensor;
  at::Tensor alias = tensor.detach();
  alias._set_conj(false);
  alias._set_neg(false);
  return alias;
}

}  // namespace

at::Tensor& copy_(at::Tensor& self, const at::Tensor& src, bool non_blocking) {
  if (self.is_same(src)) return self;
  const at::Tensor expanded =
      self.sizes() == src.sizes() ? src : *at::expand_inplace(self, src, "copy_");
  if (self.numel() == 0) return self;
  // A view copied onto itself: nothing to do, also where it overlaps itself.
  if (self.is_alias_of(src) && self.storage_offset() == src.storage_offset() &&
      self.sizes() == src.sizes() && self.strides() == src.strides() &&
      self.scalar_type() == src.scalar_type() && self.is_conj() == src.is_conj() &&
      self.is_neg() == src.is_neg()) {
    return self;
  }
  if (src.is_complex() && !self.is_complex() && self.scalar_type() != at::kBool) {
    TORCH_WARN_ONCE("Casting complex values to real discards the imaginary part");
  }
  // Tangents of constants are zeros without memory.
  if (src._is_zerotensor()) return self.zero_();
  const at::Tensor destination = raw(self);
  const at::Tensor source = raw(expanded);
  const bool conjugate = self.is_conj() != expanded.is_conj();
  const bool negate = self.is_neg() != expanded.is_neg();
  if (source.is_cpu()) {
    copy_from_host(destination, source, non_blocking);
  } else if (destination.is_cpu()) {
    const c10::ScalarType dtype = destination.scalar_type();
    if (!conjugate && !negate) {
      copy_to_host(destination, source, non_blocking);
    } else if (converts(source, dtype)) {
      // It has the destination's dtype: unsigned numbers have no negatives.
      const c10::DeviceGuard guard(source.device());
      const at::Tensor settled = empty_with(source.sizes(), source.options().dtype(dtype));
      copy_on_device(settled, source);
      settle_lazy_bits(settled, conjugate, negate);
      copy_to_host(destination, settled, non_blocking);
    } else {
      // As its conversion, on the host, where copy_to_host counts it.
      const at::Tensor settled = at::empty(source.sizes(), destination.options());
      copy_to_host(settled, source, false);
      if (conjugate) settled.conj_physical_();
      if (negate) settled.neg_();
      destination.copy_(settled);
    }
    return self;
  } else if (source.device() == destination.device()) {
    copy_on_device(destination, source);
  } else {
    TORCH_CHECK(source.is_privateuseone() && destination.is_privateuseone(),
                "ocl: can't copy from ", source.device(), " to ", destination.device());
    copy_across_devices(destination, source);
  }
  settle_lazy_bits(destination, conjugate, negate);
  return self;
}

at::Tensor& fill__tensor(at::Tensor& self, const at::Tensor& value) {
  TORCH_CHECK(value.dim() == 0, "fill_ only supports 0-dimension value tensor but got tensor with ",
              value.dim(), " dimensions.");
  if (!value.is_cpu() || self.is_conj() || self.is_neg()) {
    return self.copy_(self.is_alias_of(value) ? value.clone() : value);
  }
  // Converted as by a copy, unlike a number: what the dtype can't hold becomes infinite or wraps.
  const at::Tensor fill = value.resolve_conj().resolve_neg().to(self.scalar_type());
  auto iter = at::TensorIteratorConfig()
                  .set_check_mem_overlap(false)
                  .check_all_same_dtype(false)
                  .resize_outputs(false)
                  .allow_cpu_scalars(true)
                  .add_output(self)
                  .add_const_input(fill)
                  .build();
  const c10::DeviceGuard guard(self.device());
  pointwise::run(iter, copy_bits_op);
  return self;
}

at::Tensor _copy_from(const at::Tensor& self, const at::Tensor& dst, bool non_blocking) {
  at::Tensor destination = dst;
  copy_(destination, self, non_blocking);
  return destination;
}

at::Tensor _copy_from_and_resize(const at::Tensor& self, const at::Tensor& dst) {
  at::Tensor destination = dst;
  destination.resize_(self.sizes());
  copy_(destination, self, false);
  return destination;
}

at::Scalar _local_scalar_dense(const at::Tensor& self) {
  TORCH_CHECK(self.numel() > 0, "_local_scalar_dense: Empty tensor not supported");
  if (self._is_zerotensor()) return 0;
  const c10::DeviceGuard guard(self.device());
  Queue& queue = current_queue(self.device().index());
  const at::Tensor host = at::empty({}, self.options().device(at::kCPU));
  queue.read(host.mutable_data_ptr(), self.const_data_ptr(), self.dtype().itemsize(), true);
  raise_after_read(queue);
  return host.item();
}

}  // namespace ocl::native
