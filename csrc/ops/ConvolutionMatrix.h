// Convolutions in half types, TF32 and bfloat16's parts of single precision by matrix instructions:
// operands in the layout that those want.
#pragma once

#include "ops/ConvolutionPlan.h"

namespace ocl::native {

/// Why the following don't take a convolution; null if they do.
const char* refuse_by_matrix(const ConvolutionPlan& plan);
/// The same for single precision in parts, which they then take.
const char* refuse_by_parts(const ConvolutionPlan& plan);
/// The same for single precision in planes, which lose nothing.
const char* refuse_by_planes(const ConvolutionPlan& plan);
void output_by_matrix(const ConvolutionPlan& plan);
void input_by_matrix(const ConvolutionPlan& plan);
void weight_by_matrix(const ConvolutionPlan& plan);
void output_by_planes(const ConvolutionPlan& plan);
void input_by_planes(const ConvolutionPlan& plan);
void weight_by_planes(const ConvolutionPlan& plan);

}  // namespace ocl::native
