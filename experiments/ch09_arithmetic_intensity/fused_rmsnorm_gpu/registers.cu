// y = x * weight / rms(x)                    T x D, bf16, computed in fp32
//
// bytes   4 T D    and 4 T D move
// flops   4 T D
// limit   DRAM bandwidth. H200: 8192 x 8192 moves 268 MB, 67 us at the 3.98 TB/s of a copy
// idea    a thread loads its whole share of the row at once, 4 times 16 bytes, and keeps it: nothing is read
//         again. DRAM needs 23 KiB in flight on each multiprocessor, which two of the five resident rows
//         provide. The weights stay in L1, because x bypasses it
#include "registers.cuh"

#include "rmsnorm.h"

namespace fathom::lab::fused_rmsnorm_gpu {

void registers(const RmsNorm& p, StreamRef stream) { rmsnorm(p.x, p.weight, kEpsilon, p.y, stream); }

}  // namespace fathom::lab::fused_rmsnorm_gpu
