// Stochastic gradient descent over lists of tensors.
//
// Operands: parameters, gradients, with MOMENTUM momentum buffers. NESTEROV; FIRST: the buffers
// start as the gradient.
#include "include/item_by_item.clh"
#include "multi_tensor/optimizer.clh"

#ifndef MOMENTUM
#define MOMENTUM 0
#endif
#ifndef NESTEROV
#define NESTEROV 0
#endif
#ifndef FIRST
#define FIRST 0
#endif

#if FIRST
#define NEW_BUFFER(width, i) g
#else
#define NEW_BUFFER(width, i) (args.momentum * LOADV_AS(C, E, width, buffer, i) + args.undamped * g)
#endif
#if MOMENTUM
#define ADD_MOMENTUM(width, i)                    \
  const TYPEV(C, width) b = NEW_BUFFER(width, i); \
  STOREV_FROM(E, C, width, buffer, i, b);         \
  g = NESTEROV ? g + args.momentum * b : b
#else
#define ADD_MOMENTUM(width, i)
#endif

#define SGD_STEP(width, i)                                \
  TYPEV(C, width) p = LOADV_AS(C, E, width, param, i);    \
  LOAD_GRADIENT(width, i, g);                             \
  if (args.weight_decay != 0) g += args.weight_decay * p; \
  ADD_MOMENTUM(width, i);                                 \
  p -= lr * g;                                            \
  STOREV_FROM(E, C, width, param, i, p)

kernel ITEM_BY_ITEM void sgd_tensors(OPTIMIZER_PARAMETERS, const SgdArguments args) {
  OPTIMIZER_BEGIN();
  global char* param = PLACE(0);
  global char* grad = PLACE(1);
#if MOMENTUM
  global char* buffer = PLACE(2);
#endif
  FOR_EACH_VECTOR(SGD_STEP);
}
