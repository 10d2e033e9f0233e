// The matrix product with k-blocking, of few rows and columns over a long k, for CPUs: a weight's
// gradient. A work-item walks along its part of k and adds up the whole result, block by block: b's
// rows are packed into panels that stay in cache, a is read where it lies, so that memory is read
// once and nothing large is written.
//
// Compile parameters besides gemm.clh's (real C): MR x NV * WIDTH (rows x columns of the tile kept
// in registers), DEPTH (rows of b in a block), ADJACENT (1: a.row is 1).
//
// Workspace: the sums as EPILOGUE_OR_SPLIT leaves them, then from `panels` on (bytes) for each
// work-item [n / NR][DEPTH][NR] of C.
#include "include/item_by_item.clh"
#include "gemm/gemm.clh"
#include "include/register_tile.clh"

#ifndef DEPTH
#define DEPTH 128
#endif
#ifndef ADJACENT
#define ADJACENT 1
#endif
#ifdef OCL_BUILTIN_PREFETCH
#define FETCH(pointer) __builtin_prefetch((const void*)(ulong)(pointer), 0, 2)
#else
#define FETCH(pointer) (void)(pointer)
#endif

typedef TYPEV(C, WIDTH) V;

/// Needs b.column == 1, n a multiple of WIDTH, m >= MR. Global size: splits, batch.
kernel ITEM_BY_ITEM __attribute__((reqd_work_group_size(1, 1, 1))) void gemm_k_blocking(
    OPERANDS, const ulong panels) {
  const ulong split = get_global_id(0), z = get_global_id(1);
  const ulong start = split * p.split_k, end = min(start + p.split_k, (ulong)p.k);
  ADVANCE_OPERANDS(z);
  const ulong item = split * p.batch + z, tiles = (p.n + NR - 1) / NR;
  global T* totals = (global T*)workspace + item * p.m * p.n;
  global T* block = (global T*)(workspace + panels) + item * tiles * DEPTH * NR;
#if ADJACENT
#define AT(i) (i)
#else
  // Volatile, for compilers would take the sums behind `at` apart again and add them up in the
  // loop.
  volatile ulong spilled[MR];
  ulong at[MR];
  _Pragma("unroll") for (uint i = 0; i < MR; i++) spilled[i] = i * p.a.row;
  _Pragma("unroll") for (uint i = 0; i < MR; i++) at[i] = spilled[i];
#define AT(i) at[i]
#endif
  for (ulong k0 = start; k0 < end; k0 += DEPTH) {
    const uint depth = min((ulong)DEPTH, end - k0);
    for (uint kk = 0; kk < depth; kk++) {
      global const char* row = b + (k0 + kk) * p.b.row * STORAGE_SIZE(IN1);
      for (uint v = 0; v < p.n / WIDTH; v++) {
        const ulong to = (v / NV * DEPTH + kk) * NV + v % NV;
        STOREV(C, WIDTH, (global char*)block, to, LOADV_AS(C, IN1, WIDTH, row, v));
      }
    }
    // The next block comes into the second cache meanwhile, a few bytes a step, where its rows are
    // adjacent.
    global const char* next = b + (k0 + DEPTH) * p.b.row * STORAGE_SIZE(IN1);
    const bool fetches = p.b.row == p.n && k0 + 2 * DEPTH <= end;
    const uint pace = fetches ? min(NR * STORAGE_SIZE(IN1) / ((p.m + MR - 1) / MR) + 1, 64u) : 0;
    for (uint column0 = 0; column0 < p.n; column0 += NR) {
      const uint valid = min((uint)NR, p.n - column0) / WIDTH;
      for (uint row0 = 0; row0 < p.m; row0 += MR) {
        // The last rows' tile reaches back to rows that are summed already, and leaves those alone.
        const uint row = min(row0, p.m - MR);
        global char* total = (global char*)(totals + (ulong)row * p.n + column0);
        V sum[MR][NV];
        _Pragma("unroll") for (uint i = 0; i < MR; i++) {
          _Pragma("unroll") for (uint v = 0; v < NV; v++) sum[i][v] = (V)(0);
        }
        global const char* x = a + (row * p.a.row + k0 * p.a.column) * STORAGE_SIZE(IN0);
        global const char* y = (global const char*)(block + (ulong)column0 * DEPTH);
        for (uint kk = 0; kk < depth; kk++) {
          V columns[NV];
          _Pragma("unroll") for (uint v = 0; v < NV; v++) columns[v] = LOADV(C, WIDTH, y, v);
          _Pragma("unroll") for (uint i = 0; i < MR; i++) {
            const V element = (V)(LOAD_AS(C, IN0, x, AT(i)));
            _Pragma("unroll") for (uint v = 0; v < NV; v++) {
              sum[i][v] = MAD(element, columns[v], sum[i][v]);
            }
          }
          FETCH(next);
          next += pace;
          x += p.a.column * STORAGE_SIZE(IN0);
          y += NR * sizeof(T);
        }
        _Pragma("unroll") for (uint i = 0; i < MR; i++) {
          if (row + i < row0) continue;
          global char* line = total + i * p.n * sizeof(T);
          _Pragma("unroll") for (uint v = 0; v < NV; v++) {
            if (v >= valid) continue;
            const V before = k0 == start ? (V)(0) : LOADV(C, WIDTH, line, v);
            STOREV(C, WIDTH, line, v, before + sum[i][v]);
          }
        }
      }
    }
  }
}
