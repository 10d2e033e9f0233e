// Exclusive prefix sums of arrays of counts: a work-group per array.

/// Arrays of `length` counts, length + 1 apart; the last place takes the total. sums: an element
/// per work-item of the group.
kernel void sort_scan(global char* counts_base, ulong counts_offset, uint length,
                      local uint* sums) {
  global uint* counts =
      (global uint*)(counts_base + counts_offset) + (ulong)get_group_id(0) * (length + 1);
  const uint id = get_local_id(0), group = get_local_size(0);
  const uint share = (length + group - 1) / group;
  const uint begin = min(id * share, length), end = min(begin + share, length);
  uint sum = 0;
  for (uint i = begin; i < end; i++) sum += counts[i];
  sums[id] = sum;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint step = 1; step < group; step <<= 1) {
    const uint before = id >= step ? sums[id - step] : 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    sums[id] += before;
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  uint running = sums[id] - sum;
  for (uint i = begin; i < end; i++) {
    const uint count = counts[i];
    counts[i] = running;
    running += count;
  }
  if (id == group - 1) counts[length] = running;
}

// Counts that a work-item of the other kernel sums at a time.
#define COUNTS 4

/// Scans counts on GPUs: tiles of counts, so that neighbouring work-items read neighbouring counts.
kernel void sort_scan_tiles(global char* counts_base, ulong counts_offset, uint length,
                            local uint* sums) {
  global uint* counts =
      (global uint*)(counts_base + counts_offset) + (ulong)get_group_id(0) * (length + 1);
  const uint id = get_local_id(0), group = get_local_size(0);
  uint before = 0;  // of the tiles before
  for (uint first = 0; first < length; first += group * COUNTS) {
    uint own[COUNTS], sum = 0;
    for (uint j = 0; j < COUNTS; j++) {
      const uint i = first + id * COUNTS + j;
      own[j] = i < length ? counts[i] : 0;
      sum += own[j];
    }
    uint running = sum;
    sums[id] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint step = 1; step < group; step <<= 1) {
      if (id >= step) running += sums[id - step];
      barrier(CLK_LOCAL_MEM_FENCE);
      sums[id] = running;
      barrier(CLK_LOCAL_MEM_FENCE);
    }
    const uint total = sums[group - 1];
    running += before - sum;
    for (uint j = 0; j < COUNTS; j++) {
      const uint i = first + id * COUNTS + j;
      if (i < length) counts[i] = running;
      running += own[j];
    }
    before += total;
    barrier(CLK_LOCAL_MEM_FENCE);  // the sums are read before the next tile's are written
  }
  if (id == 0) counts[length] = before;
}
