// Measures arithmetic: CHAINS independent chains of fma per work-item, `count` long, on T of REAL.
#ifdef OCL_HAS_FP64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif
#ifdef OCL_HAS_FP16
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#endif
#ifndef T
#define T float16
#define REAL float
#define CHAINS 12
#endif

kernel void probe_fma(global char* out_base, ulong out_offset, uint count) {
  const T a = (T)((REAL)0.999f), b = (T)((REAL)(get_global_id(0) * 1e-3f));
  T chain[CHAINS];
  for (int k = 0; k < CHAINS; k++) chain[k] = (T)((REAL)k);
  for (uint i = 0; i < count; i++) {
    _Pragma("unroll") for (int k = 0; k < CHAINS; k++) chain[k] = fma(chain[k], a, b);
  }
  T sum = (T)(0);
  for (int k = 0; k < CHAINS; k++) sum += chain[k];
  ((global T*)(out_base + out_offset))[get_global_id(0)] = sum;
}
