// ids(r) = argmax over v of logits(r, v) / temperature + G(r, v)
//
// bytes   12 R V: logits read, sums written and read
// flops   some 40 R V: 20 for Philox, the rest for two logarithms
// limit   memory bandwidth; where the sums stay in L2 (50 MB), arithmetic
// idea    two kernels, as a framework does it: one adds the noise, and the engine's op takes the argmax
#include "gumbel.cuh"

namespace fathom::lab::gumbel_max {
namespace {

// Grid: (CTAs of a row, rows).
__global__ void __launch_bounds__(256)
    add_noise_kernel(const float* logits, const kernels::SamplingRow* rules, float* sums, int vocabulary) {
  const int64_t r                  = blockIdx.y;
  const kernels::SamplingRow& rule = rules[r];
  const float inverse              = 1 / rule.temperature;
  const auto* from                 = reinterpret_cast<const float4*>(logits + r * vocabulary);
  auto* to                         = reinterpret_cast<float4*>(sums + r * vocabulary);
  for (int i = static_cast<int>(blockIdx.x * 256 + threadIdx.x); i < vocabulary / 4;
       i += static_cast<int>(gridDim.x) * 256) {
    const float4 v    = from[i];
    const uint4 words = gumbel_words(rule, i);
    to[i]             = {perturbed(v.x, inverse, gumbel(words.x)), perturbed(v.y, inverse, gumbel(words.y)),
                         perturbed(v.z, inverse, gumbel(words.z)), perturbed(v.w, inverse, gumbel(words.w))};
  }
}

}  // namespace

void noise_in_memory(const Draw& p, StreamRef stream) {
  if (p.logits.size() == 0) return;
  const auto ctas = static_cast<unsigned>((p.vocabulary / 4 + 1023) / 1024);  // four vectors a thread
  add_noise_kernel<<<dim3(ctas, static_cast<unsigned>(p.rows)), 256, 0, stream>>>(
      p.logits.data(), p.rules.data(), p.sums.data(), static_cast<int>(p.vocabulary));
  FATHOM_CUDA(cudaGetLastError());
  kernels::sample_tokens({p.sums.data(), {p.rows, p.vocabulary}}, p.greedy, p.ids, stream);
}

}  // namespace fathom::lab::gumbel_max
