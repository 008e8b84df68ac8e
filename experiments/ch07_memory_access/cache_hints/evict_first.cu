// out(i, d) = table(id(i), d)                       n x 64 fp32
//
// bytes   260 n + the table: 4 n read + 256 n written. Each row of the table that L2 has forgotten costs
//         256 more
// flops   0
// limit   DRAM bandwidth. H200: n = 2^22 and 32 MiB move 1.12 GB, 0.28 ms at 3.98 TB/s
// idea    the same hint as an operand of the store: an L2 policy (evict_first, for all of the accesses). A
//         policy can also be for a fraction of them, or the opposite (evict_last)
#include "expand_rows.cuh"

namespace fathom::lab::cache_hints {
namespace {

struct Access {
  __device__ static float4 load(const float4* from) { return __ldg(from); }
  __device__ static void store(float4* to, float4 v) {
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile("st.global.L2::cache_hint.v4.f32 [%0], {%1, %2, %3, %4}, %5;" ::"l"(to), "f"(v.x), "f"(v.y),
                 "f"(v.z), "f"(v.w), "l"(policy)
                 : "memory");
  }
};

}  // namespace

void evict_first(const Expand& p, StreamRef stream) { expand_rows<Access>(p, stream); }

}  // namespace fathom::lab::cache_hints
