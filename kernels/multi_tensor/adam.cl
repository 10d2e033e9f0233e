// Adam and AdamW (Loshchilov & Hutter, "Decoupled weight decay regularization") over lists of
// tensors.
//
// Operands: parameters, gradients, exp_avg, exp_avg_sq, with AMSGRAD max_exp_avg_sq, then the steps
// (one float each). DECOUPLED: weight decay shrinks the parameter instead of adding to the
// gradient.
#include "include/item_by_item.clh"
#include "multi_tensor/optimizer.clh"

#ifndef AMSGRAD
#define AMSGRAD 0
#endif
#ifndef DECOUPLED
#define DECOUPLED 0
#endif

// 1 - beta^step. With the logarithm from the host no digits are lost where beta is close to 1,
// which a float power would.
static inline real bias_correction(real log_beta, real step) {
  return step == 0 ? (real)0 : -expm1(step * log_beta);
}

#define ADAM_STEP(width, i)                                 \
  TYPEV(C, width) p = LOADV_AS(C, E, width, param, i);      \
  LOAD_GRADIENT(width, i, g);                               \
  if (DECOUPLED) {                                          \
    p -= lr * args.weight_decay * p;                        \
  } else if (args.weight_decay != 0) {                      \
    g += args.weight_decay * p;                             \
  }                                                         \
  TYPEV(C, width) m = LOADV_AS(C, E, width, exp_avg, i);    \
  TYPEV(C, width) v = LOADV_AS(C, E, width, exp_avg_sq, i); \
  m += args.complement1 * (g - m);                          \
  v = args.beta2 * v + args.complement2 * g * g;            \
  STOREV_FROM(E, C, width, exp_avg, i, m);                  \
  STOREV_FROM(E, C, width, exp_avg_sq, i, v);               \
  KEEP_LARGEST(width, i);                                   \
  p -= step_size * m / (sqrt(v) / root + args.eps);         \
  STOREV_FROM(E, C, width, param, i, p)

// A NaN in either stays one.
#if AMSGRAD
#define KEEP_LARGEST(width, i)                                              \
  const TYPEV(C, width) largest = LOADV_AS(C, E, width, max_exp_avg_sq, i); \
  v = ((largest > v) | (largest != largest)) ? largest : v;                 \
  STOREV_FROM(E, C, width, max_exp_avg_sq, i, v)
#else
#define KEEP_LARGEST(width, i)
#endif

kernel ITEM_BY_ITEM void adam_tensors(OPTIMIZER_PARAMETERS, const AdamArguments args) {
  OPTIMIZER_BEGIN();
  global char* param = PLACE(0);
  global char* grad = PLACE(1);
  global char* exp_avg = PLACE(2);
  global char* exp_avg_sq = PLACE(3);
#if AMSGRAD
  global char* max_exp_avg_sq = PLACE(4);
#endif
  const real step = *(global const float*)PLACE(OPERANDS - 1);
  const real step_size = lr / bias_correction(args.log_beta1, step);
  const real root = sqrt(bias_correction(args.log_beta2, step));
  FOR_EACH_VECTOR(ADAM_STEP);
}
