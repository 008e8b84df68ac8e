// out(t, h) = softmax(scale q(t, h) k' + bias) v over the token's document up to itself        bf16
//
// bytes   64 D a token for q and out; k and v once for every tile of rows and head, mostly from L2
// flops   64 D T^2, as dense_scores: masked blocks are computed too
// limit   the tensor cores: 2.8 ms at 790 TFLOP/s for 16384 tokens and D = 128
// idea    one kernel, scores in registers: kernels/attention/flash_attention.h with lists of all blocks
#include "experiments/labs/flexattention/packed_attention.h"

namespace fathom::lab::flexattention {

Call every_block(const PackedDocuments& p, StreamRef stream) {
  const auto lists = listed(p.tiles, p.tokens(), p.head_size(), mask_of(p), kernels::KeptBlocks::all, stream);
  return [lists](const PackedDocuments& q, StreamRef into) { attend_documents(q, lists(q.tiles), into); };
}

}  // namespace fathom::lab::flexattention
