// Measures memory bandwidth: a kernel that only moves what another one reads and writes.
//
// R0 .. R3, W0, W1: how many vectors T of each of four arrays a step reads, and writes of two; 0:
// none of it. Copying is R0 = W0 = 1. A CPU's work-item takes `count` steps in a row, one of a GPU
// every global-size-th.
#ifndef T
#define T float16
#endif
#ifndef R0
#define R0 1
#define R1 0
#define R2 0
#define R3 0
#define W0 1
#define W1 0
#endif

// Past the caches where the compiler can: a line that is only written need not be read first.
#ifdef __has_builtin
#if __has_builtin(__builtin_nontemporal_store)
#define STORE(p, v) __builtin_nontemporal_store(v, p)
#endif
#endif
#ifndef STORE
#define STORE(p, v) (*(p) = (v))
#endif

// Vector k of the n that step i takes of an array. Neighbouring work-items of a GPU take
// neighbours.
#ifdef OCL_DEVICE_CPU
#define FOR_STEPS(i)                                   \
  const ulong first = get_global_id(0) * (ulong)count; \
  for (ulong i = first; i < first + count; i++)
#define AT(i, k, n) ((i) * (n) + (k))
#else
#define FOR_STEPS(i) \
  for (ulong i = get_global_id(0), step = 0; step < count; step++, i += get_global_size(0))
#define AT(i, k, n) ((k) * (ulong)get_global_size(0) * count + (i))
#endif

// A sum per vector: one alone would wait for every addition.
#define READ(name, n)                                           \
  _Pragma("unroll") for (uint k = 0; k < n; k++) sums[k % 4] += \
      ((global const T*)(name + name##_at))[AT(i, k, n)];
#define WRITE(name, n)                           \
  _Pragma("unroll") for (uint k = 0; k < n; k++) \
      STORE((global T*)(name + name##_at) + AT(i, k, n), sum);

kernel void probe_move(global const char* r0, ulong r0_at, global const char* r1, ulong r1_at,
                       global const char* r2, ulong r2_at, global const char* r3, ulong r3_at,
                       global char* w0, ulong w0_at, global char* w1, ulong w1_at, uint count) {
#define READS (R0 + R1 + R2 + R3)
  const T start = (T)(READS ? 0 : 1);  // some processors write zeros faster
  T sums[4] = {start, start, start, start};
  FOR_STEPS(i) {
    READ(r0, R0)
    READ(r1, R1)
    READ(r2, R2)
    READ(r3, R3)
#if W0 + W1
    const T sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    WRITE(w0, W0)
    WRITE(w1, W1)
    sums[0] = sums[1] = sums[2] = sums[3] = start;
#endif
  }
#if !(W0 + W1)
  // One vector per work-item: the reads can't be left out.
  ((global T*)(w0 + w0_at))[get_global_id(0)] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
#endif
}
