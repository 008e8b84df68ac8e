// out(t, h) = softmax(scale q(t, h) k' + bias) v over the token's document up to itself        bf16
//
// bytes   as block_sparse; the lists of blocks are a few KiB
// flops   as block_sparse, and the mask of every pair of tokens, once for all heads
// limit   the tensor cores
// idea    documents change from batch to batch: a call lists the blocks, then attends. Two launches
#include "lists_each_call.h"

#include "experiments/labs/flexattention/packed_attention.h"

namespace fathom::lab::flexattention {

void lists_each_call(const PackedDocuments& p, StreamRef stream) {
  const kernels::BlockMask blocks{.tiles = as_tiles(p.tiles), .blocks = p.blocks, .counts = p.counts};
  kernels::build_block_mask(blocks, p.head_size(), mask_of(p), kernels::KeptBlocks::visible, stream);
  attend_documents(p, blocks, stream);
}

}  // namespace fathom::lab::flexattention
