// silu(gate) * up and its gradients, an element for each work-item.
//
// Compile parameters: IN (the dtype's tag), ACC (that of the type computed in).
#include "include/dtype.clh"

#ifndef IN
#define IN f32
#endif
#ifndef ACC
#define ACC f32
#endif

// exp(-g) may be infinite: the quotient is 0 then.
#define SIGMOID(g) ((TYPE(ACC))(1) / ((TYPE(ACC))(1) + exp(-(g))))

kernel void swiglu(global char* out, const ulong out_offset, global const char* gate,
                   const ulong gate_offset, global const char* up, const ulong up_offset,
                   const ulong n) {
  const size_t i = get_global_id(0);
  if (i >= n) return;
  const TYPE(ACC) g = LOAD_AS(ACC, IN, gate + gate_offset, i);
  const TYPE(ACC) u = LOAD_AS(ACC, IN, up + up_offset, i);
  STORE_FROM(IN, ACC, out + out_offset, i, g * SIGMOID(g) * u);
}

kernel void swiglu_backward(global char* grad_gate, const ulong grad_gate_offset,
                            global char* grad_up, const ulong grad_up_offset,
                            global const char* grad, const ulong grad_offset,
                            global const char* gate, const ulong gate_offset, global const char* up,
                            const ulong up_offset, const ulong n) {
  const size_t i = get_global_id(0);
  if (i >= n) return;
  const TYPE(ACC) d = LOAD_AS(ACC, IN, grad + grad_offset, i);
  const TYPE(ACC) g = LOAD_AS(ACC, IN, gate + gate_offset, i);
  const TYPE(ACC) u = LOAD_AS(ACC, IN, up + up_offset, i);
  const TYPE(ACC) s = SIGMOID(g);
  STORE_FROM(IN, ACC, grad_gate + grad_gate_offset, i, d * u * s * (1 + g * (1 - s)));
  STORE_FROM(IN, ACC, grad_up + grad_up_offset, i, d * g * s);
}
