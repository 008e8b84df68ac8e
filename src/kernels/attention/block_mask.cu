// blocks(t, n), counts(t): the key blocks that a tile of query rows sees
//
// bytes   4 for each listed block
// flops   none; the mask of every pair of a row and a key, once for all heads and calls
// limit   instruction issue: 16384 x 16384 pairs are 100 us
// idea    a thread has a row and tries its keys, block after block. Works for every mask
#include "cuda/check.h"
#include "kernels/attention/flash_attention.h"

namespace fathom::kernels {
namespace {

constexpr int kMostRows = attention_tile_rows(64), kWarpgroupRows = 64;

// CTA t: tile t, a thread each row.
template <class Mask>
__global__ void __launch_bounds__(kMostRows)
    block_mask_kernel(const BlockMask to, int block_keys, Mask mask, bool keep_all) {
  constexpr unsigned kSome = 1, kAll = 2;
  __shared__ unsigned char seen[2][kMostRows / 32];
  const AttentionTile tile = to.tiles(blockIdx.x);
  const int row = static_cast<int>(threadIdx.x), warp = row / 32;
  int count = 0;
  for (int block = 0; block * block_keys < tile.keys; ++block) {
    bool some = false, all = true;
    if (row < tile.rows)
      for (int key = block * block_keys; key < (block + 1) * block_keys; ++key) {
        const bool visible =
            key < tile.keys && mask(Pair{tile.position + row, key, tile.first_key, tile.sequence});
        some |= visible;
        all &= visible;
      }
    some = __any_sync(~0u, some);
    all  = __all_sync(~0u, all);
    if (row % 32 == 0)
      seen[block % 2][warp] = static_cast<unsigned char>((some ? kSome : 0) | (all ? kAll : 0));
    // `seen` is complete. Thread 0 has read it before the barrier of the next block, and it is written again
    // after that one.
    __syncthreads();
    if (row > 0) continue;
    uint32_t entry = 0;
    for (int w = 0; w < static_cast<int>(blockDim.x) / kWarpgroupRows; ++w) {
      const unsigned upper = seen[block % 2][2 * w], lower = seen[block % 2][2 * w + 1];
      BlockKind kind = BlockKind::empty;
      if (keep_all ? w * kWarpgroupRows < tile.rows : ((upper | lower) & kSome) != 0)
        kind = (upper & lower & kAll) != 0 && !keep_all ? BlockKind::full : BlockKind::partial;
      entry |= static_cast<uint32_t>(kind) << (24 + 2 * w);
    }
    if (entry != 0) to.blocks(blockIdx.x, count++) = entry | static_cast<uint32_t>(block);
  }
  if (row == 0) to.counts(blockIdx.x) = count;
}

}  // namespace

template <class Mask>
void build_block_mask(const BlockMask& to, int head_size, const Mask& mask, KeptBlocks kept,
                      StreamRef stream) {
  FATHOM_EXPECT(head_size == 64 || head_size == 128, "flash_attention: heads have 64 or 128 dimensions");
  FATHOM_EXPECT(to.blocks.extent(0) == to.tiles.extent(0) && to.counts.extent(0) == to.tiles.extent(0),
                "flash_attention: a block mask has a list and a count for each tile");
  FATHOM_EXPECT(to.blocks.extent(1) < 1 << 24, "flash_attention: the number of a key block has 24 bits");
  if (to.tiles.extent(0) == 0) return;
  block_mask_kernel<<<static_cast<unsigned>(to.tiles.extent(0)), attention_tile_rows(head_size), 0, stream>>>(
      to, attention_block_keys(head_size), mask, kept == KeptBlocks::all);
  FATHOM_LAUNCHED();
}

template void build_block_mask(const BlockMask&, int, const EveryKey&, KeptBlocks, StreamRef);
template void build_block_mask(const BlockMask&, int, const Causal&, KeptBlocks, StreamRef);
template void build_block_mask(const BlockMask&, int, const SlidingWindow&, KeptBlocks, StreamRef);
template void build_block_mask(const BlockMask&, int, const PrefixLm&, KeptBlocks, StreamRef);
template void build_block_mask(const BlockMask&, int, const CausalDocument&, KeptBlocks, StreamRef);
template void build_block_mask(const BlockMask&, int, const BlockSparse&, KeptBlocks, StreamRef);

}  // namespace fathom::kernels
