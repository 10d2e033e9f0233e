// The constants of a class of device: for each its type, its name and the value of most classes.
//
// device_table.h makes its structs of them, and tuner/constants.cpp the names by which the tuner's
// file sets them. Who includes this file defines ROW for those of a device's row, and REDUCE, SCAN,
// FFT, CHANNELS and HARDWARE for those of its parts; what is not defined is left out.
#ifndef ROW
#define ROW(type, name, value)
#endif
#ifndef REDUCE
#define REDUCE(type, name, value)
#endif
#ifndef SCAN
#define SCAN(type, name, value)
#endif
#ifndef FFT
#define FFT(type, name, value)
#endif
#ifndef CHANNELS
#define CHANNELS(type, name, value)
#endif
#ifndef HARDWARE
#define HARDWARE(type, name, value)
#endif

// These serve matrix products, and convolutions with their register tiles. A vector has
// `register_bytes`. Registers hold rows x vectors of sums, which are added up every kc of k. A
// work-item covers `packed_block_bytes` of row panels. The skinny kernels have `skinny_rows` for
// each work-item on CPUs, and `skinny_local` work-items for one or several rows on GPUs.
ROW(int, register_bytes, 0)
ROW(int, packed_rows, 0)
ROW(int, packed_vectors, 2)
ROW(int, packed_kc, 512)
ROW(int64_t, packed_block_bytes, 0)
ROW(int, skinny_rows, 0)
ROW(int, skinny_local, 0)

// A group has so many work-items where each takes a row or column of its own, or elements alone.
// Where a row is worth a CPU's work-item, its group has that one.
ROW(int, row_group, 128)
ROW(int, element_group, 256)
// A group has this size where its work-items have little in common: a vector of a CPU, a few waves
// of a GPU.
ROW(int, lane_group, 64)
// So many elements are worth a CPU's work-item: fewer are done before another one begins. Sums and
// norms, which pass over elements faster, take a multiple.
ROW(int64_t, item_elements, 4096)
// A CPU's core gets so many work-items: few enough to be worth their start, and enough that no core
// waits long for the last one. Short ones take a multiple.
ROW(int64_t, core_items, 4)
// A GPU's work-item takes one of so many elements. If there are more it takes several, one after
// another.
ROW(int64_t, spread_elements, 1 << 20)
ROW(int64_t, spread_copies, 1 << 18)
ROW(int64_t, most_spread, 8)
// On GPUs so many elements that are added by index are worth sorting. For fewer one launch is less.
ROW(int64_t, sorted_indices, 64)
// A GPU's work-item takes so many channels where it samples an image at places that all of them
// share.
ROW(int64_t, sampled_channels, 8)

// On GPUs a further launch costs so many multiply-adds of a compute unit, of its tensor cores, and
// of those in double precision. A part of a result costs `tensor_part_cost` of the second to write
// and read.
ROW(double, launch_cost, 0.9e6)
ROW(double, tensor_launch_cost, 1.2e7)
ROW(double, f64_launch_cost, 1.0e6)
ROW(double, tensor_part_cost, 700)
// bfloat16x3 saves multiply-adds of the whole device. The launches that split the operands cost so
// many of them, and so does an element that is split, or copied besides.
ROW(double, x3_launch_cost, 2.8e8)
ROW(double, x3_element_cost, 128)
ROW(double, x3_copy_cost, 100)
// A compute unit has so many registers of 4 bytes.
ROW(int, unit_registers, 65536)
// A group of a depthwise convolution has so many work-items, a power of two from 32 on. So many
// groups fill a compute unit.
ROW(int, depthwise_group, 256)
ROW(int, groups_per_unit, 8)
// So many work-items of a compute unit are on their way at once, and so many in sums over columns.
ROW(int, resident_items, 1024)
ROW(int, resident_column_items, 768)
// Work-items share rows (row_share.h). One has so many bytes of a row in registers, so many share
// it, and each takes so many vectors of a row that no registers hold. With more in registers too
// few work-items run at once to hide the memory's latency.
ROW(int, row_register_bytes, 64)
ROW(int, least_sharers, 32)
ROW(int, most_sharers, 256)
ROW(int, vectors_per_sharer, 4)
// Some rows are too long for these (softmax/rows_held.cl). One work-item then has so many bytes in
// registers, and so many share the row at most: it is so long that one row at a time keeps a
// compute unit busy.
ROW(int64_t, long_row_register_bytes, 100)
ROW(int64_t, long_row_sharers, 1024)
// In the backward pass of norms over rows in registers a work-item may take so many registers, and
// so many groups of a compute unit then run at once.
ROW(int, norm_registers, 96)
ROW(int, norm_groups_per_unit, 10)

// These are of CPUs, in bytes. `first_cache` is a first-level cache, and `staged` is what it holds
// beside the rest. `panel` is what a second-level cache holds beside the rest. `reread` is read
// again for every tile. `core` is a core's part of the last-level cache. `large_group` counts the
// work-items of a group of element-wise ops where every core gets several.
ROW(int, large_group, 1024)
ROW(int64_t, first_cache_bytes, 32 << 10)
ROW(int64_t, staged_bytes, 16 << 10)
ROW(int64_t, panel_bytes, 768 << 10)
ROW(int64_t, reread_bytes, 256 << 10)
ROW(int64_t, core_bytes, 2 << 20)

// Reductions (reduce/README.md) sum so many elements of a column before their sum is added to the
// others. A GPU's groups take chunks of `long_row_chunk` where a row has many. `item_elements` are
// worth a work-item. The moments' work-items have `register_elements` of a row in registers.
REDUCE(uint32_t, column_chunk, 32)
REDUCE(uint32_t, long_row_chunk, 16384)
REDUCE(int64_t, item_elements, 256)
REDUCE(int64_t, register_elements, 32)
// On GPUs so many results for each compute unit keep it busy with small groups. Where results are
// fewer, `large_group` shares rows of `large_row`. Rows of `small_row` are worth `small_group`, and
// contiguous ones of `least_row` are worth `least_group`.
REDUCE(int64_t, many_rows_per_unit, 32)
REDUCE(int64_t, large_row, 1024)
REDUCE(int64_t, small_row, 256)
REDUCE(int64_t, least_row, 32)
REDUCE(size_t, large_group, 256)
REDUCE(size_t, small_group, 64)
REDUCE(size_t, least_group, 32)
// A GPU's group adds up partial results if there are `shared_splits` or more, and `partials_group`
// work-items take those of one output. Where there are as many outputs as lie in a cache line, the
// group takes them all.
REDUCE(uint32_t, shared_splits, 32)
REDUCE(size_t, partials_group, 64)
REDUCE(size_t, partials_outputs, 16)
REDUCE(size_t, partials_group_of_each, 16)

// A GPU's work-item of a scan takes so many elements at a time. Lines of `group_length` are worth a
// group, and `column_elements` of columns are worth a work-item.
SCAN(int, items, 8)
SCAN(int64_t, group_length, 512)
SCAN(int64_t, column_elements, 256)

// Fourier transforms on GPUs take so many lines side by side, which fill a memory transaction. The
// smallest one has `sector` bytes. A group has `elements` at hand, and registers pay for lines of
// `register_length`.
FFT(uint32_t, side_by_side, 8)
FFT(uint32_t, elements, 1024)
FFT(uint32_t, register_length, 32)
FFT(int64_t, sector, 32)

// Batch norms give so many positions a part of their own, where positions are adjacent and where
// channels are. On GPUs a group takes so many vectors of adjacent channels, and a compute unit has
// so many groups for sums and for elements (norm/channels.cpp). `group_channels` are a group's
// channels, and each has `part_items` work-items.
CHANNELS(int64_t, positions, 2048)
CHANNELS(int64_t, column_positions, 64)
CHANNELS(int64_t, vectors, 32)
CHANNELS(int64_t, sum_groups_per_unit, 8)
CHANNELS(int64_t, element_groups_per_unit, 32)
CHANNELS(int64_t, group_channels, 8)
CHANNELS(int64_t, part_items, 128)

// These are numbers of a GPU's programming guide. A compute unit, as OpenCL counts them, has so
// many bytes of local memory. The work-items of a wave go in step.
HARDWARE(int, unit_local_memory, 64 << 10)
HARDWARE(int, wave_items, 32)
// A work-item can have so many registers, and so many more beyond (occupancy.h), which is 0 if it
// can't. A tile is to leave room for `wanted_items` of a unit, which is 0 where the cost model
// alone decides.
HARDWARE(int, item_registers, 255)
HARDWARE(int, large_registers, 0)
HARDWARE(int, wanted_items, 0)
// At 1 compilers load what all steps of an unrolled loop need before the first one, which takes
// twice the registers. The loop over a tile's k is not unrolled then (ROLLED).
HARDWARE(int, loads_early, 0)
// Double precision is so fast beside single precision: below 1/8 no sum of single precision takes
// it.
HARDWARE(double, fp64_rate, 0.5)

#undef ROW
#undef REDUCE
#undef SCAN
#undef FFT
#undef CHANNELS
#undef HARDWARE
