// The op of kernels/attention/flash_attention_backward.cu, with both ways to sum dq.
#include "gradients.h"
#include "kernels/attention/flash_attention_backward.h"

namespace fathom::lab::attention_backward_gpu {
namespace {

void run(const Gradients& p, kernels::DqSums sums, StreamRef stream) {
  kernels::flash_attention_backward({.q      = p.q,
                                     .k      = p.k,
                                     .v      = p.v,
                                     .out    = p.out,
                                     .d_out  = p.d_out,
                                     .lse    = p.lse,
                                     .scale  = p.scale,
                                     .causal = p.causal,
                                     .dq     = p.dq,
                                     .dk     = p.dk,
                                     .dv     = p.dv},
                                    sums, p.op_workspace, stream);
}

}  // namespace

void atomic_dq(const Gradients& p, StreamRef stream) { run(p, kernels::DqSums::atomic, stream); }
void deterministic_dq(const Gradients& p, StreamRef stream) {
  run(p, kernels::DqSums::deterministic, stream);
}

}  // namespace fathom::lab::attention_backward_gpu
