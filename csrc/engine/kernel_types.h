// OpenCL C's scalar types under their names there, so that C++ includes the argument structs of
// kernels/ as they are (kernels/<engine>/arguments.clh): they are written once.
//
//   namespace ocl::softmax {
//   using namespace kernel_types;
//   #include "softmax/arguments.clh"
//   }
#pragma once

#include <cstdint>

namespace ocl::kernel_types {

using uchar = uint8_t;
using ushort = uint16_t;
using uint = uint32_t;
using ulong = uint64_t;
// OpenCL C's long has 64 bits.
static_assert(sizeof(long) == 8);

}  // namespace ocl::kernel_types
