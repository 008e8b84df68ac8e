// ids(r) = argmax over v of logits(r, v) / temperature + G(r, v)
//
// bytes   4 R V, read once
// flops   3 R V, and 25 for each token that could still win by the largest noise there is
// limit   memory bandwidth
// idea    a thread knows the best sum of its tokens so far. Four tokens whose largest logit cannot reach it
//         with the largest Gumbel number (22.9) get no Philox. Of the others, G <= -ln(1 - u), one
//         approximate logarithm, says who gets the exact sum. A warp shares its lower bound of the best sum
#include "gumbel.cuh"

namespace fathom::lab::gumbel_max {
namespace {

constexpr int kLoads = 4;  // vectors that a thread loads at once
// Above the error of lg2.approx and of the sums beside it: logits / temperature are below 2^12 in size.
constexpr float kMargin = 0.01f;

__global__ void __launch_bounds__(kThreads, 1)
    screened_kernel(const float* logits, const kernels::SamplingRow* rules, int32_t* ids, int vocabulary) {
  const int64_t r                 = blockIdx.x / kCtas;
  const kernels::SamplingRow rule = rules[r];
  const float inverse             = 1 / rule.temperature;
  const auto* row                 = reinterpret_cast<const float4*>(logits + r * vocabulary);
  const int vectors               = vocabulary / 4;
  uint64_t best                   = 0;
  float least                     = -INFINITY;  // a lower bound of the row's best sum
  // All lanes of a warp make the same rounds, because they share `least`.
  for (int base = static_cast<int>(blockIdx.x % kCtas * kThreads + threadIdx.x / 32 * 32); base < vectors;
       base += kLoads * kCtas * kThreads) {
    const int first = base + static_cast<int>(threadIdx.x % 32);
    float4 v[kLoads];
    float most = -INFINITY;
#pragma unroll
    for (int j = 0; j < kLoads; ++j) {
      const int i = first + j * kCtas * kThreads;
      v[j]        = i < vectors ? row[i] : float4{-INFINITY, -INFINITY, -INFINITY, -INFINITY};
      most        = fmaxf(most, fmaxf(fmaxf(v[j].x, v[j].y), fmaxf(v[j].z, v[j].w)));
    }
    // The largest logit's sum is at least -ln(-ln 2^-33) = -3.14 above it: a bound before any noise.
    least = fmaxf(least, __fmaf_rn(most, inverse, -3.2f));
#pragma unroll
    for (int other = 16; other > 0; other /= 2) least = fmaxf(least, __shfl_xor_sync(~0u, least, other));
#pragma unroll
    for (int j = 0; j < kLoads; ++j) {
      const float top = fmaxf(fmaxf(v[j].x, v[j].y), fmaxf(v[j].z, v[j].w));
      if (__fmaf_rn(top, inverse, kMostGumbel + kMargin) < least || top == -INFINITY) continue;
      const int i       = first + j * kCtas * kThreads;
      const uint4 words = gumbel_words(rule, i);
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const float most_noise = -0.693147181f * __log2f(rest_of(at(words, c)));
        if (__fmaf_rn(at(v[j], c), inverse, most_noise + kMargin) < least) continue;
        const float sum = perturbed(at(v[j], c), inverse, gumbel(at(words, c)));
        best            = max(best, key_of(sum, 4 * i + c));
        least           = fmaxf(least, sum);
      }
    }
  }
  store_argmax(best, ids[rule.place]);
}

}  // namespace

void screened(const Draw& p, StreamRef stream) { launch_in_clusters(screened_kernel, p, stream); }

}  // namespace fathom::lab::gumbel_max
