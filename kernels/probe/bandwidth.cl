// Measures memory bandwidth: copying, and reading alone. T: what a work-item moves at a time.
//
// A CPU's work-item takes `count` elements in a row, one of a GPU every global-size-th.
#ifndef T
#define T float16
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

#ifdef OCL_DEVICE_CPU
#define FOR_OWN(i)                                  \
  const ulong first = get_global_id(0) * (ulong)count; \
  for (ulong i = first; i < first + count; i++)
#else
#define FOR_OWN(i) \
  for (ulong i = get_global_id(0), n = 0; n < count; n++, i += get_global_size(0))
#endif

kernel void probe_copy(global const char* from_base, ulong from_offset, global char* to_base,
                       ulong to_offset, uint count) {
  global const T* from = (global const T*)(from_base + from_offset);
  global T* to = (global T*)(to_base + to_offset);
  FOR_OWN(i) STORE(to + i, from[i]);
}

kernel void probe_read(global const char* from_base, ulong from_offset, global char* to_base,
                       ulong to_offset, uint count) {
  global const T* from = (global const T*)(from_base + from_offset);
  T sum = (T)(0);
  FOR_OWN(i) sum += from[i];
  // One element per work-item: the reads can't be left out.
  ((global T*)(to_base + to_offset))[get_global_id(0)] = sum;
}
