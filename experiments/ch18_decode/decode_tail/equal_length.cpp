// The op with the same number of pieces of each sequence and key-value head, which FlashAttention's heuristic
// chooses by the longest context and by how many CTAs run at once.
#include "cuda/multiprocessors.h"
#include "tail.h"

namespace fathom::lab::decode_tail {

void equal_length(const DecodeTail& p, StreamRef stream) {
  const int64_t items = p.q.extent(0) * p.k.extent(1);
  const int splits =
      kernels::paged_decode_splits(items, ragged_decode::pages_for(p.longest), multiprocessors());
  FATHOM_EXPECT(splits == 1 || items * splits <= ragged_decode::kMostPieces,
                "equal_length: the workspace holds kMostPieces pieces");
  kernels::paged_decode_attention(p.op(splits), kernels::PlainScore{}, stream);
}

}  // namespace fathom::lab::decode_tail
