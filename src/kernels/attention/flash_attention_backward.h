// The backward pass of attention on a Hopper GPU, without a matrix of scores in memory: dq, dk and dv
// (kernels/attention/attention_backward.h has the formula).
//
// bytes   2 D (5 Hq + 4 Hkv) T and 8 Hq T: q, out, d_out, dq; k, v, dk, dv; log-sum-exps. With atomics fp32
//         sums of dq too
// flops   10 D for each query head and pair of a query and a key in its reach, 2.5 times the forward pass;
//         14 D where dq has its own pass
// limit   the tensor cores
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/view.h"
#include "cuda/stream.h"

namespace fathom::kernels {

// All are contiguous, on the GPU, aligned to 16 bytes. D is 64 or 128, Hq a multiple of Hkv.
struct FlashAttentionBackward {
  View<const bf16, 3> q, k, v, out, d_out;  // [T, Hq, D] and, of k and v, [T, Hkv, D]
  View<const float, 2> lse;                 // [Hq, T]: natural logarithms of sums of exp(scale q . k)
  float scale;                              // positive
  bool causal;
  View<bf16, 3> dq, dk, dv;  // written
};

// How a row of dq is summed over blocks of keys.
enum class DqSums {
  atomic,        // by atomic additions in fp32, in any order: the last bits differ from run to run
  deterministic  // by one CTA, which computes the scores a second time
};

// Workspaces have a whole number of these rows.
inline constexpr int64_t kBackwardRows = 128;

// Floats of workspace, aligned to 16 bytes: for each row its log-sum-exp, d_out . out, and sums of dq.
inline int64_t flash_attention_backward_workspace(int64_t tokens, int64_t query_heads, int64_t head_dim,
                                                  DqSums sums) {
  const int64_t rows = (tokens + kBackwardRows - 1) / kBackwardRows * kBackwardRows;
  return rows * query_heads * (2 + (sums == DqSums::atomic ? head_dim : 0));
}

void flash_attention_backward(const FlashAttentionBackward& a, DqSums sums, View<float, 1> workspace,
                              StreamRef stream);

}  // namespace fathom::kernels
