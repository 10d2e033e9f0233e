// Adagrad over lists of tensors.
//
// Operands: parameters, gradients, sums of squares, then the steps (one float each).
#include "include/item_by_item.clh"
#include "multi_tensor/optimizer.clh"

#define ADAGRAD_STEP(width, i)                                             \
  TYPEV(C, width) p = LOADV_AS(C, E, width, param, i);                     \
  LOAD_GRADIENT(width, i, g);                                              \
  if (args.weight_decay != 0) g += args.weight_decay * p;                  \
  const TYPEV(C, width) sum = LOADV_AS(C, E, width, state_sum, i) + g * g; \
  STOREV_FROM(E, C, width, state_sum, i, sum);                             \
  p -= decayed * g / (sqrt(sum) + args.eps);                               \
  STOREV_FROM(E, C, width, param, i, p)

kernel ITEM_BY_ITEM void adagrad_tensors(OPTIMIZER_PARAMETERS, const AdagradArguments args) {
  OPTIMIZER_BEGIN();
  global char* param = PLACE(0);
  global char* grad = PLACE(1);
  global char* state_sum = PLACE(2);
  const real step = *(global const float*)PLACE(OPERANDS - 1);
  const real decayed = lr / (1 + (step - 1) * args.lr_decay);
  FOR_EACH_VECTOR(ADAGRAD_STEP);
}
