// Tensors as batches of matrices for the linear algebra engine.
#pragma once

#include <ATen/core/Tensor.h>

#include "engine/linalg/linalg.h"

namespace ocl::native {

using namespace linalg;

/// `tensor` ([..., rows, columns]) as [batch, rows, columns]; a copy where its batch dimensions
/// don't merge.
at::Tensor batched(const at::Tensor& tensor);

/// A tensor of three dimensions for the engine; lazy conjugation becomes the operand's. Throws
/// NotImplementedError for a dtype that LAPACK does not know.
MatrixBatch matrices(const at::Tensor& tensor);

/// Throws NotImplementedError for a dtype that matrices() doesn't take, also where there is nothing
/// to compute.
void check_factored_dtype(at::ScalarType dtype);

/// A tensor of any batch dimensions that an algorithm works in: finish() brings a copy back.
class InPlace {
 public:
  explicit InPlace(const at::Tensor& tensor) : tensor_(tensor), batched_(batched(tensor)) {}
  const at::Tensor& tensor() const { return batched_; }
  MatrixBatch matrices() const { return native::matrices(batched_); }
  void finish() const {
    if (!batched_.is_alias_of(tensor_)) tensor_.copy_(batched_.view(tensor_.sizes()));
  }

 private:
  const at::Tensor& tensor_;
  at::Tensor batched_;
};

/// LAPACK's geqrf and ormqr: the reflections of a QR decomposition replace `input`, tau: [..., k];
/// their product with `other`, from the left or the right, or its adjoint's.
void householder_factor(const at::Tensor& input, const at::Tensor& tau);
void householder_multiply(const at::Tensor& input, const at::Tensor& tau, const at::Tensor& other,
                          bool left, bool transpose);

}  // namespace ocl::native
