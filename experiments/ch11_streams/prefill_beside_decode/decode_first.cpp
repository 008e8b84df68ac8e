// prefill = x w^T, decode = u v        bf16, independent of each other
//
// bytes   2 R K of u, and of the product x, w and its result once
// flops   2 T N K, by the tensor cores, and 2 R K
// limit   the tensor cores, if decode costs nothing. H200: 2048 x 8192 x 4096 are 137 GFLOP, some 0.2 ms;
//         decode reads 268 MB, 60 us at 4.5 TB/s
// idea    the same with a high priority for decode, which a user waits for: its blocks get every place
//         that becomes free
#include "beside.h"

namespace fathom::lab::prefill_beside_decode {

Call decode_first(const Phases& p, StreamRef) { return beside(p, SideStreams::Priority::high, 0); }

}  // namespace fathom::lab::prefill_beside_decode
