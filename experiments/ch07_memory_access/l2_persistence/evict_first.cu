// out(i, d) = x(i, d) + table(id(i), d)                       n x 64 fp32
//
// bytes   516 n + the table: 260 n read + 256 n written. Each row of the table that L2 has forgotten costs
//         256 more
// flops   64 n
// limit   DRAM bandwidth. H200: n = 2^21 and 16 MiB move 1.10 GB, 0.28 ms at 3.98 TB/s
// idea    the streams are marked as not reused: their lines are evicted first, and the table stays without
//         any setting
#include "add_rows.cuh"

namespace fathom::lab::l2_persistence {
namespace {

struct EvictFirst {
  template <class T>
  __device__ static T load(const T* from) {
    return __ldcs(from);
  }
  __device__ static void store(float4* to, float4 v) { __stcs(to, v); }
};

}  // namespace

void evict_first(const Lookup& p, StreamRef stream) {
  const int n = static_cast<int>(p.x.extent(0));
  if (n == 0) return;
  const Pointers of = vectors_of(p);
  add_rows_kernel<EvictFirst>
      <<<blocks_for(n, kBlockRows), kThreads, 0, stream>>>(of.x, p.id.data(), of.table, of.out, n);
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::l2_persistence
