// blocks(t, n), counts(t): the key blocks that a tile of query rows sees
//
// bytes   4 for each listed block
// flops   none; the mask of every pair of a row and a key, once for all heads and calls
// limit   instruction issue: some 7 instructions a pair; 16384 x 16384 pairs are 65 us of an H200
// idea    a thread has a row and tries its keys, block after block. Works for every mask
#include "cuda/check.h"
#include "kernels/attention/flash_attention.h"

namespace fathom::kernels {
namespace {

constexpr int kMostThreads = 1024, kFewestRows = 128, kMostRows = 192, kWarpgroupRows = 64;
static_assert(attention_tile_rows(64) <= kMostRows && attention_tile_rows(128) >= kFewestRows);

// CTA t: tile t; thread (x, y): row x, of every blockDim.y-th block.
template <class Mask>
__global__ void __launch_bounds__(kMostThreads)
    block_mask_kernel(const BlockMask to, int block_keys, Mask mask, bool keep_all) {
  constexpr unsigned kSome = 1, kAll = 2;
  __shared__ unsigned char seen[2][kMostThreads / kFewestRows][kMostRows / 32];
  const AttentionTile tile = to.tiles(blockIdx.x);
  const int row = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);
  const int parallel = static_cast<int>(blockDim.y), blocks = (tile.keys + block_keys - 1) / block_keys;
  int count = 0;
  for (int first = 0, buffer = 0; first < blocks; first += parallel, buffer ^= 1) {
    bool some = false, all = true;
    if (row < tile.rows)
      for (int key = (first + y) * block_keys; key < (first + y + 1) * block_keys; ++key) {
        const int inside = min(key, tile.keys - 1);
        const bool visible =
            (key == inside) & mask(Pair{tile.position + row, inside, tile.first_key, tile.sequence});
        some |= visible;
        all &= visible;
      }
    some = __any_sync(~0u, some);
    all  = __all_sync(~0u, all);
    if (row % 32 == 0)
      seen[buffer][y][row / 32] = static_cast<unsigned char>((some ? kSome : 0) | (all ? kAll : 0));
    // `seen` is complete. The first warp has read it before the next barrier, and it is written again after
    // that one.
    __syncthreads();
    if (y > 0 || row >= 32) continue;
    uint32_t entry = 0;  // of block first + row
    if (row < parallel && first + row < blocks)
      for (int w = 0; w < static_cast<int>(blockDim.x) / kWarpgroupRows; ++w) {
        const unsigned upper = seen[buffer][row][2 * w], lower = seen[buffer][row][2 * w + 1];
        BlockKind kind = BlockKind::empty;
        if (keep_all ? w * kWarpgroupRows < tile.rows : ((upper | lower) & kSome) != 0)
          kind = (upper & lower & kAll) != 0 && !keep_all ? BlockKind::full : BlockKind::partial;
        entry |= static_cast<uint32_t>(kind) << (24 + 2 * w);
      }
    const unsigned listed = __ballot_sync(~0u, entry != 0);
    if (entry != 0)
      to.blocks(blockIdx.x, count + __popc(listed & ((1u << row) - 1))) =
          entry | static_cast<uint32_t>(first + row);
    count += __popc(listed);
  }
  if (y == 0 && row == 0) to.counts(blockIdx.x) = count;
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
  const auto rows = static_cast<unsigned>(attention_tile_rows(head_size));
  block_mask_kernel<<<static_cast<unsigned>(to.tiles.extent(0)), dim3(rows, kMostThreads / rows), 0,
                      stream>>>(to, attention_block_keys(head_size), mask, kept == KeptBlocks::all);
  FATHOM_LAUNCHED();
}

template void build_block_mask(const BlockMask&, int, const EveryKey&, KeptBlocks, StreamRef);
template void build_block_mask(const BlockMask&, int, const Causal&, KeptBlocks, StreamRef);
template void build_block_mask(const BlockMask&, int, const SlidingWindow&, KeptBlocks, StreamRef);
template void build_block_mask(const BlockMask&, int, const PrefixLm&, KeptBlocks, StreamRef);
template void build_block_mask(const BlockMask&, int, const CausalDocument&, KeptBlocks, StreamRef);
template void build_block_mask(const BlockMask&, int, const BlockSparse&, KeptBlocks, StreamRef);

}  // namespace fathom::kernels
