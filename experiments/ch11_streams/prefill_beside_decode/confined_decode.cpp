// prefill = x w^T, decode = u v        bf16, independent of each other
//
// bytes   2 R K of u, and of the product x, w and its result once
// flops   2 T N K, by the tensor cores, and 2 R K
// limit   the tensor cores, if decode costs nothing. H200: 2048 x 8192 x 4096 are 137 GFLOP, some 0.2 ms;
//         decode reads 268 MB, 60 us at 4.5 TB/s
// idea    decode has 32 blocks: it stays on at most 32 multiprocessors, for longer, and leaves the others
//         to the product. A quarter of the multiprocessors can use more than a quarter of memory's bandwidth,
//         if each keeps enough bytes in flight (decode_rows.cu)
#include "beside.h"

namespace fathom::lab::prefill_beside_decode {
namespace {

constexpr int kBlocks = 32;

}  // namespace

Call confined_decode(const Phases& p, StreamRef) { return beside(p, SideStreams::Priority::high, kBlocks); }

}  // namespace fathom::lab::prefill_beside_decode
