// out(t, h) = softmax(scale q(t, h) k') v over the token's document up to itself        bf16
//
// bytes   64 D a token for q and out; the visible blocks of k and v for every tile of rows and head, from L2
// flops   64 D for each pair of a token and one it sees, rounded up to blocks
// limit   the tensor cores
// idea    no mask of documents: each is a sequence of a ragged batch, by offsets. Tiles of rows and blocks of
//         keys begin where a document begins, so that only blocks at the diagonal and at its end are masked
#include "experiments/labs/flexattention/packed_attention.h"

namespace fathom::lab::flexattention {

Call ragged(const PackedDocuments& p, StreamRef stream) {
  const auto lists =
      listed(p.its_tiles, p.longest, p.head_size(), kernels::Causal{}, kernels::KeptBlocks::visible, stream);
  return [lists](const PackedDocuments& q, StreamRef into) {
    attend(attention_of(q), lists(q.its_tiles), kernels::Causal{}, kernels::PlainScore{}, into);
  };
}

}  // namespace fathom::lab::flexattention
