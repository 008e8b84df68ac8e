// out(t, h) = sum_j w(j) v(j),  w = softmax over j of score(scale q(t, h) . k(j))     a query a sequence
//
// bytes   4 Hkv D for each position in reach, read once for all query heads of a key-value head
// flops   4 x 8 Hkv D for each: 8 query heads are the columns of an mma, even where a group has fewer
// limit   DRAM bandwidth. H200: 64 x 4096 positions of 8 heads of 128 are 1.07 GB, 239 us at 4.5 TB/s
// idea    S^T = K Q^T and O^T = V^T P^T by mma.sync, as in decode_attention.cu: keys and dimensions are the
//         rows, the query heads of a group are the 8 columns. Each warp has a pipeline of tiles of 32
//         positions, which TMA fills and swizzles, and its own maxima and sums; it prefetches over the end of
//         a piece into the next one. One CTA a multiprocessor has as many positions as every other
//         (kernels/attention/kv_ranges.cuh). The functor sees a score in registers, so a bias costs no memory
// source  Dao et al., Flash-Decoding, 2023; Dong et al., FlexAttention, 2024; FlashMLA, 2025 (equal payload)
#include "kernels/attention/paged_decode_attention.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "cuda/bf16_pack.cuh"
#include "cuda/check.h"
#include "cuda/launch.cuh"
#include "cuda/multiprocessors.h"
#include "cuda/ptx.cuh"
#include "cuda/tensor_map.h"
#include "cuda/warp_reduce.cuh"
#include "kernels/attention/kv_ranges.cuh"

namespace fathom::kernels {
namespace {

constexpr int kGroup    = 8;   // columns of an mma
constexpr int kKeys     = 32;  // of a tile
constexpr int kPage     = 64;  // positions; also a block of a range
constexpr int kBox      = 64;  // columns of a TMA box: 128 bytes
constexpr int kStages   = 3;
constexpr int kLeast    = 2;  // blocks of a part
constexpr float kLog2E  = 1.44269504f;
constexpr float kLow    = -1e30f;  // below every score; finite, so that differences of maxima are numbers
constexpr int kBoxBytes = kKeys * kBox * 2;

// Positions first .. context of a sequence are in reach.
struct Reach {
  int first, context;

  __device__ int first_block() const { return first / kPage; }
  __device__ int blocks() const { return context > 0 ? (context + kPage - 1) / kPage - first_block() : 0; }
};

template <class Score>
struct Decode {
  const bf16* q;
  const int32_t* contexts;
  const int32_t* pages;
  int64_t pages_stride;
  bf16* out;
  float* partial_out;       // [slots][kGroup][D], in units of 2^max
  float2* partial_max_sum;  // [slots][kGroup]
  const float* sinks;       // null: none
  float scale;
  int window;
  int items, kv_heads, group, splits, parts;  // an item: a sequence and a key-value head
  Score score;

  __device__ Reach reach(int item) const {
    const int context = max(0, contexts[item / kv_heads]);
    return {max(0, context - window), context};
  }
  __device__ int blocks(int item) const { return reach(item).blocks(); }
  // All items of a sequence have as many blocks as each other.
  __device__ int blocks_of_sequence(int sequence) const { return kv_heads * blocks(sequence * kv_heads); }
  __device__ int sequences() const { return items / kv_heads; }
  // Blocks of each but the last of an item's pieces of equal length.
  __device__ int of_split(int blocks) const { return max(1, (blocks + splits - 1) / splits); }
  // By what the weights' sum of values is multiplied: zero where nothing is visible.
  __device__ float normalizer(float max_score, float sum, int head) const {
    if (sinks) sum += ptx::ex2_approx(sinks[head] * kLog2E - max_score);
    return sum > 0 ? 1 / sum : 0;
  }
};

// The tiles of a piece, of which warp w has every kWarps-th from the w-th on. Tiles without a position in
// reach are left out.
struct Tiles {
  int begin, end;

  __device__ Tiles(Reach reach, int first, int count)
      : begin(max((reach.first_block() + first) * (kPage / kKeys), reach.first / kKeys)),
        end(min((reach.first_block() + first + count) * (kPage / kKeys),
                (reach.context + kKeys - 1) / kKeys)) {}
};

template <int D>
struct TileShape {
  static constexpr int kWarps = 512 / D, kThreads = 32 * kWarps;
  static constexpr int kHalfBoxes  = D / kBox;  // of keys, then of values
  static constexpr int kStageBytes = 2 * kHalfBoxes * kBoxBytes;
  static constexpr int kRowStride  = D + 4;  // floats of a merged row: lanes then use 32 different banks
};

template <int D>
struct Shared {
  using S = TileShape<D>;
  alignas(1024) unsigned char tiles[S::kWarps][kStages][S::kStageBytes];
  float out[S::kWarps][kGroup][S::kRowStride];
  float max_score[S::kWarps][kGroup], sum[S::kWarps][kGroup];
  uint64_t full[S::kWarps][kStages];
  KvRangeScratch<S::kThreads> range;
};
static_assert(sizeof(Shared<128>) <= 227 * 1024 && sizeof(Shared<64>) <= 227 * 1024);

// Loads the tiles of a warp, over the pieces of the CTA's range. By one lane.
template <int D, class Score>
class TileLoader {
 public:
  using S = TileShape<D>;

  __device__ TileLoader(const CUtensorMap& k, const CUtensorMap& v, const Decode<Score>& o,
                        const KvRange& range, int warp, Shared<D>& shared)
      : k_(k),
        v_(v),
        o_(o),
        shared_(shared),
        warp_(warp),
        next_item_(range.item),
        first_(range.first),
        left_(range.count) {
    find_tile();
  }

  __device__ void load_next() {
    if (tile_ >= end_) return;
    const int stage = loaded_++ % kStages;
    uint64_t* full  = &shared_.full[warp_][stage];
    const int row   = (page_ * o_.kv_heads + item_ % o_.kv_heads) * kPage + tile_ % (kPage / kKeys) * kKeys;
    ptx::mbarrier_arrive_expect_tx(full, S::kStageBytes);
#pragma unroll
    for (int box = 0; box < S::kHalfBoxes; ++box) {
      unsigned char* to = shared_.tiles[warp_][stage] + box * kBoxBytes;
      ptx::cp_async_bulk_tensor_load(to, &k_, row, box * kBox, full);
      ptx::cp_async_bulk_tensor_load(to + S::kHalfBoxes * kBoxBytes, &v_, row, box * kBox, full);
    }
    tile_ += S::kWarps;
    find_tile();
  }

 private:
  // Goes on to the next piece in which the warp has a tile, and reads the tile's page long before its use.
  __device__ void find_tile() {
    while (tile_ >= end_ && left_ > 0) {
      item_             = next_item_++;
      const Reach reach = o_.reach(item_);
      const int count   = min(left_, reach.blocks() - first_);
      if (count > 0) {
        const Tiles tiles(reach, first_, count);
        tile_ = tiles.begin + warp_;
        end_  = tiles.end;
        left_ -= count;
      }
      first_ = 0;
    }
    if (tile_ < end_) page_ = o_.pages[item_ / o_.kv_heads * o_.pages_stride + tile_ / (kPage / kKeys)];
  }

  const CUtensorMap &k_, &v_;
  const Decode<Score>& o_;
  Shared<D>& shared_;
  int warp_, next_item_, first_, left_, item_ = 0, tile_ = 0, end_ = 0, page_ = 0, loaded_ = 0;
};

// Online softmax of a warp. Lane 4 g + t has query heads 2 t and 2 t + 1; its sums of weights are over keys g
// and g + 8 of each 16, its outputs are dimensions g and g + 8 of each 16.
template <int D>
struct OnlineSoftmax {
  float max_score[2]   = {kLow, kLow};  // times log2(e)
  float sum[2]         = {};
  float out[D / 16][4] = {};
};

// The 16-byte piece c of row r of a box lies at c ^ r % 8, so that the next pair of pieces is an xor of 32
// bytes away. Keys first .. last of the tile are in reach; `distance` is that of its key 0.
template <int D, class Score>
__device__ void attend_tile(OnlineSoftmax<D>& state, const uint32_t (&q)[D / 16][2], uint32_t tile, int first,
                            int last, int distance, int first_head, const Decode<Score>& o) {
  const int lane        = threadIdx.x % 32;
  const uint32_t keys   = tile + lane % 16 * 128 + ((lane / 16) ^ (lane % 8)) * 16;
  const uint32_t values = tile + TileShape<D>::kHalfBoxes * kBoxBytes + (lane % 8 + lane / 16 * 8) * 128 +
                          ((lane / 8 % 2) ^ (lane % 8)) * 16;
  float s[kKeys / 16][4] = {};
#pragma unroll
  for (int k = 0; k < D / 16; ++k)
#pragma unroll
    for (int m = 0; m < kKeys / 16; ++m) {
      uint32_t a[4];
      ptx::ldmatrix_x4(a, (keys + k / 4 * kBoxBytes + m * 16 * 128) ^ (k % 4 * 32));
      ptx::mma_m16n8k16(s[m], a, q[k]);
    }
#pragma unroll
  for (int m = 0; m < kKeys / 16; ++m)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int key = m * 16 + lane / 4 + e / 2 * 8;
      if constexpr (!std::is_same_v<Score, PlainScore>) {
        const int head = first_head + min(lane % 4 * 2 + e % 2, o.group - 1);  // a column without: any head
        // Keys behind the context are masked below, whatever their distance.
        s[m][e] = o.score(s[m][e] * o.scale, head, max(0, distance - key)) * kLog2E;
      } else {
        s[m][e] *= o.scale * kLog2E;
      }
      if (key < first || key > last) s[m][e] = -INFINITY;
    }

  float rescale[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float max_score = kLow;
#pragma unroll
    for (int m = 0; m < kKeys / 16; ++m) max_score = fmaxf(max_score, fmaxf(s[m][h], s[m][2 + h]));
    max_score          = fmaxf(state.max_score[h], column_reduce_max(max_score));
    rescale[h]         = ptx::ex2_approx(state.max_score[h] - max_score);
    state.max_score[h] = max_score;
    state.sum[h] *= rescale[h];
  }
#pragma unroll
  for (int i = 0; i < D / 16; ++i)
#pragma unroll
    for (int e = 0; e < 4; ++e) state.out[i][e] *= rescale[e % 2];

#pragma unroll
  for (int m = 0; m < kKeys / 16; ++m) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      s[m][e] = ptx::ex2_approx(s[m][e] - state.max_score[e % 2]);
      state.sum[e % 2] += s[m][e];
    }
    const uint32_t p[2] = {ptx::movmatrix_trans(pack_bf16x2(s[m][0], s[m][1])),
                           ptx::movmatrix_trans(pack_bf16x2(s[m][2], s[m][3]))};
#pragma unroll
    for (int i = 0; i < D / 16; ++i) {
      uint32_t a[4];
      ptx::ldmatrix_x4_trans(a, (values + i / 4 * kBoxBytes + m * 16 * 128) ^ (i % 4 * 32));
      ptx::mma_m16n8k16(state.out[i], a, p);
    }
  }
}

// Merges the warps' results of a piece and stores them: to `out` [group][D] if it is a whole item, to a slot
// of the workspace otherwise.
template <int D, class Score>
__device__ void store_piece(const Decode<Score>& o, OnlineSoftmax<D>& state, Shared<D>& shared, int item,
                            bool whole, int slot) {
  using S        = TileShape<D>;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int head = lane % 4 * 2 + h;
    float* to      = shared.out[warp][head] + lane / 4;
#pragma unroll
    for (int i = 0; i < D / 16; ++i) {
      to[i * 16]     = state.out[i][h];
      to[i * 16 + 8] = state.out[i][2 + h];
    }
    state.sum[h] = column_reduce_sum(state.sum[h]);
    if (lane < 4) {
      shared.max_score[warp][head] = state.max_score[h];
      shared.sum[warp][head]       = state.sum[h];
    }
  }
  __syncthreads();  // all warps' results are stored
  for (int quad = threadIdx.x; quad < o.group * D / 4; quad += S::kThreads) {
    const int head = quad / (D / 4), d = quad % (D / 4) * 4;
    float max_score = kLow, sum = 0, merged[4] = {};
#pragma unroll
    for (int w = 0; w < S::kWarps; ++w) max_score = fmaxf(max_score, shared.max_score[w][head]);
#pragma unroll
    for (int w = 0; w < S::kWarps; ++w) {
      const float factor = ptx::ex2_approx(shared.max_score[w][head] - max_score);
      const float4 four  = *reinterpret_cast<const float4*>(&shared.out[w][head][d]);
      sum += factor * shared.sum[w][head];
      merged[0] += factor * four.x;
      merged[1] += factor * four.y;
      merged[2] += factor * four.z;
      merged[3] += factor * four.w;
    }
    if (whole) {
      const float inverse = o.normalizer(max_score, sum, item % o.kv_heads * o.group + head);
      auto* to            = reinterpret_cast<uint2*>(o.out + (int64_t{item} * o.group + head) * D + d);
      *to                 = {pack_bf16x2(merged[0] * inverse, merged[1] * inverse),
                             pack_bf16x2(merged[2] * inverse, merged[3] * inverse)};
    } else {
      const int64_t at                                       = int64_t{slot} * kGroup + head;
      *reinterpret_cast<float4*>(o.partial_out + at * D + d) = {merged[0], merged[1], merged[2], merged[3]};
      if (d == 0) o.partial_max_sum[at] = {max_score, sum};
    }
  }
  __syncthreads();  // all have read the results; the next piece's may be stored
}

// Grid: parts, or items times splits.
template <int D, class Score>
__global__ void __launch_bounds__(TileShape<D>::kThreads, 1)
    paged_decode_kernel(const __grid_constant__ CUtensorMap k, const __grid_constant__ CUtensorMap v,
                        const __grid_constant__ Decode<Score> o) {
  using S = TileShape<D>;
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared   = *reinterpret_cast<Shared<D>*>(memory);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, part = blockIdx.x;
  if (lane == 0)
    for (uint64_t& barrier : shared.full[warp]) ptx::mbarrier_init(&barrier, 1);
  ptx::fence_mbarrier_init();
  ptx::fence_proxy_async();  // TMA sees the initialised barriers
  __syncwarp();              // and so does the warp; no other uses them

  // Contexts and pages were written before the previous kernel; what that one writes is read after the wait.
  const auto blocks_of = [&](int item) { return o.blocks(item); };
  KvRange range;
  if (o.splits > 0) {
    const int blocks = o.blocks(part / o.splits), each = o.of_split(blocks);
    const int first = part % o.splits * each;
    range           = {part / o.splits, first, max(0, min(each, blocks - first))};
  } else {
    // Over sequences: there are fewer of them than items.
    range = range_of_part<S::kThreads>(
        part, o.parts, kLeast, o.sequences(), [&](int s) { return o.blocks_of_sequence(s); }, shared.range);
    if (range.count > 0) {
      const int sequence = range.item, of_item = o.blocks(sequence * o.kv_heads);
      range.item = sequence * o.kv_heads + range.first / of_item;
      range.first %= of_item;
    }
  }
  TileLoader<D, Score> loader(k, v, o, range, warp, shared);
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  if (range.count == 0) return;
  if (lane == 0)
    for (int i = 0; i < kStages; ++i) loader.load_next();
  int n = 0;  // tiles of this warp
  range.for_each_piece(blocks_of, [&](int item, int first, int count, int blocks) {
    const int sequence = item / o.kv_heads, first_head = item % o.kv_heads * o.group;
    const Reach reach     = o.reach(item);
    uint32_t q[D / 16][2] = {};  // column g of Q^T is query head g of the group
    if (lane / 4 < o.group) {
      const auto* row = reinterpret_cast<const uint32_t*>(
          o.q + ((int64_t{sequence} * o.kv_heads + item % o.kv_heads) * o.group + lane / 4) * D);
#pragma unroll
      for (int piece = 0; piece < D / 8; ++piece) q[piece / 2][piece % 2] = row[piece * 4 + lane % 4];
    }
    OnlineSoftmax<D> state;
    const Tiles tiles(reach, first, count);
    for (int tile = tiles.begin + warp; tile < tiles.end; tile += S::kWarps, ++n) {
      const int stage = n % kStages, at = tile * kKeys;
      const int from = max(0, reach.first - at), last = min(kKeys - 1, reach.context - 1 - at);
      unsigned char* const bytes = shared.tiles[warp][stage];
      ptx::mbarrier_wait(&shared.full[warp][stage], n / kStages & 1);
      if (from > 0 || last < kKeys - 1) {
        // Out of reach is anything. Weights there are 0, but 0 times NaN is NaN.
        auto* const values = reinterpret_cast<uint4*>(bytes + S::kHalfBoxes * kBoxBytes);
        for (int piece = lane; piece < S::kHalfBoxes * kKeys * 8; piece += 32) {
          const int key = piece / 8 % kKeys;
          if (key < from || key > last) values[piece] = {};
        }
        ptx::fence_proxy_async();  // orders the stores before the next TMA copy into the stage
        __syncwarp();              // lanes read what other lanes cleared
      }
      attend_tile<D>(state, q, ptx::shared_address(bytes), from, last, reach.context - 1 - at, first_head, o);
      __syncwarp();  // all lanes have read the stage
      if (lane == 0) loader.load_next();
    }
    const int slot = o.splits > 0 ? part : slot_of_piece(part, first == 0);
    store_piece<D>(o, state, shared, item, count == blocks, slot);
  });
}

// Merges the pieces of items that were cut, and zeroes rows without a context. Grid: items; a warp for each
// query head.
constexpr int kMergeThreads = 32 * kGroup;
template <int D, class Score>
__global__ void __launch_bounds__(kMergeThreads) merge_kernel(const __grid_constant__ Decode<Score> o) {
  __shared__ KvRangeScratch<kMergeThreads> scratch;
  constexpr int kEach = D / 32;  // dimensions a lane
  const int head = threadIdx.x / 32, lane = threadIdx.x % 32, item = blockIdx.x;
  const int blocks = o.blocks(item);
  int first_slot = 0, pieces = 0, next_slot = 0;  // the first piece's, how many, the second's
  if (o.splits > 0) {
    first_slot = item * o.splits;
    pieces     = (blocks + o.of_split(blocks) - 1) / o.of_split(blocks);
    next_slot  = first_slot + 1;
  } else {
    const int sequence   = item / o.kv_heads;
    const auto blocks_of = [&](int s) { return o.blocks_of_sequence(s); };
    const int total      = sum_of_blocks<kMergeThreads>(o.sequences(), blocks_of, scratch);
    const int start = sum_of_blocks<kMergeThreads>(sequence, blocks_of, scratch) + item % o.kv_heads * blocks;
    if (blocks > 0) {
      const KvParts parts = parts_of_item(start, blocks, blocks_per_part(total, o.parts, kLeast));
      first_slot          = slot_of_piece(parts.first, true);
      next_slot           = slot_of_piece(parts.first + 1, false);
      pieces              = parts.last - parts.first + 1;
    }
  }
  ptx::griddepcontrol_wait();  // the pieces are stored
  ptx::griddepcontrol_launch_dependents();
  if (head >= o.group || pieces == 1) return;
  const int slot_stride = o.splits > 0 ? 1 : 2;
  const auto at         = [&](int piece) {
    return (piece == 0 ? first_slot : next_slot + (piece - 1) * slot_stride) * int64_t{kGroup} + head;
  };
  float max_score = kLow, sum = 0, merged[kEach] = {};
  for (int piece = 0; piece < pieces; ++piece) max_score = fmaxf(max_score, o.partial_max_sum[at(piece)].x);
#pragma unroll 4
  for (int piece = 0; piece < pieces; ++piece) {
    const float2 max_sum = o.partial_max_sum[at(piece)];
    const float factor   = ptx::ex2_approx(max_sum.x - max_score);
    const float* from    = o.partial_out + at(piece) * D + lane * kEach;
    sum += factor * max_sum.y;
#pragma unroll
    for (int d = 0; d < kEach; ++d) merged[d] += factor * from[d];
  }
  const float inverse = o.normalizer(max_score, sum, item % o.kv_heads * o.group + head);
  auto* to = reinterpret_cast<uint32_t*>(o.out + (int64_t{item} * o.group + head) * D) + lane * kEach / 2;
#pragma unroll
  for (int d = 0; d < kEach; d += 2) to[d / 2] = pack_bf16x2(merged[d] * inverse, merged[d + 1] * inverse);
}

template <int D, class Score>
void launch(const PagedDecode& d, const Score& score, StreamRef stream) {
  using S            = TileShape<D>;
  Decode<Score> o    = {};
  const int64_t rows = d.q.extent(0), kv_heads = d.k.extent(1), pages = d.k.extent(0);
  o.q                 = d.q.data();
  o.contexts          = d.contexts.data();
  o.pages             = d.pages.data();
  o.pages_stride      = d.pages.stride(0);
  o.out               = d.out.data();
  const int64_t slots = paged_decode_workspace(rows, kv_heads, D, d.splits) / (kGroup * (D + 2));
  o.partial_out       = d.workspace.data();
  o.partial_max_sum   = reinterpret_cast<float2*>(d.workspace.data() + slots * kGroup * D);
  o.sinks             = d.sinks.extent(0) > 0 ? d.sinks.data() : nullptr;
  o.scale             = d.scale;
  o.window            = d.window;
  o.items             = static_cast<int>(rows * kv_heads);
  o.kv_heads          = static_cast<int>(kv_heads);
  o.group             = static_cast<int>(d.q.extent(1) / kv_heads);
  o.splits            = d.splits;
  o.parts             = std::min(multiprocessors(), static_cast<int>(kPagedDecodeMaxCtas));
  o.score             = score;
  const auto ctas     = static_cast<unsigned>(d.splits > 0 ? o.items * d.splits : o.parts);
  if (pages > 0) {
    const auto map_of = [&](const bf16* data) {
      return tensor_map(data, DType::bf16, pages * kv_heads * kPage, D, D * 2, kKeys, kBox,
                        Swizzle::bytes_128);
    };
    allow_shared_memory_once<paged_decode_kernel<D, Score>>(sizeof(Shared<D>));
    launch_with_pdl(paged_decode_kernel<D, Score>, dim3(ctas), dim3(S::kThreads), sizeof(Shared<D>), stream,
                    map_of(d.k.data()), map_of(d.v.data()), o);
  }
  launch_with_pdl(merge_kernel<D, Score>, dim3(static_cast<unsigned>(o.items)), dim3(kMergeThreads), 0,
                  stream, o);
}

}  // namespace

template <class Score>
void paged_decode_attention(const PagedDecode& d, const Score& score, StreamRef stream) {
  const int64_t rows = d.q.extent(0), heads = d.q.extent(1), size = d.q.extent(2), kv_heads = d.k.extent(1);
  FATHOM_EXPECT(size == 64 || size == 128, "paged_decode_attention: heads of 64 or 128 numbers");
  FATHOM_EXPECT(kv_heads > 0 && heads % kv_heads == 0 && heads >= kv_heads && heads / kv_heads <= kGroup,
                "paged_decode_attention: query heads must be 1 to 8 times the key-value heads");
  FATHOM_EXPECT(d.q.contiguous() && d.out.contiguous() && d.out.extent(0) == rows &&
                    d.out.extent(1) == heads && d.out.extent(2) == size,
                "paged_decode_attention: q and out must be contiguous and of one shape");
  for (const View<const bf16, 4>& cache : {d.k, d.v})
    FATHOM_EXPECT(cache.contiguous() && cache.extent(0) == d.k.extent(0) && cache.extent(1) == kv_heads &&
                      cache.extent(2) == kPage && cache.extent(3) == size,
                  "paged_decode_attention: keys and values must be contiguous [pages, Hkv, 64, D]");
  FATHOM_EXPECT(d.contexts.extent(0) == rows && d.contexts.contiguous() && d.pages.extent(0) == rows &&
                    d.pages.stride(1) == 1,
                "paged_decode_attention: each sequence has a context and a row of pages");
  FATHOM_EXPECT(d.sinks.extent(0) == 0 || (d.sinks.extent(0) == heads && d.sinks.contiguous()),
                "paged_decode_attention: each query head has a sink, or none has");
  FATHOM_EXPECT(d.scale > 0 && d.splits >= 0 && d.splits <= kPagedDecodeMaxSplits && rows * kv_heads <= 65535,
                "paged_decode_attention: scale > 0, at most 128 splits, at most 65535 sequences times heads");
  FATHOM_EXPECT(d.window > 0, "paged_decode_attention: a window has at least the query's own position");
  FATHOM_EXPECT(d.k.extent(0) * kv_heads * kPage < (int64_t{1} << 31) &&
                    rows * kv_heads * d.pages.extent(1) < (int64_t{1} << 30),
                "paged_decode_attention: rows of the cache are counted in 31 bits");
  FATHOM_EXPECT(d.workspace.contiguous() &&
                    d.workspace.extent(0) >= paged_decode_workspace(rows, kv_heads, size, d.splits),
                "paged_decode_attention: the workspace is smaller than paged_decode_workspace()");
  if (rows == 0) return;
  if (size == 64)
    launch<64>(d, score, stream);
  else
    launch<128>(d, score, stream);
}

template void paged_decode_attention(const PagedDecode&, const PlainScore&, StreamRef);
template void paged_decode_attention(const PagedDecode&, const Alibi&, StreamRef);
template void paged_decode_attention(const PagedDecode&, const RelativeBias&, StreamRef);
template void paged_decode_attention(const PagedDecode&, const SoftCap&, StreamRef);

}  // namespace fathom::kernels
