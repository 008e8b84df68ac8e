// prefill = x w^T, decode = u v        bf16, independent of each other
//
// bytes   2 R K of u, and of the product x, w and its result once
// flops   2 T N K, by the tensor cores, and 2 R K
// limit   the tensor cores, if decode costs nothing. H200: 2048 x 8192 x 4096 are 137 GFLOP, some 0.2 ms;
//         decode reads 268 MB, 60 us at 4.5 TB/s
// idea    baseline: one after the other. The tensor cores wait for memory, then memory for the tensor
//         cores
#include "prefill.h"

namespace fathom::lab::prefill_beside_decode {

Call one_stream(const Phases& p, StreamRef) {
  return [prefill = planned_prefill(p)](const Phases& q, StreamRef stream) {
    decode_rows(q, 0, stream);
    prefill(q, stream);
  };
}

}  // namespace fathom::lab::prefill_beside_decode
