// out(t) = sum of 256 words of the table     uint32
//
// bytes   16 a read: 1 GiB in all, whatever the table's size
// flops   0
// limit   bandwidth of the level that holds the table; of sectors of 32 bytes, and of lines in L1, where the
//         pattern uses a part of them
// idea    ordinary loads, whose lines L1 keeps: it answers where a table fits, or where a pattern comes back
//         to a line soon
#include "reads.cuh"

namespace fathom::lab::memory_bandwidth {
namespace {

// Volatile, and all four words: the compiler must not drop, combine or narrow the loads.
struct Load {
  __device__ uint32_t operator()(const uint4* from) const {
    uint4 v;
    asm volatile("ld.global.ca.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from));
    return v.x;
  }
};

}  // namespace

void through_l1(const Reads& p, StreamRef stream) { launch(p, Load{}, stream); }

}  // namespace fathom::lab::memory_bandwidth
