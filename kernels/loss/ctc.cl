// Connectionist temporal classification (Graves et al., ICML 2006): forward and backward variables
// over the target with blanks between its labels, in logarithms.
//
// log_probs is [time][batch][classes], contiguous; alpha and beta are [batch][time][width], width =
// 2 * longest target + 1. A launch serves at most kSamples samples. Compile parameters: E (f32 or
// f64), TARGET (tag of the labels), GROUP (work-items per sample; above 1 a work-group).
#ifndef E
#define E f32
#endif
#ifndef TARGET
#define TARGET i64
#endif
#ifndef GROUP
#define GROUP 1
#endif
#include "include/item_by_item.clh"
#include "include/assert.clh"
#include "include/dtype.clh"
#include "include/indexing.clh"
#include "loss/arguments.clh"

typedef TYPE(E) real;

#define ITEM (GROUP > 1 ? (uint)get_local_id(0) : 0)
#if GROUP > 1
#define SYNC() barrier(CLK_GLOBAL_MEM_FENCE)
#else
#define SYNC()
#endif

/// Label s of the target with blanks; -1 if it is out of range, which is recorded.
#define LABEL(s)                                                                                 \
  (((s) & 1) == 0 ? (long)args.blank                                                             \
                  : checked_label(LOAD_AS(i64, TARGET, targets, ((s) / 2) * args.target_stride), \
                                  args.classes, asserts, args.site))
static inline long checked_label(long label, uint classes, global int* asserts, uint site) {
  return check_index(label, classes, asserts, site) ? label : -1;
}
#define LOG_PROB(t, label)         \
  ((label) < 0 ? (real) - INFINITY \
               : LOAD(E, log_probs, ((ulong)(t) * args.batch + n) * args.classes + (label)))

static inline real log_add3(real a, real b, real c) {
  real top = fmax(fmax(a, b), c);
  if (top == -(real)INFINITY) top = 0;
  return log(exp(a - top) + exp(b - top) + exp(c - top)) + top;
}
static inline real log_add(real a, real b) {
  const real top = fmax(a, b);
  return top == -(real)INFINITY ? top : log(exp(a - top) + exp(b - top)) + top;
}

#define DECLARE_SAMPLE(k)                                  \
  const uint n = args.first + (k);                         \
  uint length = 0, labels = 0;                             \
  ulong begin = 0;                                         \
  FOR_DIMENSIONS(sample_, k, (k) + 1, args.input_length) { \
    length = args.input_length[sample_];                   \
    labels = args.target_length[sample_];                  \
    begin = args.target_begin[sample_];                    \
  }                                                        \
  const uint width = 2 * labels + 1;                       \
  log_probs += log_probs_offset;                           \
  global const char* targets = target + target_offset + begin * STORAGE_SIZE(TARGET)
#define ALPHA_OF(p) ((global real*)(p) + (ulong)n * args.time * args.width)

/// alpha, and the negative log likelihood of each sample.
kernel ITEM_BY_ITEM void ctc_forward(global const char* log_probs, const ulong log_probs_offset,
                                     global const char* target, const ulong target_offset,
                                     global char* alphas, const ulong alphas_offset,
                                     global char* nlls, const ulong nlls_offset,
                                     const CtcArguments args, global int* asserts) {
  const uint k = get_global_id(0) / GROUP;
  if (k >= args.samples) return;
  DECLARE_SAMPLE(k);
  global real* alpha = ALPHA_OF(alphas + alphas_offset);
  for (uint s = ITEM; s < args.width; s += GROUP) {
    alpha[s] = s < min(width, 2u) && length > 0 ? LOG_PROB(0, LABEL(s)) : -(real)INFINITY;
  }
  for (uint t = 1; t < length; t++) {
    SYNC();
    global const real* before = alpha + (ulong)(t - 1) * args.width;
    global real* now = alpha + (ulong)t * args.width;
    for (uint s = ITEM; s < width; s += GROUP) {
      const long label = LABEL(s);
      const real one = s > 0 ? before[s - 1] : -(real)INFINITY;
      const real two = s > 1 && LABEL(s - 2) != label ? before[s - 2] : -(real)INFINITY;
      now[s] = log_add3(before[s], one, two) + LOG_PROB(t, label);
    }
  }
  SYNC();
  if (ITEM != 0) return;
  real likelihood;
  if (length == 0) {
    likelihood = labels == 0 ? (real)0 : -(real)INFINITY;
  } else {
    global const real* last = alpha + (ulong)(length - 1) * args.width;
    likelihood = log_add(last[width - 1], labels > 0 ? last[width - 2] : -(real)INFINITY);
  }
  ((global real*)(nlls + nlls_offset))[n] = -likelihood;
}

/// Whether the sample's gradient is 0 because no path has any probability.
#define IS_ZEROED(n) \
  (args.zero_infinity && ((global const real*)(nlls + nlls_offset))[n] == INFINITY)

kernel ITEM_BY_ITEM void ctc_beta(global const char* log_probs, const ulong log_probs_offset,
                                  global const char* target, const ulong target_offset,
                                  global char* betas, const ulong betas_offset,
                                  global const char* nlls, const ulong nlls_offset,
                                  const CtcArguments args, global int* asserts) {
  const uint k = get_global_id(0) / GROUP;
  if (k >= args.samples) return;
  DECLARE_SAMPLE(k);
  if (length == 0 || IS_ZEROED(n)) return;
  global real* beta = ALPHA_OF(betas + betas_offset);
  for (uint s = ITEM; s < width; s += GROUP) {
    beta[(ulong)(length - 1) * args.width + s] =
        s + 2 >= width ? LOG_PROB(length - 1, LABEL(s)) : -(real)INFINITY;
  }
  for (uint t = length - 1; t > 0; t--) {
    SYNC();
    global const real* after = beta + (ulong)t * args.width;
    global real* now = beta + (ulong)(t - 1) * args.width;
    for (uint s = ITEM; s < width; s += GROUP) {
      const long label = LABEL(s);
      const real one = s + 1 < width ? after[s + 1] : -(real)INFINITY;
      const real two = s + 2 < width && LABEL(s + 2) != label ? after[s + 2] : -(real)INFINITY;
      now[s] = log_add3(after[s], one, two) + LOG_PROB(t - 1, label);
    }
  }
}

/// The gradient, contiguous like log_probs. One work-item per sample and time, so that sums over
/// equal labels need no atomics and have one order.
kernel void ctc_gradient(global const char* log_probs, const ulong log_probs_offset,
                         global const char* target, const ulong target_offset,
                         global const char* alphas, const ulong alphas_offset,
                         global const char* betas, const ulong betas_offset,
                         global const char* nlls, const ulong nlls_offset,
                         global const char* grad_out, const ulong grad_out_offset,
                         global char* grads, const ulong grads_offset, const CtcArguments args,
                         global int* asserts) {
  const uint i = get_global_id(0);
  if (i >= args.samples * args.time) return;
  const uint k = i / args.time;
  const uint t = i - k * args.time;
  DECLARE_SAMPLE(k);
  global real* grad =
      (global real*)(grads + grads_offset) + ((ulong)t * args.batch + n) * args.classes;
  if (t >= length || IS_ZEROED(n)) {
    for (uint c = 0; c < args.classes; c++) grad[c] = 0;
    return;
  }
  global const real* alpha = ALPHA_OF(alphas + alphas_offset) + (ulong)t * args.width;
  global const real* beta = ALPHA_OF(betas + betas_offset) + (ulong)t * args.width;
  for (uint c = 0; c < args.classes; c++) grad[c] = -(real)INFINITY;
  for (uint s = width; s-- > 0;) {
    const long label = LABEL(s);
    if (label >= 0) grad[label] = log_add(grad[label], alpha[s] + beta[s]);
  }
  const real nll = ((global const real*)(nlls + nlls_offset))[n];
  const real flowing = LOAD(E, grad_out + grad_out_offset, (ulong)n * args.grad_out_stride);
  for (uint c = 0; c < args.classes; c++) {
    const real log_prob = LOG_PROB(t, c);
    grad[c] = (exp(log_prob) - exp(grad[c] + nll - log_prob)) * flowing;
  }
}
