// out = A x                                  M x K, bf16 matrix, fp32 vector
//
// bytes   2 M K
// flops   2 M K
// limit   DRAM bandwidth
// idea    A is cached in L2 only, by .cg: the older way to bypass L1, with a C++ intrinsic, __ldcg
#include "gemv.cuh"

namespace fathom::lab::cache_hint_loads {
namespace {

struct CacheGlobal {
  static constexpr int kRowsAhead = 0;
  static __device__ uint2 four(const uint2* from) {
    uint2 v;
    asm("ld.global.cg.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(from));
    return v;
  }
};

}  // namespace

void cache_global(const Gemv& p, StreamRef stream) { launch<CacheGlobal>(p, stream); }

}  // namespace fathom::lab::cache_hint_loads
