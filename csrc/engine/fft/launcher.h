// One Fourier transform on its way: what the choice of steps and the launch of a step share.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <limits>
#include <string>

#include "engine/device_table.h"
#include "engine/dispatch.h"
#include "engine/fft/fft.h"
#include "engine/fft/plan.h"
#include "engine/kernel_types.h"
#include "opencl/kernel.h"

namespace ocl::fft {

using namespace kernel_types;
#include "fft/arguments.clh"
static_assert(kMaxPasses == Schedule::kMaxPasses);

inline constexpr uint32_t kNoLimit = std::numeric_limits<uint32_t>::max();

/// Where signals lie: in a tensor, or one after another in a workspace.
struct Place {
  const void* address;
  int64_t element;                   // bytes from one element to the next
  int64_t signal;                    // bytes from one signal to the next, in a workspace
  const int64_t* strides = nullptr;  // bytes, of the batch dimensions, in a tensor
};

/// The ends of a sequence of steps: what it reads, writes and does there.
struct Ends {
  Place in, out;
  Load load = kLoadComplex;
  Store store = kStoreComplex;
  uint32_t flags = 0;
  uint32_t limit = kNoLimit;
  uint32_t load_rows = 0, store_rows = 0;  // of a step's lines; 0: as many as it transforms
  double scale = 1;
  at::Tensor factors{};
};

class Launcher;

/// A transform of every signal, of n elements, that an implementation takes or refuses.
struct Transform {
  Launcher& launcher;
  uint32_t n;
  const Ends& ends;
};

/// One transform on its way: geometry in, launches out.
class Launcher {
 public:
  Launcher(const at::Tensor& in, const at::Tensor& out, int64_t dim);
  /// False if there are too many dimensions.
  bool set_batch(const at::Tensor& in, const at::Tensor& out, int64_t dim);
  void run(Kind kind, Direction direction, double scale);
  /// By the first implementation that takes it; by steps alone if `by_steps`.
  void transform_signals(uint32_t n, const Ends& ends, bool by_steps = false);

  /// The implementations.
  const char* refuse_registers(uint32_t n) const;
  const char* refuse_lines(uint32_t n) const;
  void run_steps(uint32_t n, const Ends& ends, bool in_registers);
  void run_bluestein(uint32_t n, const Ends& ends);

  std::string describe(uint32_t n) const;

 private:
  /// The steps of a transform in registers, or in scratch memory; none if there are no such steps.
  Plan plan(uint32_t n, bool in_registers) const;
  /// Whether a CPU cuts it for its vectors and cores, short enough as it is.
  bool is_cut(uint32_t n) const;
  Plan register_plan(uint32_t n) const;
  Plan line_plan(uint32_t n) const;
  /// Lines whose elements fill a sector.
  uint32_t side_by_side() const { return static_cast<uint32_t>(table_.sector / complex_size_); }
  /// Whether a GPU's work-group can take that many lines of `length` elements in registers.
  bool fits_registers(uint32_t length, uint32_t lanes) const;
  /// Elements of scratch memory, over all lanes, that a work-group of a GPU gets.
  uint32_t gpu_capacity() const;
  void choose_lanes(uint32_t rows);
  c10::DataPtr workspace(uint64_t elements) const;
  Place in_workspace(const c10::DataPtr& memory, uint32_t n) const;
  void unpack(const Place& spectrum, const Ends& ends);
  void step(const Place& in, const Place& out, const Ends& ends, uint32_t before, uint32_t length,
            uint32_t after, bool in_registers = false);
  void step_in_registers(const Place& in, const Place& out, const Ends& ends);

  Queue& queue_;
  Device& device_;
  const FftRow& table_ = device_row(device_).fft;
  const c10::ScalarType real_;
  const int64_t real_size_, complex_size_;
  const int64_t signal_in_, signal_out_;  // elements along the dimension
  Place in_{}, out_{};
  std::array<int64_t, kMaxDims> in_strides_{}, out_strides_{};
  std::array<uint32_t, kMaxDims> sizes_{};
  uint32_t dims_ = 0, signals_ = 1;
  uint32_t width_ = 1;   // lines in a vector; 1 on GPUs
  bool across_ = false;  // elements of different signals are the nearer ones in memory
  bool far_ = false;     // a signal's elements are more bytes apart than 32 bits hold
  Arguments arguments_{};
  at::Tensor chirp_;
};

}  // namespace ocl::fft
