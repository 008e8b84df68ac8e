// ids(r) = argmax over v of logits(r, v) / temperature + G(r, v)
//
// bytes   4 R V, read once
// flops   some 40 R V: 20 for Philox, the rest for two logarithms
// limit   memory bandwidth, or arithmetic: 64 rows of V = 201088 are 51 MB and 13 million noises
// idea    a cluster of 8 CTAs has a row; every thread draws the noise of its tokens in registers and keeps
// the
//         best, and one reduction follows. No maximum of the row, no sum of weights and no search come first
#include "gumbel.cuh"

namespace fathom::lab::gumbel_max {
namespace {

__global__ void __launch_bounds__(kThreads, 1)
    one_pass_kernel(const float* logits, const kernels::SamplingRow* rules, int32_t* ids, int vocabulary) {
  const int64_t r                 = blockIdx.x / kCtas;
  const kernels::SamplingRow rule = rules[r];
  const float inverse             = 1 / rule.temperature;
  const auto* row                 = reinterpret_cast<const float4*>(logits + r * vocabulary);
  uint64_t best                   = 0;
#pragma unroll 2
  for (int i = static_cast<int>(blockIdx.x % kCtas * kThreads + threadIdx.x); i < vocabulary / 4;
       i += kCtas * kThreads) {
    const float4 v    = row[i];
    const uint4 words = gumbel_words(rule, i);
#pragma unroll
    for (int c = 0; c < 4; ++c)
      best = max(best, key_of(perturbed(at(v, c), inverse, gumbel(at(words, c))), 4 * i + c));
  }
  store_argmax(best, ids[rule.place]);
}

}  // namespace

void one_pass(const Draw& p, StreamRef stream) { launch_in_clusters(one_pass_kernel, p, stream); }

}  // namespace fathom::lab::gumbel_max
