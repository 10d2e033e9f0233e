// A product on its way to a kernel: what gemm.cpp and the implementations share.
#pragma once

#include <c10/core/Allocator.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/dispatch.h"
#include "engine/dtype.h"
#include "engine/epilogue.h"
#include "engine/gemm/gemm.h"
#include "engine/gemm/parameters.h"
#include "engine/gemm/windows.h"
#include "engine/kernel_types.h"
#include "opencl/kernel.h"
#include "opencl/kernel_family.h"
#include "opencl/platform.h"

namespace ocl::gemm {

using namespace kernel_types;
#include "gemm/arguments.clh"

/// A checked description with what every implementation asks for.
struct Plan {
  explicit Plan(Queue& queue) : device(queue.device()), queue(queue) {}

  Device& device;
  Queue& queue;
  Arguments problem{};
  // Addresses in the device's address space.
  const char *a = nullptr, *b = nullptr, *c = nullptr;
  char* out = nullptr;
  const char *a_tag = nullptr, *b_tag = nullptr, *out_tag = nullptr, *compute_tag = nullptr;
  size_t a_size = 0, b_size = 0, out_size = 0, compute_size = 0;  // bytes of an element
  bool tf32 = false;      // of single precision: TF32 will do
  int rounded_terms = 0;  // as Description has them
  int exact_terms = 1;
  bool out_of_memory = false;  // bfloat16x3 found none for its parts
  bool complex = false;        // the kernels have no vectors of complex numbers
  bool b_packed = false;       // for packed alone
  int activation = 0;
  ScalarArgument alpha{}, beta{};
  Parameters parameters{};
  const Windows* windows = nullptr;
  const PiecesOfB* pieces = nullptr;
  const Epilogue* epilogue = nullptr;

  /// This product transposed: out^T = b^T a^T.
  Plan transposed() const;
};

/// Other parameters for an implementation, and what they are called in a file of tuning results:
/// without commas, colons and white space.
struct Variation {
  std::string name;
  Parameters parameters;
};

/// One of the list: a kernel or several.
struct Implementation : ocl::Implementation<const Plan> {
  /// The tuner may make this of the plan's parameters at that stage (from 0), the most promising
  /// first; nothing past its last stage. Null where there is nothing to vary.
  std::vector<Variation> (*vary)(const Plan& plan, int stage) = nullptr;
};

extern Engine engine;
extern const Implementation small, k_blocking, packed, skinny_axpy, skinny_dot, group_axpy,
    group_dot, bfloat16_parts, bfloat16x3, tensor_core, tensor_core_f64, subgroup_matrix, subgroup,
    wave_matrix, tiled, direct;

/// Whether the driver turned out not to take programs with Hopper's instructions.
bool warpgroups_fail();

/// The elements along k that packed makes one value of a panel: 1, or as many as a processor's
/// dot product takes, 2 of bfloat16 or 4 of int8 (kernels/gemm/dot_*.clh, written for one tile).
int packed_group(const Plan& plan);
/// Whether dot products of the rows and columns as they lie beat packing, for a plan with no more
/// columns than rows.
bool prefers_dots(const Plan& plan);
/// Whether packed multiplies the plan's operands by x86's AMX, with tiles of parameters_of_amx().
bool takes_amx(const Plan& plan);
/// The panels packed makes of the plan's b, and what makes them.
Panels panels_of(const Plan& plan);
void pack_columns(const Plan& plan, void* panels);

/// Checks a description and says what implementations ask for.
Plan make_plan(const Description& description);

/// Runs the first implementation that takes the plan, or as the tuner says.
void run_plan(const Plan& plan);
/// Runs the first implementation that takes b in pieces; false if none does.
bool run_plan_of_pieces(const Plan& plan);
/// Runs the first one, for an implementation that made another product of its plan or that failed:
/// it may have been chosen by the tuner.
void run_again(const Plan& plan);

/// The implementations for that device in order of preference. The last one takes everything.
std::span<const Implementation* const> implementations(const Device& device);
/// Those that find an operand in windows: the device's, and all devices'.
std::span<const Implementation* const> implementations_of_windows(const Device& device);
std::span<const Implementation* const> all_implementations_of_windows();

/// Runs the plan as the tuner found best for its class of shapes, looking for that at first. False
/// if the tuner is off or prefers the order of implementations().
bool run_tuned(const Plan& plan);

}  // namespace ocl::gemm
