// out(t, h) = softmax(scale q(t, h) k' + bias) v over the token's document up to itself        bf16
//
// bytes   64 D a token for q and out; the visible blocks of k and v for every tile of rows and head, from L2
// flops   64 D for each pair of a token and one it sees, rounded up to blocks
// limit   the tensor cores
// idea    the lists have the blocks that a tile of rows sees; blocks across a document's edge are skipped,
// and
//         blocks that are seen whole are not masked
#include "experiments/labs/flexattention/packed_attention.h"

namespace fathom::lab::flexattention {

Call block_sparse(const PackedDocuments& p, StreamRef stream) {
  const auto lists =
      listed(p.tiles, p.tokens(), p.head_size(), mask_of(p), kernels::KeptBlocks::visible, stream);
  return [lists](const PackedDocuments& q, StreamRef into) { attend_documents(q, lists(q.tiles), into); };
}

}  // namespace fathom::lab::flexattention
