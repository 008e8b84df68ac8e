// Split-KV by equal payload. The blocks of positions of all items (an item: a sequence, or a sequence and a
// key-value head) are laid end to end, and each part, one CTA, takes as many of them as every other. A part's
// range may begin and end within an item. So parts end together whatever the contexts are, and an item is cut
// only where a range ends. Nothing is planned beforehand: every CTA adds up the blocks of all items itself.
//
// A piece is what a part has of one item. The results of an item's pieces are merged by a second kernel. A
// part has at most two pieces of items that other parts share, one that another part began and one that
// another part ends: two slots of a workspace.
//
// source  FlashMLA's tile scheduler, DeepSeek, 2025 (ranges of equal payload)
#pragma once

#include <cuda_runtime.h>

#include "cuda/warp_reduce.cuh"

namespace fathom::kernels {

// What a CTA of kThreads threads needs to find its range.
template <int kThreads>
struct KvRangeScratch {
  int warp_sums[kThreads / 32];
  int item, first;
};

// Over all threads of the CTA; all get the sum.
template <int kThreads>
__device__ int block_sum(int x, KvRangeScratch<kThreads>& scratch) {
  x = warp_reduce_sum(x);
  __syncthreads();  // the previous sums have been read
  if (threadIdx.x % 32 == 0) scratch.warp_sums[threadIdx.x / 32] = x;
  __syncthreads();  // all sums are stored
  int sum = 0;
#pragma unroll
  for (int warp = 0; warp < kThreads / 32; ++warp) sum += scratch.warp_sums[warp];
  return sum;
}

// The blocks of items 0 .. end. By all threads; `blocks_of(i)` is the same for all of them.
template <int kThreads, class BlocksOf>
__device__ int sum_of_blocks(int end, const BlocksOf& blocks_of, KvRangeScratch<kThreads>& scratch) {
  int sum = 0;
  for (int i = threadIdx.x; i < end; i += kThreads) sum += blocks_of(i);
  return block_sum<kThreads>(sum, scratch);
}

// The blocks of every part but the last ones, which may have fewer or none. A part begins and ends an item's
// work at some cost, so it gets `least` blocks or more.
__device__ inline int blocks_per_part(int total, int parts, int least) {
  return max(least, (total + parts - 1) / parts);
}

// `count` blocks from block `first` of `item` on.
struct KvRange {
  int item = 0, first = 0, count = 0;

  // Calls piece(item, first, count, blocks of the item) for each piece, in order.
  template <class BlocksOf, class Piece>
  __device__ void for_each_piece(const BlocksOf& blocks_of, const Piece& piece) const {
    int i = item, from = first, left = count;
    while (left > 0) {
      const int blocks = blocks_of(i), taken = min(left, blocks - from);
      if (taken > 0) piece(i, from, taken, blocks);
      left -= taken;
      from = 0;
      ++i;
    }
  }
};

// The range of a part. By all threads.
template <int kThreads, class BlocksOf>
__device__ KvRange range_of_part(int part, int parts, int least, int items, const BlocksOf& blocks_of,
                                 KvRangeScratch<kThreads>& scratch) {
  const int total = sum_of_blocks<kThreads>(items, blocks_of, scratch);
  const int each = blocks_per_part(total, parts, least), begin = part * each;
  if (begin >= total) return {};
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  // A scan over kThreads items at a time, until one of them holds block `begin` of all.
  for (int base = 0, before = 0; before <= begin; base += kThreads) {
    const int i         = base + static_cast<int>(threadIdx.x);
    const int blocks    = i < items ? blocks_of(i) : 0;
    const int inclusive = warp_inclusive_sum(blocks, lane);
    __syncthreads();  // the previous sums have been read
    if (lane == 31) scratch.warp_sums[warp] = inclusive;
    __syncthreads();  // all sums are stored
    int start = before + inclusive - blocks;
#pragma unroll
    for (int w = 0; w < kThreads / 32; ++w) {
      if (w < warp) start += scratch.warp_sums[w];
      before += scratch.warp_sums[w];
    }
    if (start <= begin && begin < start + blocks) {
      scratch.item  = i;
      scratch.first = begin - start;
    }
  }
  __syncthreads();  // the item is stored
  return {scratch.item, scratch.first, min(each, total - begin)};
}

// The parts that share an item, `first` to `last`; one alone stores the item's result itself.
struct KvParts {
  int first, last;
};
__device__ inline KvParts parts_of_item(int start, int blocks, int each) {
  return {start / each, (start + blocks - 1) / each};
}

// Where a piece that does not have all of its item stores its result.
__device__ inline int slot_of_piece(int part, bool begins_item) { return 2 * part + (begins_item ? 1 : 0); }

}  // namespace fathom::kernels
