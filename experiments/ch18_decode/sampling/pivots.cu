// ids(r) = a draw from softmax(logits(r, .) / temperature), cut to its top-p
//
// bytes   4 R V read, some 7 times: once for the largest logit, for each of 4 or 5 looks, and for the draw
// flops   some 40 R V
// limit   memory bandwidth. H200: 64 rows of V = 201088 are 51 MB, 11 us at 4.55 TB/s. A CTA reads its row of
//         0.8 MB from L2 at 64 bytes a clock: 7 us each time
// idea    no sort: top-p needs the threshold logit, not the order of the tokens above it. A CTA for each row.
//         Each look counts the tokens from 8 pivots on and adds their weights; the threshold lies between two
//         pivots, and the next look cuts that interval into 8, until it holds one token
// source  flashinfer.ai, "Sorting-Free GPU Kernels for LLM Sampling", 2025 (which draws before it knows the
//         threshold, and rejects)
#include "cuda/check.h"
#include "pivots.cuh"

namespace fathom::lab::sampling {
namespace {

constexpr int kWarps = 32, kThreads = 32 * kWarps;

struct Shared {
  Total of_warps[2][kWarps][kPivots];  // of two looks, by turns
  float maxima[kWarps];
};

// Lane j the row's total from pivot j on, added up in the same order by every warp.
__device__ Total over_row(Shared& shared, int turn, const Total& of_warp) {
  auto& of_warps = shared.of_warps[turn % 2];
  if (lane() < kPivots) of_warps[warp()][lane()] = of_warp;
  __syncthreads();  // of_warps is complete
  Total sum;
  for (int w = lane() / kPivots; w < kWarps; w += 32 / kPivots) {
    sum.weight += of_warps[w][lane() % kPivots].weight;
    sum.count += of_warps[w][lane() % kPivots].count;
  }
#pragma unroll
  for (int other = kPivots; other < 32; other *= 2) {
    sum.weight += __shfl_xor_sync(~0u, sum.weight, other);
    sum.count += __shfl_xor_sync(~0u, sum.count, other);
  }
  return sum;
}

// Grid: rows.
__global__ void __launch_bounds__(kThreads, 1)
    pivots_kernel(const float* all_logits, const kernels::SamplingRow* rules, int32_t* ids, int vocabulary) {
  __shared__ __align__(16) unsigned char memory[sizeof(Shared)];
  auto& shared                     = *reinterpret_cast<Shared*>(memory);
  const float* row                 = all_logits + int64_t{blockIdx.x} * vocabulary;
  const kernels::SamplingRow& rule = rules[blockIdx.x];
  const int each = (vocabulary / 4 + kWarps - 1) / kWarps, first = min(each * warp(), vocabulary / 4);
  const Slice slice{reinterpret_cast<const float4*>(row) + first, 4 * first,
                    min(each, vocabulary / 4 - first)};

  const float of_warp = max_of(slice);
  if (lane() == 0) shared.maxima[warp()] = of_warp;
  __syncthreads();  // maxima are complete
  float max = -INFINITY;
  for (const float m : shared.maxima) max = fmaxf(max, m);
  const Weight weight{max, fminf(1.44269504f / rule.temperature, FLT_MAX)};

  int turn = 0;
  Cut cut;
  if (rule.top_p < 1) {
    Interval threshold{.end = nextafterf(max, INFINITY)};
    double wanted = 0;
    float pivot   = first_pivot(max, rule.temperature);
    do {
      Total from_pivot = over_row(shared, turn++, total_from(slice, pivot, threshold.end, weight));
      from_pivot.weight += threshold.from_end.weight;
      from_pivot.count += threshold.from_end.count;
      if (wanted == 0) wanted = rule.top_p * __shfl_sync(~0u, from_pivot.weight, 0);
      threshold.narrow(pivot, from_pivot, wanted);
      pivot = threshold.pivot();
    } while (!threshold.is_final());
    cut = cut_at(threshold, wanted, weight, row, vocabulary);
  }

  const Total whole = over_row(shared, turn, {weight_of(slice, cut, weight), 0});
  double target     = uniform(rule) * whole.weight;
  if (locate(shared.of_warps[turn % 2][lane()][0].weight, target) != warp()) return;
  const int id = draw_from(slice, cut, weight, target);
  if (lane() == 0) ids[rule.place] = id;
}

}  // namespace

void pivots(const Choice& p, StreamRef stream) {
  if (p.logits.size() == 0) return;
  pivots_kernel<<<static_cast<unsigned>(p.rows), kThreads, 0, stream>>>(
      p.logits.data(), p.rules.data(), p.ids.data(), static_cast<int>(p.vocabulary));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::sampling
