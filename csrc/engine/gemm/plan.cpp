#include "engine/gemm/plan.h"

#include <utility>

namespace ocl::gemm {

Plan Plan::transposed() const {
  Plan t = *this;
  std::swap(t.a, t.b);
  std::swap(t.a_tag, t.b_tag);
  std::swap(t.a_size, t.b_size);
  Arguments& p = t.problem;
  std::swap(p.m, p.n);
  std::swap(p.row0, p.column0);
  p.flags ^= kTransposed;
  std::swap(p.a, p.b);
  std::swap(p.a_part, p.b_part);
  for (Strides* s : {&p.a, &p.b, &p.c, &p.out}) std::swap(s->row, s->column);
  const uint32_t conjugates = problem.flags & (kConjugateA | kConjugateB);
  p.flags &= ~(kConjugateA | kConjugateB);
  if (conjugates & kConjugateA) p.flags |= kConjugateB;
  if (conjugates & kConjugateB) p.flags |= kConjugateA;
  return t;
}

}  // namespace ocl::gemm
