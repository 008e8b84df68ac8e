// D = W x^T for packed weights W (kernels/packed_weights.h) and many rows of x: the main loop that dense
// products (packed_linear_many.cu) and experts (packed_experts_many.cu) share.
//
// A block makes items: some 64-row groups of W times up to kColumns rows of x. Two warps load, and two to
// four warpgroups multiply, each its own groups. Stages of a ring go from one to the others: `full` when a
// stage's bytes are there, `empty` when all warps that multiply are done with it. Weights come as they lie in
// memory (tiles of a group follow one another along K), rows of x in boxes of 64 columns with the 128-byte
// swizzle. wgmma takes weights from registers and x from shared memory: a tile of 64 x 64 is four products of
// 16 columns. While the products of one tile are under way, their warpgroup loads, and unpacks, its next
// tile.
//
// flops   2 of a weight and a row of x, for all kColumns rows even where fewer are there
// limit   few rows: bytes of weights, and in MXFP4 the instructions that unpack them; many: tensor cores, as
//         long as x and W come from L2 in time: for each 64 columns 40 KiB make 192 x 128 sums in bf16, 25
//         KiB make 256 x 128 in MXFP4
#pragma once

#include <cuda.h>

#include <cstdint>

#include "core/launch.cuh"
#include "core/multiprocessors.h"
#include "core/ptx.cuh"
#include "core/tensor_map.h"
#include "core/wgmma.cuh"
#include "kernels/mxfp4_fragment.cuh"
#include "kernels/packed_weights.h"

namespace fathom::kernels::many {

inline constexpr int kMostParts = 8;                        // blocks of a cluster that every GPU takes
inline constexpr int kStep      = static_cast<int>(kTile);  // columns of a tile

// kColumns      rows of x in an item, at most; N of wgmma
// kWarpgroups   that multiply
// kGroupsEach   64-row groups of W for each of them, which has 64 kColumns / 128 sums of each in registers
// kDepth        tiles along K in a stage
// kBlocks       blocks of a multiprocessor
template <int kColumnsOf, int kWarpgroupsOf, int kGroupsEachOf, int kDepthOf, int kStagesOf, int kBlocksOf>
struct Shape {
  static constexpr int kColumns = kColumnsOf, kWarpgroups = kWarpgroupsOf, kGroupsEach = kGroupsEachOf,
                       kDepth = kDepthOf, kStages = kStagesOf, kBlocks = kBlocksOf;

  static constexpr int kGroups    = kGroupsEach * kWarpgroups;
  static constexpr int kConsumers = 128 * kWarpgroups;  // threads that multiply
  // Where registers go from one warpgroup to the others, the two warps that load are its first.
  static constexpr bool kMoveRegisters = kBlocks == 1;
  static constexpr int kThreads        = kConsumers + (kMoveRegisters ? 128 : 64);
  static constexpr int kAtFirst = 65536 / kThreads / 8 * 8, kLoadRegisters = 56,
                       kRegisters = (kAtFirst * (kWarpgroups + 1) - kLoadRegisters) / kWarpgroups / 8 * 8;

  static constexpr int kBoxRows   = kColumns <= 64 ? 16 : kColumns / 2;  // boxes without a row are not loaded
  static constexpr int kBoxBytes  = kBoxRows * kStep * 2;
  static constexpr int kSlabBytes = kColumns * kStep * 2;  // x of one tile
};

// Where tiles lie, and how a warpgroup gets its fragments of one: from shared memory, by addresses of the
// thread's part.
struct DenseTiles {
  const bf16* tiles;

  static constexpr int kTileBytes = static_cast<int>(PackedMatrix::kTileBytes), kScaleBytes = 0;

  __device__ const void* tile(int64_t index) const { return tiles + index * (kTileBytes / 2); }
  __device__ const void* scale(int64_t) const { return nullptr; }

  // Where in a tile, and in its scales, a thread's part lies.
  __device__ static int of_thread() {
    const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    return (warp * 4 * 32 + lane) * 16;
  }
  __device__ static int scale_of_thread() { return 0; }

  __device__ static void fragments(uint32_t at, uint32_t, uint32_t (&a)[4][4]) {
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      const uint4 v = ptx::load_shared_16(at + s * 512);
      a[s][0] = v.x, a[s][1] = v.y, a[s][2] = v.z, a[s][3] = v.w;
    }
  }
};

struct Mxfp4Tiles {
  const uint8_t* tiles;
  const uint8_t* scales;

  static constexpr int kTileBytes  = static_cast<int>(PackedExperts::kTileBytes),
                       kScaleBytes = static_cast<int>(PackedExperts::kScaleBytes);

  __device__ const void* tile(int64_t index) const { return tiles + index * kTileBytes; }
  __device__ const void* scale(int64_t index) const { return scales + index * kScaleBytes; }

  __device__ static int of_thread() { return threadIdx.x % 128 * 16; }
  __device__ static int scale_of_thread() { return threadIdx.x % 128 / 4 * 4; }

  __device__ static void fragments(uint32_t at, uint32_t scale_at, uint32_t (&a)[4][4]) {
    const uint4 words = ptx::load_shared_16(at);
    uint32_t of[4];
    unpack_scales(ptx::load_shared_4(scale_at), of);
    unpack_fragment(words.x, of[0], of[2], a[0]);
    unpack_fragment(words.y, of[0], of[2], a[1]);
    unpack_fragment(words.z, of[1], of[3], a[2]);
    unpack_fragment(words.w, of[1], of[3], a[3]);
  }
};

struct Item {
  int64_t tile;    // index of the first group's first tile
  int64_t depth;   // tiles of a group, along K
  int begin, end;  // those to multiply
  int group;       // the first group's first packed row is 64 group
  int groups;      // how many, up to Shape::kGroups; the rest idles
  int row, rows;   // rows of x: the first, and how many, up to Shape::kColumns
  int expert;
};

// The ring: [stages] x in slabs, [stages][kDepth] tiles of each group, [stages] their scales.
template <class S, class Tiles>
struct Ring {
  uint8_t* memory;
  uint64_t *full, *empty;  // [kStages]

  static constexpr int kXBytes = S::kDepth * S::kSlabBytes, kWeightBytes = S::kDepth * Tiles::kTileBytes,
                       kScaleBytes = S::kDepth * Tiles::kScaleBytes;
  static constexpr int kBytes      = S::kStages * (kXBytes + S::kGroups * (kWeightBytes + kScaleBytes));

  __device__ uint8_t* x(int stage) const { return memory + stage * kXBytes; }
  __device__ uint8_t* weights(int stage, int group) const {
    return memory + S::kStages * kXBytes + (stage * S::kGroups + group) * kWeightBytes;
  }
  __device__ uint8_t* scales(int stage, int group) const {
    return memory + S::kStages * (kXBytes + S::kGroups * kWeightBytes) +
           (stage * S::kGroups + group) * kScaleBytes;
  }
};

// A stage of the ring and the parity of the phase in which it is filled.
template <int kStages>
struct Turn {
  int stage       = 0;
  uint32_t parity = 0;

  __device__ void next() {
    if (++stage < kStages) return;
    stage = 0;
    parity ^= 1;
  }
};

// What the two warps that load do, all lanes together: one fetches weights, the other rows of x. `work` has
// count(), item(i), and first() and step() of this block.
template <class S, class Tiles, class Work>
__device__ void load_weights(const Tiles& tiles, const Work& work, const Ring<S, Tiles>& ring) {
  const bool one = threadIdx.x % 32 == 0;
  Turn<S::kStages> turn;
  for (int i = work.first(); i < work.count(); i += work.step()) {
    const Item item = work.item(i);
    if (!one) continue;
    for (int k = item.begin; k < item.end; k += S::kDepth, turn.next()) {
      const int n    = min(S::kDepth, item.end - k);
      uint64_t* full = &ring.full[turn.stage];
      ptx::mbarrier_wait(&ring.empty[turn.stage], turn.parity ^ 1);
      ptx::mbarrier_arrive_expect_tx(full, n * item.groups * (Tiles::kTileBytes + Tiles::kScaleBytes));
#pragma unroll
      for (int group = 0; group < S::kGroups; ++group) {
        if (group >= item.groups) break;
        const int64_t tile = item.tile + group * item.depth + k;
        ptx::bulk_load(ring.weights(turn.stage, group), tiles.tile(tile), n * Tiles::kTileBytes, full);
        if constexpr (Tiles::kScaleBytes > 0)
          ptx::bulk_load(ring.scales(turn.stage, group), tiles.scale(tile), n * Tiles::kScaleBytes, full);
      }
    }
  }
}

template <class S, class Tiles, class Work>
__device__ void load_x(const CUtensorMap& x, const Work& work, const Ring<S, Tiles>& ring) {
  const bool one = threadIdx.x % 32 == 0;
  Turn<S::kStages> turn;
  for (int i = work.first(); i < work.count(); i += work.step()) {
    const Item item = work.item(i);
    const int boxes = (item.rows + S::kBoxRows - 1) / S::kBoxRows;
    if (!one) continue;
    for (int k = item.begin; k < item.end; k += S::kDepth, turn.next()) {
      const int n    = min(S::kDepth, item.end - k);
      uint64_t* full = &ring.full[turn.stage];
      ptx::mbarrier_wait(&ring.empty[turn.stage], turn.parity ^ 1);
      ptx::mbarrier_arrive_expect_tx(full, n * boxes * S::kBoxBytes);
#pragma unroll
      for (int slab = 0; slab < S::kDepth; ++slab) {
        if (slab >= n) break;
#pragma unroll
        for (int box = 0; box < S::kColumns / S::kBoxRows; ++box) {
          if (box >= boxes) break;
          ptx::tensor_load(ring.x(turn.stage) + slab * S::kSlabBytes + box * S::kBoxBytes, &x,
                           item.row + box * S::kBoxRows, (k + slab) * kStep, full);
        }
      }
    }
  }
}

// What a warpgroup does: the sums of an item's groups `warpgroup`, `warpgroup` + kWarpgroups, ... in d. All
// that changes from tile to tile within a stage is known to the compiler: instructions are what unpacking is
// short of.
template <class S, class Tiles>
__device__ void multiply_item(const Item& item, const Ring<S, Tiles>& ring, Turn<S::kStages>& turn,
                              float (&d)[S::kGroupsEach][S::kColumns / 2]) {
  // Tiles of a stage, one after another, take turns in the sets of fragments: one is under way, the next is
  // made. Stages of one tile are taken two at a time.
  constexpr int kTiles = S::kDepth * S::kGroupsEach, kSets = kTiles == 3 ? 3 : 2;
  constexpr int kStagesAtOnce = kTiles == 1 ? 2 : 1;
  static_assert(kTiles * kStagesAtOnce % kSets == 0, "every stage begins with the first set");
  using Here             = Ring<S, Tiles>;
  const int warpgroup    = threadIdx.x / 128;
  const bool first_lane  = threadIdx.x % 32 == 0;
  const uint32_t full    = ptx::kept(ptx::shared_address(ring.full));
  const uint32_t empty   = ptx::kept(ptx::shared_address(ring.empty));
  const uint32_t weights = ptx::kept(ptx::shared_address(ring.weights(0, warpgroup) + Tiles::of_thread()));
  const uint32_t scales =
      ptx::kept(ptx::shared_address(ring.scales(0, warpgroup) + Tiles::scale_of_thread()));
  const uint64_t x = ptx::kept(ptx::swizzled_operand(ptx::shared_address(ring.x(0))));
#pragma unroll
  for (int m = 0; m < S::kGroupsEach; ++m) {
#pragma unroll
    for (float& sum : d[m]) sum = 0;
    ptx::settle(d[m]);
  }

  // Of the running stage.
  uint32_t weights_here = 0, scales_here = 0;
  uint64_t x_here        = 0;
  const auto begin_stage = [&] {
    ptx::mbarrier_wait(full + turn.stage * 8, turn.parity);
    weights_here = weights + turn.stage * (S::kGroups * Here::kWeightBytes);
    scales_here  = scales + turn.stage * (S::kGroups * Here::kScaleBytes);
    // The shuffle tells the compiler that all lanes have the same: wgmma wants it in a uniform register, and
    // what follows from one that is there stays there.
    x_here = ptx::bytes_on(x, __shfl_sync(~0u, turn.stage, 0) * Here::kXBytes);
  };
  uint32_t a[kSets][4][4];
  // Starts the products of tile `i` of a stage for group m, with fragments in a[set].
  const auto start = [&](int i, int m, int set) {
    const int tile = m * S::kWarpgroups * S::kDepth + i;  // of the warpgroup's in this stage
    Tiles::fragments(weights_here + tile * Tiles::kTileBytes, scales_here + tile * Tiles::kScaleBytes,
                     a[set]);
    ptx::wgmma_fence();
#pragma unroll
    for (int s = 0; s < 4; ++s)
      ptx::wgmma(d[m], a[set][s], ptx::bytes_on(x_here, i * S::kSlabBytes + 32 * s), true);
    ptx::wgmma_commit();
  };
  int done = -1;  // the stage whose last products are under way
  int k    = item.begin;
  for (; k + S::kDepth * kStagesAtOnce <= item.end; k += S::kDepth * kStagesAtOnce) {
#pragma unroll
    for (int of = 0; of < kStagesAtOnce; ++of) {
      begin_stage();
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const int set = (of + tile) % kSets, before = (set + kSets - 1) % kSets;
        start(tile / S::kGroupsEach, tile % S::kGroupsEach, set);
        ptx::wgmma_wait<1>();  // the tile before this one is done
#pragma unroll
        for (int s = 0; s < 4; ++s) ptx::settle(a[before][s]);
        if (tile == 0 && done >= 0 && first_lane) ptx::mbarrier_arrive(empty + done * 8);
      }
      done = turn.stage;
      turn.next();
    }
  }
  ptx::wgmma_wait<0>();
  if (done >= 0 && first_lane) ptx::mbarrier_arrive(empty + done * 8);

  if (k < item.end) {  // less than that is left, in one stage
    begin_stage();
    for (int i = 0; k + i < item.end; ++i)
#pragma unroll
      for (int m = 0; m < S::kGroupsEach; ++m) {
        start(i, m, 0);
        ptx::wgmma_wait<0>();
#pragma unroll
        for (int s = 0; s < 4; ++s) ptx::settle(a[0][s]);
      }
    if (first_lane) ptx::mbarrier_arrive(empty + turn.stage * 8);
    turn.next();
  }
#pragma unroll
  for (int m = 0; m < S::kGroupsEach; ++m) ptx::settle(d[m]);
}

// An item in which a warpgroup has no group: its stages go back as they are.
template <class S, class Tiles>
__device__ void skip_item(const Item& item, const Ring<S, Tiles>& ring, Turn<S::kStages>& turn) {
  for (int k = item.begin; k < item.end; k += S::kDepth, turn.next()) {
    ptx::mbarrier_wait(&ring.full[turn.stage], turn.parity);
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&ring.empty[turn.stage]);
  }
}

// Hands kCount sums of a group to `store`: v[i] has those of columns 8 (j + i) to 8 (j + i) + 8.
// First all reads, then all writes: each would wait for the one before it otherwise.
template <int kCount, class Store>
__device__ void store_columns(const Item& item, int group, int j, const float4 (&v)[kCount],
                              const Store& store) {
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const int p      = (item.group + group) * kStep + warp * 16 + lane / 4;
  const auto t     = [&](int i) { return 8 * (j + i) + lane % 4 * 2; };
  const auto given = [&](int i, int next) {
    return store.read(p, item.row + min(t(i) + next, item.rows - 1));
  };
  typename Store::Given left[kCount], right[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) left[i] = given(i, 0), right[i] = given(i, 1);
  if (8 * (j + kCount) <= item.rows) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      store(p, item.row + t(i), v[i].x, v[i].z, left[i]);
      store(p, item.row + t(i) + 1, v[i].y, v[i].w, right[i]);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (t(i) < item.rows) store(p, item.row + t(i), v[i].x, v[i].z, left[i]);
      if (t(i) + 1 < item.rows) store(p, item.row + t(i) + 1, v[i].y, v[i].w, right[i]);
    }
  }
}

template <class S, class Store>
__device__ void store_sums(const Item& item, int group, const float (&d)[S::kColumns / 2],
                           const Store& store) {
  constexpr int kAtOnce = S::kWarpgroups == 2 && S::kBlocks == 1 && S::kColumns <= 128 ? 4 : 2;
#pragma unroll
  for (int j = 0; j < S::kColumns / 8; j += kAtOnce) {
    if (8 * j >= item.rows) break;
    float4 v[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const float* of = d + 4 * (j + i);
      v[i]            = make_float4(of[0], of[1], of[2], of[3]);
    }
    store_columns(item, group, j, v, store);
  }
}

// Sums of the blocks of a cluster, each over its part of K, added in the order of the blocks and stored;
// block `rank` of `size` stores every size-th of the groups of eight columns. By all threads that multiply;
// those that load call meet_blocks() as often.
__device__ inline void meet_blocks() {
  ptx::cluster_arrive();
  ptx::cluster_wait();
}
template <class S, class Tiles, class Store>
__device__ void add_up(const Item& item, const Ring<S, Tiles>& ring, int rank, int size,
                       const float (&d)[S::kGroupsEach][S::kColumns / 2], const Store& store) {
  static_assert(S::kGroups * S::kColumns * kStep * 4 <= Ring<S, Tiles>::kBytes);
  constexpr int kEights = S::kColumns / 8;
  const int warpgroup = threadIdx.x / 128, thread = threadIdx.x % 128;
  const auto at = [&](int group, int j) { return ((group * kEights + j) * 128 + thread) * 16; };

  ptx::named_barrier(1, S::kConsumers);  // nobody reads the ring any more
#pragma unroll
  for (int m = 0; m < S::kGroupsEach; ++m)
#pragma unroll
    for (int j = 0; j < kEights; ++j)
      *reinterpret_cast<float4*>(ring.memory + at(warpgroup + m * S::kWarpgroups, j)) =
          make_float4(d[m][4 * j], d[m][4 * j + 1], d[m][4 * j + 2], d[m][4 * j + 3]);
  meet_blocks();  // every block's sums are in its shared memory

  const uint32_t memory = ptx::shared_address(ring.memory);
  for (int group = warpgroup; group < item.groups; group += S::kWarpgroups)
    for (int j = rank; 8 * j < item.rows; j += size) {
      float4 of[kMostParts], sum[1] = {};
#pragma unroll
      for (int block = 0; block < kMostParts; ++block)
        if (block < size)
          of[block] = ptx::load_from_block(ptx::address_in_block(memory + at(group, j), block));
#pragma unroll
      for (int block = 0; block < kMostParts; ++block)
        if (block < size) {
          sum[0].x += of[block].x, sum[0].y += of[block].y;
          sum[0].z += of[block].z, sum[0].w += of[block].w;
        }
      store_columns(item, group, j, sum, store);
    }
  meet_blocks();  // nobody leaves while others read here
}

// `stores.of(item)` is what takes an item's sums: (p, row of x, sums of rows p and p + 8).
template <class S, class Tiles, class Work, class Stores>
__global__ void __launch_bounds__(S::kThreads, S::kBlocks)
    products_kernel(const __grid_constant__ CUtensorMap x, Tiles tiles, Work work, Stores stores) {
  extern __shared__ __align__(1024) uint8_t memory[];
  __shared__ uint64_t full[S::kStages], empty[S::kStages];
  __shared__ typename Work::Shared shared;
  const Ring<S, Tiles> ring{memory, full, empty};
  const bool loads = threadIdx.x >= S::kConsumers;

  if (threadIdx.x == 0) {
    ptx::prefetch_tensor_map(&x);
    for (int s = 0; s < S::kStages; ++s) {
      ptx::mbarrier_init(&full[s], 2);  // both warps that load
      ptx::mbarrier_init(&empty[s], S::kConsumers / 32);
    }
    ptx::fence_mbarrier_init();
    ptx::fence_proxy_async();  // the copy engine sees the barriers as they are now
  }
  const bool loads_weights = static_cast<int>(threadIdx.x) / 32 == S::kConsumers / 32;
  if constexpr (Work::kKnown) {
    __syncthreads();  // barriers are ready: weights need not wait for the kernel before
    if (!loads_weights) ptx::wait_for_previous();
  } else {
    ptx::wait_for_previous();
    work.begin(shared);
    __syncthreads();  // barriers, and what `work` has in shared memory, are ready
  }

  if (loads) {
    if constexpr (S::kMoveRegisters) ptx::give_registers<S::kLoadRegisters>();
    if (loads_weights) load_weights(tiles, work, ring);
    if (static_cast<int>(threadIdx.x) / 32 == S::kConsumers / 32 + 1) {
      load_x(x, work, ring);
      __syncwarp();
      ptx::let_next_begin();
    }
    if (work.parts() > 1) {
      __syncwarp();
      meet_blocks();
      meet_blocks();
    }
  } else {
    if constexpr (S::kMoveRegisters) ptx::take_registers<S::kRegisters>();
    float d[S::kGroupsEach][S::kColumns / 2];
    Turn<S::kStages> turn;
    for (int i = work.first(); i < work.count(); i += work.step()) {
      const Item item  = work.item(i);
      const bool idle  = static_cast<int>(threadIdx.x) / 128 >= item.groups;
      const auto store = stores.of(item);
      if (idle)
        skip_item(item, ring, turn);
      else
        multiply_item(item, ring, turn, d);
      if (work.parts() > 1) {
        add_up(item, ring, work.part(), work.parts(), d, store);
        break;
      }
      if (idle) continue;
#pragma unroll
      for (int m = 0; m < S::kGroupsEach; ++m) {
        const int group = threadIdx.x / 128 + m * S::kWarpgroups;
        if (group >= item.groups) break;
        store_sums<S>(item, group, d[m], store);
      }
    }
  }
}

// ---- launches ----

template <class S, class Tiles>
inline constexpr int kRingBytes = Ring<S, Tiles>::kBytes;

// `blocks` of them, consecutive ones in clusters of `parts`.
template <class S, class Tiles, class Work, class Stores>
void launch_products(View<const bf16, 2> x, const Tiles& tiles, const Work& work, const Stores& stores,
                     int64_t blocks, int parts, StreamRef stream) {
  constexpr auto* kKernel = products_kernel<S, Tiles, Work, Stores>;
  static const bool once  = (allow_shared_memory(kKernel, kRingBytes<S, Tiles>), true);
  static_cast<void>(once);
  FATHOM_EXPECT(x.stride(1) == 1 && x.extent(0) <= INT32_MAX / 2,
                "products of many rows: rows of x are contiguous");
  const CUtensorMap map = tensor_map(x.data(), DType::bf16, x.extent(0), x.extent(1), x.stride(0) * 2,
                                     S::kBoxRows, kStep, Swizzle::bytes_128);
  launch_chained(kKernel, static_cast<unsigned>(blocks), S::kThreads, kRingBytes<S, Tiles>, parts, stream,
                 map, tiles, work, stores);
}

}  // namespace fathom::kernels::many
