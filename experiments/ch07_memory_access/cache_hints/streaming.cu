// out(i, d) = table(id(i), d)                       n x 64 fp32
//
// bytes   260 n + the table: 4 n read + 256 n written. Each row of the table that L2 has forgotten costs
//         256 more
// flops   0
// limit   DRAM bandwidth. H200: n = 2^22 and 32 MiB move 1.12 GB, 0.28 ms at 3.98 TB/s
// idea    st.global.cs, cache streaming: the written line is not expected to be used again, so it leaves L2
//         before any row of the table
#include "expand_rows.cuh"

namespace fathom::lab::cache_hints {
namespace {

struct Access {
  __device__ static float4 load(const float4* from) { return __ldg(from); }
  __device__ static void store(float4* to, float4 v) { __stcs(to, v); }
};

}  // namespace

void streaming(const Expand& p, StreamRef stream) { expand_rows<Access>(p, stream); }

}  // namespace fathom::lab::cache_hints
