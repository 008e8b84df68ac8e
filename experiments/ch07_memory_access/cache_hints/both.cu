// out(i, d) = table(id(i), d)                       n x 64 fp32
//
// bytes   260 n + the table: 4 n read + 256 n written. Each row of the table that L2 has forgotten costs
//         256 more
// flops   0
// limit   DRAM bandwidth. H200: n = 2^22 and 32 MiB move 1.12 GB, 0.28 ms at 3.98 TB/s
// idea    both hints: loads do not allocate in L1, stored lines leave L2 first
#include "expand_rows.cuh"

namespace fathom::lab::cache_hints {
namespace {

struct Access {
  __device__ static float4 load(const float4* from) {
    float4 v;
    asm("ld.global.nc.L1::no_allocate.L2::256B.v4.f32 {%0, %1, %2, %3}, [%4];"
        : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
        : "l"(from));
    return v;
  }
  __device__ static void store(float4* to, float4 v) { __stcs(to, v); }
};

}  // namespace

void both(const Expand& p, StreamRef stream) { expand_rows<Access>(p, stream); }

}  // namespace fathom::lab::cache_hints
