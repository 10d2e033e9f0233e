// The normalisation engine: rows (layer, RMS and group norm) and channels (batch norm), forward and
// backward. Computed in float for half and bfloat16; variances are those of two passes.
#pragma once

#include <ATen/core/Tensor.h>

namespace ocl::norm {

/// A contiguous tensor as rows that are normalised one by one. Layer and RMS norm: a weight per
/// element of the row (groups = 1, run = 1). Group norm: `groups` rows make a sample; a row has
/// length / run channels of `run` elements, each with a weight of its own.
struct RowShape {
  int64_t rows = 0;
  int64_t length = 0;
  bool grouped = false;
  int64_t run = 1;
  int64_t groups = 1;
};

/// y = (x - mean) * rstd * weight + bias, per row; `mean` and `rstd`, of one dtype, have an element
/// per row. All contiguous; x and y of one dtype; weight and bias of one dtype, or undefined.
/// `mean` undefined: RMS norm, which subtracts no mean. No row may be empty.
void rows(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps,
          const RowShape& shape, const at::Tensor& y, const at::Tensor& mean,
          const at::Tensor& rstd);

/// The gradients that are defined among `dx`, `dweight`, `dbias`, from the gradient of y. All
/// contiguous; grad, x and dx of one dtype; weight, dweight and dbias of one dtype. `mean`
/// undefined: RMS norm. No row may be empty, and there must be one.
void rows_backward(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& mean,
                   const at::Tensor& rstd, const at::Tensor& weight, const RowShape& shape,
                   const at::Tensor& dx, const at::Tensor& dweight, const at::Tensor& dbias);

/// Operands of batch norm besides the input: vectors with an element per channel, contiguous and of
/// one dtype, or undefined.
struct ChannelVectors {
  at::Tensor weight, bias, mean, var;
};

/// Statistics along dimension 1 of x (contiguous or channels last, not empty), over all others:
/// writes the mean and the reciprocal of the deviation (`variance`: the biased variance).
/// running.mean and running.var, where defined, move towards the mean and the unbiased variance by
/// `momentum`. With `y` defined (x's strides), also y = (x - mean) * rstd * weight + bias.
void channel_statistics(const at::Tensor& x, const ChannelVectors& running, double momentum,
                        double eps, bool variance, const at::Tensor& mean, const at::Tensor& rstd,
                        const at::Tensor& y);

/// y = (x - given.mean) / sqrt(given.var + eps) * given.weight + given.bias; y has x's strides.
void channel_normalize(const at::Tensor& x, const ChannelVectors& given, double eps,
                       const at::Tensor& y);

/// From coefficients that are known, a contiguous 4 x channels tensor of compute_dtype(x): y = (x -
/// row 0) * row 1 + row 2, and with `grad` defined grad * row 1 - row 2 - (x - row 0) * row 3.
/// grad, x and y have the same strides.
void channel_apply(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& coefficients,
                   const at::Tensor& y);

/// The gradients that are defined among dx, dweight and dbias. grad, x and dx have the same
/// strides. `train`: saved.mean and saved.var are the mean and the reciprocal of the deviation that
/// x gave, else they are the running statistics.
void channel_backward(const at::Tensor& grad, const at::Tensor& x, const ChannelVectors& saved,
                      bool train, double eps, const at::Tensor& dx, const at::Tensor& dweight,
                      const at::Tensor& dbias);

}  // namespace ocl::norm
