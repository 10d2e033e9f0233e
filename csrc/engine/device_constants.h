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

// Matrix products, and convolutions with their register tiles: the bytes of a vector; rows x
// vectors of sums in registers, added up every kc of k, and the bytes of row panels that a
// work-item covers; rows of a work-item of the skinny kernels, and work-items per row.
ROW(int, register_bytes, 0)
ROW(int, packed_rows, 0)
ROW(int, packed_vectors, 2)
ROW(int, packed_kc, 512)
ROW(int64_t, packed_block_bytes, 0)
ROW(int, skinny_rows, 0)
ROW(int, skinny_local, 0)

// Work-items of a group, where each has a row or column of its own, or elements alone. Where a
// row is worth a CPU's work-item, its group has that one.
ROW(int, row_group, 128)
ROW(int, element_group, 256)
// The size of a group whose work-items have little in common: a vector of a CPU, a few waves of
// a GPU.
ROW(int, lane_group, 64)
// Elements that are worth a CPU's work-item: fewer are done before another one begins. Sums and
// norms, which pass over elements faster, take a multiple.
ROW(int64_t, item_elements, 4096)
// Work-items for each of a CPU's cores: few enough to be worth their start, and enough that no
// core waits long for the last one. Short ones take a multiple.
ROW(int64_t, core_items, 4)
// GPUs: elements of which a work-item takes one; of more it takes several, one after another.
ROW(int64_t, spread_elements, 1 << 20)
ROW(int64_t, spread_copies, 1 << 18)
ROW(int64_t, most_spread, 8)
// GPUs: elements to add by index that are worth sorting; for fewer one launch is less.
ROW(int64_t, sorted_indices, 64)
// GPUs: channels of a work-item that samples an image at places that all of them share.
ROW(int64_t, sampled_channels, 8)

// GPUs: what a further launch costs, in multiply-adds of a compute unit, of its tensor cores,
// and of those in double precision; what a part of a result costs to write and read, in the
// second.
ROW(double, launch_cost, 0.9e6)
ROW(double, tensor_launch_cost, 1.2e7)
ROW(double, f64_launch_cost, 1.0e6)
ROW(double, tensor_part_cost, 700)
// Where single precision is multiplied in parts of bfloat16: what the launches that split the
// factors cost, in multiply-adds of the whole device that this saves, and an element that is
// split, or copied besides.
ROW(double, x3_launch_cost, 2.8e8)
ROW(double, x3_element_cost, 128)
ROW(double, x3_copy_cost, 100)
// Registers of 4 bytes of a compute unit.
ROW(int, unit_registers, 65536)
// Work-items of a group of depthwise convolutions, a power of two from 32 on, and groups that
// fill a compute unit.
ROW(int, depthwise_group, 256)
ROW(int, groups_per_unit, 8)
// Work-items of a compute unit that are on their way at once; in sums over columns.
ROW(int, resident_items, 1024)
ROW(int, resident_column_items, 768)
// Rows that work-items share (row_share.h): the bytes of a row that one has in registers, how
// many share it, and vectors of a row for each where no registers hold it. With more in
// registers too few work-items run at once to hide the memory's latency.
ROW(int, row_register_bytes, 64)
ROW(int, least_sharers, 32)
ROW(int, most_sharers, 256)
ROW(int, vectors_per_sharer, 4)
// A row too long for these (softmax/rows_held.cl): the bytes of one's registers, and how many
// share it at most: so long a row that one at a time keeps a compute unit busy.
ROW(int64_t, long_row_register_bytes, 100)
ROW(int64_t, long_row_sharers, 1024)
// The backward pass of norms over rows in registers: the registers a work-item may take, and the
// groups of a compute unit that then run at once.
ROW(int, norm_registers, 96)
ROW(int, norm_groups_per_unit, 10)

// CPUs, in bytes. `first_cache`: a first-level cache. `staged`: what it holds beside the rest.
// `panel`: likewise, a second-level cache. `reread`: of what is read again for every tile.
// `core`: of the last-level cache, for each core. `large_group`: work-items of a group of
// element-wise ops where every core gets several.
ROW(int, large_group, 1024)
ROW(int64_t, first_cache_bytes, 32 << 10)
ROW(int64_t, staged_bytes, 16 << 10)
ROW(int64_t, panel_bytes, 768 << 10)
ROW(int64_t, reread_bytes, 256 << 10)
ROW(int64_t, core_bytes, 2 << 20)

// Reductions (reduce/README.md). Elements of a column that are summed before their sum is added
// to the others; those worth a work-item; of a row, where a GPU's groups take many and where the
// moments' work-items have them in registers.
REDUCE(uint32_t, column_chunk, 32)
REDUCE(uint32_t, long_row_chunk, 16384)
REDUCE(int64_t, item_elements, 256)
REDUCE(int64_t, register_elements, 32)
// GPUs: results for each compute unit from which small groups keep it busy; rows shared by
// `large_group` where results are fewer; those worth `small_group`; contiguous ones worth
// `least_group`.
REDUCE(int64_t, many_rows_per_unit, 32)
REDUCE(int64_t, large_row, 1024)
REDUCE(int64_t, small_row, 256)
REDUCE(int64_t, least_row, 32)
REDUCE(size_t, large_group, 256)
REDUCE(size_t, small_group, 64)
REDUCE(size_t, least_group, 32)
// A GPU's group adds up so many partial results, and so many work-items take those of one
// output; of as many outputs as lie in a cache line, the group takes them all.
REDUCE(uint32_t, shared_splits, 32)
REDUCE(size_t, partials_group, 64)
REDUCE(size_t, partials_outputs, 16)
REDUCE(size_t, partials_group_of_each, 16)

// Scans: elements of a GPU's work-item at a time, the lines worth a group of them, and the
// elements of columns that are worth a work-item.
SCAN(int, items, 8)
SCAN(int64_t, group_length, 512)
SCAN(int64_t, column_elements, 256)

// Fourier transforms on GPUs: lines side by side that fill a memory transaction, the bytes of the
// smallest one, the elements a group has at hand, and the lengths that registers pay for.
FFT(uint32_t, side_by_side, 8)
FFT(uint32_t, elements, 1024)
FFT(uint32_t, register_length, 32)
FFT(int64_t, sector, 32)

// Batch norms: positions worth a part of their own, where they are adjacent and where channels
// are. GPUs: vectors of adjacent channels of a group, and groups of a compute unit for sums and
// for elements (norm/channels.cpp); channels of a group, and the work-items of each.
CHANNELS(int64_t, positions, 2048)
CHANNELS(int64_t, column_positions, 64)
CHANNELS(int64_t, vectors, 32)
CHANNELS(int64_t, sum_groups_per_unit, 8)
CHANNELS(int64_t, element_groups_per_unit, 32)
CHANNELS(int64_t, group_channels, 8)
CHANNELS(int64_t, part_items, 128)

// These are numbers of a GPU's programming guide. A compute unit, as OpenCL counts them: its bytes
// of local memory, how many banks of 4 bytes that has, and the work-items of a wave, which go in
// step.
HARDWARE(int, unit_local_memory, 64 << 10)
HARDWARE(int, local_banks, 32)
HARDWARE(int, wave_items, 32)
// Registers that a work-item can have, and that it can have beyond (occupancy.h): 0 if no more.
// Work-items of a unit that a tile is to leave room for: 0 where the cost model alone decides.
HARDWARE(int, item_registers, 255)
HARDWARE(int, large_registers, 0)
HARDWARE(int, wanted_items, 0)
// 1: compilers load what all steps of an unrolled loop need before the first one, which takes twice
// the registers. The loop over a tile's k is not unrolled then (ROLLED).
HARDWARE(int, loads_early, 0)
// How fast double precision is beside single precision: below 1/8 no sum of single precision takes
// it.
HARDWARE(double, fp64_rate, 0.5)
// Bytes of a line of the caches, and how fast half precision is. No code reads these two, nor
// local_banks above: the rows have them from the guides, for who writes a kernel for one.
HARDWARE(int, cache_line, 128)
HARDWARE(double, fp16_rate, 1)

#undef ROW
#undef REDUCE
#undef SCAN
#undef FFT
#undef CHANNELS
#undef HARDWARE
