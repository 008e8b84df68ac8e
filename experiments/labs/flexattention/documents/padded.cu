// out(t, h) = softmax(scale q(t, h) k') v over the token's document up to itself        bf16
//
// bytes   64 D a padded row for q and out, and as much to copy; blocks of k and v from L2
// flops   32 D L^2 for each document, where the longest has L tokens
// limit   the tensor cores, and DRAM bandwidth for the copies
// idea    what a batch of tensors of one shape makes of documents: each is padded to the longest, and causal
//         attention computes the padding too. Its inputs are copied into that shape, its results back
#include "cuda/check.h"
#include "experiments/labs/flexattention/packed_attention.h"

namespace fathom::lab::flexattention {
namespace {

constexpr int kThreads = 128;

// A row of `from`, or zeros, to a row of `to`. Both are whole numbers of 16-byte vectors.
__device__ void copy_row(View<const bf16, 3> from, int64_t source, View<bf16, 3> to, int64_t target,
                         bool exists) {
  const int vectors = static_cast<int>(to.stride(0)) * 2 / 16;
  for (int i = static_cast<int>(threadIdx.x); i < vectors; i += kThreads)
    reinterpret_cast<uint4*>(&to(target, 0, 0))[i] =
        exists ? reinterpret_cast<const uint4*>(&from(source, 0, 0))[i] : uint4{};
}

// CTA (x, y): row x of document y.
__global__ void __launch_bounds__(kThreads) pad_kernel(const __grid_constant__ PackedDocuments p) {
  const int64_t row = p.bounds(blockIdx.y) + blockIdx.x, padded = blockIdx.y * p.longest + blockIdx.x;
  const bool exists = row < p.bounds(blockIdx.y + 1);
  copy_row(p.q, row, p.padded_q, padded, exists);
  copy_row(p.k, row, p.padded_k, padded, exists);
  copy_row(p.v, row, p.padded_v, padded, exists);
}

__global__ void __launch_bounds__(kThreads) unpad_kernel(const __grid_constant__ PackedDocuments p) {
  const int64_t row = p.bounds(blockIdx.y) + blockIdx.x, padded = blockIdx.y * p.longest + blockIdx.x;
  if (row >= p.bounds(blockIdx.y + 1)) return;
  copy_row(p.padded_out, padded, p.out, row, true);
  if (threadIdx.x < kHeads) p.lse(threadIdx.x, row) = p.padded_lse(threadIdx.x, padded);
}

}  // namespace

Call padded(const PackedDocuments& p, StreamRef stream) {
  const auto lists = listed(p.padded_tiles, p.longest, p.head_size(), kernels::Causal{},
                            kernels::KeptBlocks::visible, stream);
  return [lists](const PackedDocuments& q, StreamRef into) {
    if (q.longest == 0) return;
    const dim3 grid(static_cast<unsigned>(q.longest), static_cast<unsigned>(q.documents));
    pad_kernel<<<grid, kThreads, 0, into>>>(q);
    FATHOM_LAUNCHED();
    const kernels::RaggedAttention a{.q     = q.padded_q,
                                     .k     = q.padded_k,
                                     .v     = q.padded_v,
                                     .sinks = {},
                                     .scale = q.scale(),
                                     .out   = q.padded_out,
                                     .lse   = q.padded_lse};
    attend(a, lists(q.padded_tiles), kernels::Causal{}, kernels::PlainScore{}, into);
    unpad_kernel<<<grid, kThreads, 0, into>>>(q);
    FATHOM_LAUNCHED();
  };
}

}  // namespace fathom::lab::flexattention
