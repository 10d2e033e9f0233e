// Kernels as a first tutorial writes them: one work-item per element, no blocking, no vectors.
kernel void matmul(global char* c_base, ulong c_offset, global const char* a_base, ulong a_offset,
                   global const char* b_base, ulong b_offset, uint n) {
  global float* c = (global float*)(c_base + c_offset);
  global const float* a = (global const float*)(a_base + a_offset);
  global const float* b = (global const float*)(b_base + b_offset);
  const uint column = get_global_id(0), row = get_global_id(1);
  float sum = 0;
  for (uint k = 0; k < n; k++) sum += a[row * n + k] * b[k * n + column];
  c[row * n + column] = sum;
}

kernel void relu(global char* y_base, ulong y_offset, global const char* x_base, ulong x_offset) {
  const size_t i = get_global_id(0);
  const float x = ((global const float*)(x_base + x_offset))[i];
  ((global float*)(y_base + y_offset))[i] = x > 0 ? x : 0;
}

kernel void squared_difference(global char* y_base, ulong y_offset, global const char* a_base,
                               ulong a_offset, global const char* b_base, ulong b_offset) {
  const size_t i = get_global_id(0);
  const float d =
      ((global const float*)(a_base + a_offset))[i] - ((global const float*)(b_base + b_offset))[i];
  ((global float*)(y_base + y_offset))[i] = d * d;
}
