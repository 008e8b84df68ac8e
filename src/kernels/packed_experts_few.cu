// Products of the experts that have a row with at most 8 rows each: weights are the A operand of mma.sync,
// rows are its 8 columns.
//
// What costs time is the way from the experts' ids, which the kernel before has just written, to the first
// weights, and whatever keeps weights from being under way all the time. So there are only as many blocks as
// the GPU has room for, each with an equal part of the strips of all experts that have a row; which those are
// a block finds out by itself, from the ids that a warp's lanes hold. Every worker warp has its own part of
// the columns. It keeps the rows' columns in its own part of shared memory, and has the weights of its next
// strip on their way to registers while it waits for nobody: no barrier stands between memory and products.
// Its sums go to one more warp, which adds them in the order of the parts and stores. The second layer's
// weights do not wait for the first layer's end.
//
// bytes   17/32 a weight; the rows, once for each block, from L2
// instructions  for 32 weights of a lane 52 to unpack, 4 HMMA, and 9 (strips of two groups of 16 rows) to 14
//         (of one) to load, count and hand over: half to two thirds of the time that the weights take from
//         memory, if an H200's schedulers issue all the time
// what is left  of 13.5 us for a token's first layer, of which memory needs 7.9: 1 us until the ids are there
//         and weights asked for, 2.4 more until the median block has its first strip, as all want theirs at
//         once. On half of the multiprocessors one block, never two, is through its first two strips 4 us
//         later than most, and the others have ended when it does its last. A ring in shared memory and more
//         blocks than there is room for gained nothing; prefetches to L2 cost.
#include <cuda_bf16.h>

#include "core/launch.cuh"
#include "core/multiprocessors.h"
#include "core/ptx.cuh"
#include "kernels/mxfp4_fragment.cuh"
#include "kernels/packed_epilogue.cuh"
#include "kernels/packed_experts.h"

namespace fathom::kernels {
namespace {

constexpr int kMaxRows = 8, kMaxSlots = 32;
// Worker warps of a block, and how many tiles of a row of tiles each has at most: 45 are 2880 columns. Sums
// depend on these, and are the same for all shapes of strips and blocks.
constexpr int kParts = 9, kTiles = 5;
static_assert(kParts * kTiles * kTile == kMostFewColumns);

// Divides n < 2^32 / divisor by a multiplication. A division is some 30 instructions, one after another,
// before the first weight can be asked for.
struct Divisor {
  uint32_t divisor, inverse;

  explicit Divisor(int64_t d)
      : divisor(static_cast<uint32_t>(d)), inverse(static_cast<uint32_t>((int64_t{1} << 32) / d + 1)) {}
  __device__ int quotient(int n) const {
    return divisor == 1 ? n : static_cast<int>(__umulhi(static_cast<uint32_t>(n), inverse));
  }
};

// The first layer reads for a slot the row of its token.
struct Up {
  static constexpr bool kIdsFromPrevious = true;
  Divisor top_k;
  float limit, alpha;
  bf16* a;

  __device__ int row(int slot) const { return top_k.quotient(slot); }
  __device__ float weight(int) const { return 1; }
  __device__ void store(const PackedExperts& w, const float* bias, int p, int slot, float low, float high,
                        float) const {
    StoreGated{a, w.rows / 2, bias, w.times, limit, alpha}(p, slot, low, high);
  }
};

// The second one a row of its own.
struct Down {
  static constexpr bool kIdsFromPrevious = false;
  const float* weights;
  float* slots;
  int64_t hidden;

  __device__ int row(int slot) const { return slot; }
  __device__ float weight(int slot) const { return weights[slot]; }
  __device__ void store(const PackedExperts& w, const float* bias, int p, int slot, float low, float high,
                        float weight) const {
    StoreWeighted{slots, hidden, bias, w.times}(p, slot, low, high, weight);
  }
};

struct Rows {
  const bf16* data;
  int64_t stride;
  int columns;
};

// An expert and a bit for each slot that it has.
struct Active {
  int expert;
  uint32_t slots;
};

// All that have any. Lane l holds the id of slot l.
class ActiveExperts {
 public:
  __device__ ActiveExperts(const int32_t* experts, int slots) : lane_(threadIdx.x % 32) {
    // Not from L1, which an earlier kernel may have filled with older ids.
    id_     = lane_ < slots ? __ldcg(experts + lane_) : -1;
    same_   = __match_any_sync(~0u, id_);
    firsts_ = __ballot_sync(~0u, id_ >= 0 && (same_ & below()) == 0);
  }
  __device__ int count() const { return __popc(firsts_); }

  // The y-th, if there is one. By whole warps.
  __device__ Active operator[](int y) const {
    const bool is_it = (firsts_ >> lane_ & 1) && __popc(firsts_ & below()) == y;
    const int lane   = (__ffs(__ballot_sync(~0u, is_it)) - 1) & 31;
    return {__shfl_sync(~0u, id_, lane), __shfl_sync(~0u, same_, lane)};
  }

 private:
  __device__ uint32_t below() const { return (1u << lane_) - 1; }

  int lane_, id_;
  uint32_t same_, firsts_;
};

__device__ inline int nth_bit(uint32_t bits, int n) {
#pragma unroll 1
  for (; n > 0; --n) bits &= bits - 1;
  return __ffs(bits) - 1;
}

// A block's strips, an equal part of all, of at most two experts: there are at least as many blocks
// as experts.
struct Share {
  Active first, second;
  int begin;          // the first one's strip that the block begins with
  uint32_t until[2];  // so many strips are the first one's, so many all

  __device__ Share(const ActiveExperts& active, const Divisor& blocks, const Divisor& strips_of_expert) {
    const int strips = static_cast<int>(strips_of_expert.divisor), all = active.count() * strips;
    const int block = static_cast<int>(blockIdx.x), each = blocks.quotient(all);
    const int over = all - each * static_cast<int>(blocks.divisor);  // as many blocks have one more
    const int from = each * block + min(block, over);
    const int y    = strips_of_expert.quotient(from);
    first          = active[y];
    second         = active[y + 1];
    begin          = from - y * strips;
    until[1]       = static_cast<uint32_t>(each + (block < over ? 1 : 0));
    until[0]       = min(until[1], static_cast<uint32_t>(strips - begin));
  }
};

// Walks over them. A strip is kGroups groups of 16 rows.
template <int kGroups>
class Walk {
 public:
  __device__ Walk(const Share& share, int strips, int across)
      : across_(across), left_(share.until[0]), left_of_second_(share.until[1] - share.until[0]) {
    second_ = share.second.expert * strips;
    set(share.first.expert * strips + share.begin);
  }
  __device__ bool done() const { return left_ == 0; }
  // Counted through all experts.
  __device__ int strip() const { return strip_; }
  // Where the strip's scales begin. Its codes begin at 16 times that.
  __device__ uint32_t scales() const { return scales_; }

  __device__ void next() {
    scales_ += 32 * kGroups;
    if (++strip_ % kStrips == 0) scales_ += (across_ - 1) * PackedExperts::kScaleBytes;
    if (--left_ == 0 && left_of_second_ > 0) {
      left_           = left_of_second_;
      left_of_second_ = 0;
      set(second_);
    }
  }

 private:
  static constexpr int kStrips = 4 / kGroups;  // of a row of tiles

  __device__ void set(int strip) {
    strip_  = strip;
    scales_ = static_cast<uint32_t>(strip / kStrips * across_) * PackedExperts::kScaleBytes +
              strip % kStrips * (32 * kGroups);
  }

  int across_, strip_, second_;
  uint32_t left_, left_of_second_, scales_;
};

// Floats from one column of sums to the next: 4 beyond a multiple of 16, so that the lanes of a warp, four
// columns of 8 rows, store to different banks.
__host__ __device__ constexpr int sums_stride(int groups) { return 16 * groups + 4; }
constexpr int kSums   = 2;  // strips whose sums are on their way
constexpr int kBiases = 4;  // strips whose biases are

template <int kGroups>
struct Shared {
  uint4 rows[kParts][kTiles][kMaxRows][8];  // of each warp's tiles; piece c of row r is at c ^ r
  float bias[kBiases][16 * kGroups];
  float sums[kSums][kParts][kMaxRows][sums_stride(kGroups)];
  uint64_t full[kSums], empty[kSums];
};

// kWhole: every warp has kTiles tiles of a row of tiles.
template <class Layer, bool kWhole, int kGroups, int kBlocks>
__global__ void __launch_bounds__(32 * kParts + 32, kBlocks)
    experts_few_kernel(Rows from, const int32_t* experts, int slots, PackedExperts w, Divisor blocks,
                       Divisor strips_of_expert, Layer layer) {
  constexpr int kTileBytes = PackedExperts::kTileBytes, kScaleBytes = PackedExperts::kScaleBytes;
  constexpr int kStride = sums_stride(kGroups);
  // A tile of the next strip is asked for as soon as its place is free, and not after the whole strip: 6 %
  // less time, but for small strips nothing, and there are registers for it only where all is known.
  constexpr bool kSoon = kWhole && kGroups == 2;
  extern __shared__ __align__(128) uint4 memory[];
  auto& shared   = *reinterpret_cast<Shared<kGroups>*>(memory);
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int across = static_cast<int>(w.depth / kTile), strips = static_cast<int>(strips_of_expert.divisor);
  if (threadIdx.x == 0)
    for (int i = 0; i < kSums; ++i) {
      ptx::mbarrier_init(&shared.full[i], 32 * kParts);
      ptx::mbarrier_init(&shared.empty[i], 32);
    }
  __syncthreads();  // the barriers are there

  if (Layer::kIdsFromPrevious) ptx::wait_for_previous();
  const ActiveExperts active(experts, slots);
  const Share share(active, blocks, strips_of_expert);

  if (warp < kParts) {
    // Tiles warp, warp + kParts, ... of each row of tiles.
    const int tiles      = kWhole ? kTiles : (across - warp + kParts - 1) / kParts;
    const uint8_t* codes = ptx::kept(w.tiles + warp * kTileBytes + lane * 16);
    const uint8_t* scale = ptx::kept(w.scales + warp * kScaleBytes + (lane >> 2) * 4);
    uint4 words[kTiles][kGroups];
    uint32_t scales[kTiles][kGroups];
    Walk<kGroups> ahead(share, strips, across);
    const auto load = [&](int j) {  // tile j of the strip ahead
      const uint8_t* from_codes = codes + uint64_t{ahead.scales()} * 16;
      const uint8_t* from_scale = scale + ahead.scales();
#pragma unroll
      for (int i = 0; i < kGroups; ++i) {
        words[j][i] = ptx::load_once(from_codes + j * (kParts * kTileBytes) + i * 512);
        scales[j][i] =
            __ldg(reinterpret_cast<const uint32_t*>(from_scale + j * (kParts * kScaleBytes) + i * 32));
      }
    };
    const auto load_all = [&] {
      if (ahead.done()) return;
#pragma unroll
      for (int j = 0; j < kTiles; ++j)
        if (j < tiles) load(j);
      ahead.next();
    };
    load_all();
    if (!Layer::kIdsFromPrevious) ptx::wait_for_previous();
    ptx::let_next_begin();

    // The warp's columns of the expert's rows.
    int rows             = 0;
    uint32_t points      = 0;
    const auto load_rows = [&](uint32_t of) {
      rows = __popc(of);
      __syncwarp();  // no lane needs the rows before
      const int r = lane >> 2;
      if (r < rows) {
        const bf16* row = from.data + layer.row(nth_bit(of, r)) * from.stride;
#pragma unroll
        for (int j = 0; j < kTiles; ++j)
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const int c      = half * 4 + (lane & 3),
                      column = (warp + j * kParts) * static_cast<int>(kTile) + c * 8;
            const bool there = column < from.columns;
            ptx::cp_async_16(&shared.rows[warp][j][r][c ^ r], there ? row + column : row, there ? 16 : 0);
          }
      }
      ptx::cp_async_commit();
      // Lanes 8 i .. 8 i + 7 point at piece i of 8 rows. For a row that is not there the first takes the
      // place: nobody looks at what becomes of it.
      const int r_of_lane = (lane & 7) < rows ? lane & 7 : 0;
      points = ptx::kept(ptx::shared_address(&shared.rows[warp][0][r_of_lane][(lane >> 3) ^ r_of_lane]));
      ptx::cp_async_wait<0>();
      __syncwarp();  // all lanes' copies are there
    };
    const int column       = (lane & 3) * 2;
    const uint32_t sums    = ptx::kept(ptx::shared_address(&shared.sums[0][warp][column][lane >> 2]));
    const uint32_t full    = ptx::kept(ptx::shared_address(&shared.full[0]));
    constexpr int kToEmpty = sizeof(shared.full);
    uint32_t n             = 0;
    const auto multiply    = [&] {
      float sum[kGroups][4] = {};
      const bool more       = kSoon && !ahead.done();
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        if (j >= tiles) break;
        uint32_t b[2][4];
        ptx::load_matrices(b[0], points + j * sizeof(shared.rows[0][0]));
        ptx::load_matrices(b[1], (points ^ 64) + j * sizeof(shared.rows[0][0]));
        uint32_t of[kGroups][4];
#pragma unroll
        for (int i = 0; i < kGroups; ++i) unpack_scales(scales[j][i], of[i]);
#pragma unroll
        for (int s = 0; s < 4; ++s) {
          const uint32_t of_step[2] = {b[s / 2][s % 2 * 2], b[s / 2][s % 2 * 2 + 1]};
#pragma unroll
          for (int i = 0; i < kGroups; ++i) {
            const uint4& word       = words[j][i];
            const uint32_t steps[4] = {word.x, word.y, word.z, word.w};
            uint32_t a[4];
            unpack_fragment(steps[s], of[i][s / 2], of[i][2 + s / 2], a);
            ptx::mma_16x8x16(sum[i], a, of_step);
          }
        }
        if (more) load(j);
      }
      if (more) ahead.next();
      if (!kSoon) load_all();
      const uint32_t barrier = full + n % kSums * 8;
      ptx::mbarrier_wait(barrier + kToEmpty, (n / kSums + 1) % 2);
      const uint32_t to = sums + n % kSums * static_cast<int>(sizeof(shared.sums[0]));
#pragma unroll
      for (int next = 0; next < 2; ++next)
        if (column + next < rows)
#pragma unroll
          for (int i = 0; i < kGroups; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half)
              ptx::store_shared_4(to + (next * kStride + i * 16 + half * 8) * 4, sum[i][2 * half + next]);
      ptx::mbarrier_arrive(barrier);
      ++n;
    };
#pragma unroll 1
    for (int which = 0; which < 2; ++which) {
      const uint32_t until = which == 0 ? share.until[0] : share.until[1];
      if (n == until) continue;
      load_rows(which == 0 ? share.first.slots : share.second.slots);
#pragma unroll 1
      while (n < until) multiply();
    }
    return;
  }

  Walk<kGroups> ahead(share, strips, across), walk(share, strips, across);
  int to          = 0;
  const auto copy = [&] {
    if (!ahead.done()) {
      if (lane < 4 * kGroups)
        ptx::cp_async_16(&shared.bias[to % kBiases][lane * 4],
                         w.bias + int64_t{ahead.strip()} * (16 * kGroups) + lane * 4);
      ahead.next();
    }
    ptx::cp_async_commit();
    ++to;
  };
#pragma unroll 1
  for (int i = 0; i < kBiases - 1; ++i) copy();
  if (!Layer::kIdsFromPrevious) ptx::wait_for_previous();
  ptx::let_next_begin();

  // A lane adds up rows g and g + 8, g = lane % 8, of up to 2 kGroups pairs of a column and a group.
  int rows = 0, slot[2 * kGroups];
  float weight[2 * kGroups];
  const auto pair      = [&](int c) { return (lane >> 3) + 4 * c; };
  const auto set_slots = [&](uint32_t of) {
    rows = __popc(of);
#pragma unroll
    for (int c = 0; c < 2 * kGroups; ++c)
      if (pair(c) < rows * kGroups) {
        slot[c]   = nth_bit(of, pair(c) / kGroups);
        weight[c] = layer.weight(slot[c]);
      }
  };
#pragma unroll 1
  for (uint32_t n = 0; !walk.done(); ++n, walk.next()) {
    if (n == 0 || n == share.until[0]) set_slots(n == 0 ? share.first.slots : share.second.slots);
    copy();
    ptx::cp_async_wait<kBiases - 1>();
    __syncwarp();  // biases come by other lanes
    ptx::mbarrier_wait(&shared.full[n % kSums], n / kSums % 2);
    float low[2 * kGroups] = {}, high[2 * kGroups] = {};
#pragma unroll
    for (int c = 0; c < 2 * kGroups; ++c)
      if (pair(c) < rows * kGroups)
#pragma unroll
        for (int part = 0; part < kParts; ++part) {
          const float* sums =
              &shared.sums[n % kSums][part][pair(c) / kGroups][pair(c) % kGroups * 16 + (lane & 7)];
          low[c] += sums[0];
          high[c] += sums[8];
        }
    ptx::mbarrier_arrive(&shared.empty[n % kSums]);
    const int first_row = walk.strip() % strips * (16 * kGroups);
#pragma unroll
    for (int c = 0; c < 2 * kGroups; ++c)
      if (pair(c) < rows * kGroups)
        layer.store(w, shared.bias[n % kBiases] - first_row, first_row + pair(c) % kGroups * 16 + (lane & 7),
                    slot[c], low[c], high[c], weight[c]);
    __syncwarp();  // all lanes have used the biases
  }
}

template <bool kWhole, int kGroups, int kBlocks, class Layer>
void launch_shape(const Rows& rows, const int32_t* experts, int slots, const PackedExperts& w,
                  const Layer& layer, StreamRef stream) {
  constexpr auto kKernel    = experts_few_kernel<Layer, kWhole, kGroups, kBlocks>;
  static const bool allowed = (allow_shared_memory(kKernel, sizeof(Shared<kGroups>)), true);
  static_cast<void>(allowed);
  const int blocks     = kBlocks * multiprocessors();
  const int64_t strips = w.rows / (16 * kGroups);
  FATHOM_EXPECT(blocks >= kMaxSlots,
                "experts of few rows: the GPU has fewer multiprocessors than experts may be active");
  launch_chained(kKernel, blocks, 32 * kParts + 32, sizeof(Shared<kGroups>), stream, rows, experts, slots, w,
                 Divisor(blocks), Divisor(strips), layer);
}

template <class Layer>
void launch(View<const bf16, 2> x, View<const int32_t, 2> experts, const PackedExperts& w, const Layer& layer,
            StreamRef stream) {
  FATHOM_EXPECT(experts.extent(0) <= kMaxRows && experts.size() <= kMaxSlots && experts.contiguous(),
                "experts of few rows: experts [T, top_k] are contiguous, at most 8 tokens and 32 in all");
  FATHOM_EXPECT(x.stride(1) == 1 && x.stride(0) % 8 == 0 && x.extent(1) % 8 == 0 && x.extent(1) <= w.depth,
                "experts of few rows: rows of whole 16 bytes, at most w.depth columns");
  // Under 2^17 rows are under 2^13 strips of an expert, and all slots' strips times those, 2^31: Divisor is
  // exact.
  FATHOM_EXPECT(w.bias != nullptr && w.depth <= kMostFewColumns && w.rows < 1 << 17,
                "experts of few rows: with biases, at most 2880 columns, and under 2^17 rows");
  if (experts.size() == 0 || w.rows == 0) return;
  const Rows rows{x.data(), x.stride(0), static_cast<int>(x.extent(1))};
  const auto slots = static_cast<int>(experts.size());
  if (w.depth < kMostFewColumns)
    return launch_shape<false, 2, 2>(rows, experts.data(), slots, w, layer, stream);
  // One token's experts are little work: smaller strips divide it better.
  if (experts.extent(0) == 1) return launch_shape<true, 1, 3>(rows, experts.data(), slots, w, layer, stream);
  launch_shape<true, 2, 2>(rows, experts.data(), slots, w, layer, stream);
}

}  // namespace

void experts_up_few(View<const bf16, 2> x, View<const int32_t, 2> experts, const PackedExperts& w1,
                    float limit, float alpha, View<bf16, 2> a, StreamRef stream) {
  FATHOM_EXPECT(x.extent(0) == experts.extent(0) && a.extent(0) == experts.size() &&
                    a.extent(1) == w1.rows / 2 && a.contiguous(),
                "experts_up_few: x is [T, H], a [T top_k, units], contiguous");
  launch(x, experts, w1,
         Up{.top_k = Divisor(std::max<int64_t>(1, experts.extent(1))),
            .limit = limit,
            .alpha = alpha,
            .a     = a.data()},
         stream);
}

void experts_down_few(View<const bf16, 2> a, View<const int32_t, 2> experts, View<const float, 2> weights,
                      const PackedExperts& w2, View<float, 2> slots, StreamRef stream) {
  FATHOM_EXPECT(a.extent(0) == experts.size() && weights.size() == experts.size() && weights.contiguous() &&
                    slots.extent(0) == experts.size() && slots.contiguous() && slots.extent(1) <= w2.rows,
                "experts_down_few: a and slots have T top_k rows, weights are [T, top_k], contiguous");
  launch(a, experts, w2, Down{.weights = weights.data(), .slots = slots.data(), .hidden = slots.extent(1)},
         stream);
}

}  // namespace fathom::kernels
