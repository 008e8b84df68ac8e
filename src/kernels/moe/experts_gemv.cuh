// What a CTA of the experts' products for a few rows consists of: its share of the strips, worker warps that
// multiply, and a reduction warp that adds their sums. experts_gemv.cu launches it once for each layer,
// experts_gemv_fused.cu for both at once; experts_gemv.cu says why it is made like this.
#pragma once

#include "cuda/launch.cuh"
#include "cuda/multiprocessors.h"
#include "cuda/ptx.cuh"
#include "kernels/moe/experts_gemv.h"
#include "kernels/moe/swiglu_epilogue.cuh"
#include "kernels/moe/weighted_epilogue.cuh"
#include "kernels/quant/mxfp4_dequantize.cuh"

namespace fathom::kernels::experts_gemv {

inline constexpr int kMaxRows = 8, kMaxExpertRows = 32;
// Worker warps of a CTA, and the tiles that each has of a row of tiles, at most: 45 tiles are 2880 columns.
// The order of summation depends on these, and is the same for all shapes of strips and CTAs.
inline constexpr int kWorkers = 9, kTiles = 5, kThreads = 32 * kWorkers + 32;
static_assert(kWorkers * kTiles * kTile == kMaxGemvColumns);

// Divides n < 2^32 / divisor by a multiplication. A division would be some 30 dependent instructions before
// the first weight can be requested.
struct Divisor {
  uint32_t divisor, inverse;

  explicit Divisor(int64_t d)
      : divisor(static_cast<uint32_t>(d)), inverse(static_cast<uint32_t>((int64_t{1} << 32) / d + 1)) {}
  __device__ int quotient(int n) const {
    return divisor == 1 ? n : static_cast<int>(__umulhi(static_cast<uint32_t>(n), inverse));
  }
};

// The first layer: an expert row reads the row of its token.
struct UpProjection {
  static constexpr bool kIdsFromPreviousKernel = true;
  Divisor top_k;
  float limit, alpha;
  bf16* a;

  __device__ int row(int expert_row) const { return top_k.quotient(expert_row); }
  __device__ float weight(int) const { return 1; }
  __device__ void store(const PackedExperts& w, const float* bias, int p, int expert_row, float low,
                        float high, float) const {
    SwigluEpilogue{a, w.rows / 2, bias, w.output_scale, limit, alpha}(p, expert_row, low, high);
  }
};

// The second layer: an expert row reads its own row.
struct DownProjection {
  static constexpr bool kIdsFromPreviousKernel = false;
  const float* weights;
  float* expert_outputs;
  int64_t hidden;

  __device__ int row(int expert_row) const { return expert_row; }
  __device__ float weight(int expert_row) const { return weights[expert_row]; }
  __device__ void store(const PackedExperts& w, const float* bias, int p, int expert_row, float low,
                        float high, float weight) const {
    WeightedEpilogue{expert_outputs, hidden, bias, w.output_scale}(p, expert_row, low, high, weight);
  }
};

struct InputRows {
  const bf16* data;
  int64_t stride;
  int columns;
};

// An expert, and a bit mask of its expert rows.
struct ActiveExpert {
  int expert;
  uint32_t expert_rows;
};

// The experts that have a row, in the order of their first rows. Lane l holds the id of expert row l.
class ActiveExperts {
 public:
  __device__ ActiveExperts(const int32_t* experts, int expert_rows) : lane_(threadIdx.x % 32) {
    // Bypasses L1, which may still have ids that an earlier kernel read.
    id_     = lane_ < expert_rows ? __ldcg(experts + lane_) : -1;
    same_   = __match_any_sync(~0u, id_);
    firsts_ = __ballot_sync(~0u, id_ >= 0 && (same_ & below()) == 0);
  }
  __device__ int count() const { return __popc(firsts_); }

  // Expert number y, if there is one. By whole warps.
  __device__ ActiveExpert operator[](int y) const {
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

// The share of CTA `cta` of all strips; the first CTAs have one more than others. It has strips of at most
// two experts, because there are at least as many CTAs as experts.
struct Share {
  ActiveExpert first, second;
  int begin;          // strip of the first expert that the CTA begins with
  uint32_t until[2];  // number of strips of the first expert, and of both

  __device__ Share(const ActiveExperts& active, int cta, const Divisor& ctas,
                   const Divisor& strips_of_expert) {
    const int strips = static_cast<int>(strips_of_expert.divisor), all = active.count() * strips;
    const int each = ctas.quotient(all);
    const int over = all - each * static_cast<int>(ctas.divisor);  // this many CTAs have one strip more
    const int from = each * cta + min(cta, over);
    const int y    = strips_of_expert.quotient(from);
    first          = active[y];
    second         = active[y + 1];
    begin          = from - y * strips;
    until[1]       = static_cast<uint32_t>(each + (cta < over ? 1 : 0));
    until[0]       = min(until[1], static_cast<uint32_t>(strips - begin));
  }
};

// Iterates over the strips of a share. A strip is kGroups groups of 16 rows.
template <int kGroups>
class StripIterator {
 public:
  __device__ StripIterator(const Share& share, int strips, int across)
      : across_(across), left_(share.until[0]), left_of_second_(share.until[1] - share.until[0]) {
    second_ = share.second.expert * strips;
    set(share.first.expert * strips + share.begin);
  }
  __device__ bool done() const { return left_ == 0; }
  // Index of the strip among those of all experts.
  __device__ int strip() const { return strip_; }
  // Byte offset of the strip's scales. Its codes begin at 16 times that.
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

// Floats from one column of sums to the next: 4 more than a multiple of 16, so that the lanes of a warp, four
// columns of 8 rows, store to different banks.
__host__ __device__ constexpr int sums_stride(int groups) { return 16 * groups + 4; }
inline constexpr int kSums   = 2;  // strips whose sums are buffered for the reduction warp
inline constexpr int kBiases = 4;  // strips whose biases are in flight or in shared memory

// A CTA's shared memory, for experts with at most kRows rows.
template <int kGroups_, int kRows_>
struct Shared {
  static constexpr int kGroups = kGroups_, kRows = kRows_;

  uint4 rows[kWorkers][kTiles][kRows][8];  // for the tiles of each warp; 16-byte piece c of row r is at c ^ r
  float bias[kBiases][16 * kGroups];
  float sums[kSums][kWorkers][kRows][sums_stride(kGroups)];
  uint64_t full[kSums], empty[kSums];

  // By one thread, before a barrier of the CTA.
  __device__ void init_barriers() {
    for (int i = 0; i < kSums; ++i) {
      ptx::mbarrier_init(&full[i], 32 * kWorkers);
      ptx::mbarrier_init(&empty[i], 32);
    }
  }
};

// One strip of 16 rows in shared memory, of which each worker warp copies and reads its own part.
struct StagedStrip {
  uint4 words[kWorkers][kTiles][32];
  uint32_t scales[kWorkers][kTiles][8];
};

// A worker warp: tiles warp, warp + kWorkers, .. of each row of tiles. All members are inlined, so that the
// weights stay in registers. kFullDepth: every worker warp has kTiles tiles of a row of tiles.
template <bool kFullDepth, class Memory>
class Worker {
  static constexpr int kGroups = Memory::kGroups;
  static constexpr int kStride = sums_stride(kGroups);
  // Requests a tile of the next strip as soon as its registers are free, and not after the whole strip. That
  // saves 6 % of the time, but nothing for small strips, and there are registers for it only where the number
  // of tiles is known at compile time.
  static constexpr bool kLoadEarly = kFullDepth && kGroups == 2;

 public:
  __device__ __forceinline__ Worker(Memory& shared, const PackedExperts& w, const Share& share,
                                    const Divisor& strips_of_expert)
      : shared_(shared),
        ahead_(share, static_cast<int>(strips_of_expert.divisor), static_cast<int>(w.depth / kTile)) {
    take_from(w, share, strips_of_expert);
    tiles_  = tiles_ahead_;
    column_ = ptx::opaque((lane() & 3) * 2);
    sums_   = ptx::opaque(ptx::shared_address(&shared_.sums[0][warp()][0][0]) +
                          (column_ * kStride + (lane() >> 2)) * 4);
  }

  // The strips that are loaded from now on are those of `share` in w.
  __device__ __forceinline__ void take_from(const PackedExperts& w, const Share& share,
                                            const Divisor& strips_of_expert) {
    const int across = static_cast<int>(w.depth / kTile);
    tiles_ahead_     = kFullDepth ? kTiles : (across - warp() + kWorkers - 1) / kWorkers;
    codes_           = ptx::opaque(w.tiles + warp() * kTileBytes + lane() * 16);
    scale_           = ptx::opaque(w.scales + warp() * kScaleBytes + (lane() >> 2) * 4);
    ahead_           = StripIterator<kGroups>(share, static_cast<int>(strips_of_expert.divisor), across);
  }

  // Requests the next strip.
  __device__ __forceinline__ void load_all() {
    if (ahead_.done()) return;
#pragma unroll
    for (int j = 0; j < kTiles; ++j)
      if (j < tiles_ahead_) load(j);
    ahead_.next();
  }

  // Requests strip `which` of the share of w into shared memory. run() waits for it when it loads rows.
  __device__ __forceinline__ static void load_staged(StagedStrip& staged, const PackedExperts& w,
                                                     const Share& share, const Divisor& strips_of_expert,
                                                     int which) {
    static_assert(kFullDepth && kGroups == 1);
    StripIterator<kGroups> strip(share, static_cast<int>(strips_of_expert.divisor),
                                 static_cast<int>(w.depth / kTile));
    for (int i = 0; i < which && !strip.done(); ++i) strip.next();
    if (strip.done()) return;
    const int l = lane(), of = warp();
    const uint8_t* codes  = w.tiles + uint64_t{strip.scales()} * 16 + of * kTileBytes + l * 16;
    const uint8_t* scales = w.scales + strip.scales() + of * kScaleBytes;
#pragma unroll
    for (int j = 0; j < kTiles; ++j)
      ptx::cp_async_cg(&staged.words[of][j][l], codes + j * (kWorkers * kTileBytes));
    if (l < 2 * kTiles) {  // two lanes for the 32 bytes of a tile's scales
      const int j = l / 2, half = l % 2;
      ptx::cp_async_cg(&staged.scales[of][j][half * 4], scales + j * (kWorkers * kScaleBytes) + half * 16);
    }
    ptx::cp_async_commit_group();
  }

  // Multiplies the strips of the share that share() returns, of which the first is in flight to registers.
  // before_last() is called once all of them have been requested, unless there are none.
  template <class Layer, class ShareOf, class BeforeLast>
  __device__ __forceinline__ void run(const ShareOf& share, const InputRows& from, const Layer& layer,
                                      const BeforeLast& before_last) {
    tiles_ = tiles_ahead_;
#pragma unroll 1
    for (int which = 0; which < 2; ++which) {
      uint32_t left = which == 0 ? share().until[0] : share().until[1] - share().until[0];
      if (left == 0) continue;
      load_rows(which == 0 ? share().first.expert_rows : share().second.expert_rows, from, layer);
#pragma unroll 1
      for (; left > 0; --left) {
        if (left == 1 && (which == 1 || share().until[0] == share().until[1])) before_last();
        multiply<false>(nullptr);
      }
    }
  }

  // The same from a ring of kStrips strips in shared memory, whose first ones are in flight.
  template <int kStrips, class Layer, class ShareOf>
  __device__ __forceinline__ void run_staged(StagedStrip* staged, const PackedExperts& w,
                                             const ShareOf& share, const Divisor& strips_of_expert,
                                             const InputRows& from, const Layer& layer) {
    uint32_t done = 0;
#pragma unroll 1
    for (int which = 0; which < 2; ++which) {
      if (done == share().until[which]) continue;
      load_rows(which == 0 ? share().first.expert_rows : share().second.expert_rows, from, layer);
#pragma unroll 1
      for (; done < share().until[which]; ++done) {
        ptx::cp_async_wait_group<0>();
        __syncwarp();  // all lanes' copies of the strip have arrived
        multiply<true>(staged + done % kStrips);
        __syncwarp();  // all lanes have read it
        load_staged(staged[done % kStrips], w, share(), strips_of_expert, static_cast<int>(done) + kStrips);
      }
    }
  }

 private:
  // Hidden from the compiler, which would otherwise keep much that follows from them in registers.
  __device__ static int lane() { return ptx::opaque(static_cast<int>(threadIdx.x)) & 31; }
  __device__ static int warp() { return ptx::opaque(static_cast<int>(threadIdx.x)) >> 5; }
  static constexpr int kTileBytes = PackedExperts::kTileBytes, kScaleBytes = PackedExperts::kScaleBytes;

  __device__ __forceinline__ void load(int j) {  // tile j of the next strip
    const uint8_t* from_codes = codes_ + uint64_t{ahead_.scales()} * 16;
    const uint8_t* from_scale = scale_ + ahead_.scales();
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      words_[j][i] = ptx::ld_global_nc_no_allocate(from_codes + j * (kWorkers * kTileBytes) + i * 512);
      scales_[j][i] =
          __ldg(reinterpret_cast<const uint32_t*>(from_scale + j * (kWorkers * kScaleBytes) + i * 32));
    }
  }

  // Loads the warp's columns of the expert's rows.
  template <class Layer>
  __device__ __forceinline__ void load_rows(uint32_t of, const InputRows& from, const Layer& layer) {
    const int l = lane(), w = warp();
    rows_ = __popc(of);
    __syncwarp();  // no lane needs the previous rows any more
    const int r = l >> 2;
    if (r < rows_) {
      const bf16* row = from.data + layer.row(nth_bit(of, r)) * from.stride;
#pragma unroll
      for (int j = 0; j < kTiles; ++j)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int c = half * 4 + (l & 3), column = (w + j * kWorkers) * static_cast<int>(kTile) + c * 8;
          const bool there = column < from.columns;
          ptx::cp_async_cg(&shared_.rows[w][j][r][c ^ r], there ? row + column : row, there ? 16 : 0);
        }
    }
    ptx::cp_async_commit_group();
    // Addresses for ldmatrix: lanes 8 i .. 8 i + 7 point at piece i of 8 rows. The first row stands in for
    // missing rows, whose sums are not used.
    const int r_of_lane = (l & 7) < rows_ ? l & 7 : 0;
    row_addresses_ = ptx::opaque(ptx::shared_address(&shared_.rows[w][0][r_of_lane][(l >> 3) ^ r_of_lane]));
    ptx::cp_async_wait_group<0>();
    __syncwarp();  // all lanes' copies have arrived
  }

  template <bool kStaged>
  __device__ __forceinline__ void multiply(const StagedStrip* staged) {
    float sum[kGroups][4] = {};
    uint32_t words_at = 0, scales_at = 0;
    if constexpr (kStaged) {
      words_at  = ptx::opaque(ptx::shared_address(&staged->words[warp()][0][lane()]));
      scales_at = ptx::opaque(ptx::shared_address(&staged->scales[warp()][0][lane() >> 2]));
    }
    const bool more = kLoadEarly && !kStaged && !ahead_.done();
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      if (j >= tiles_) break;
      uint32_t b[2][4];
      ptx::ldmatrix_x4(b[0], row_addresses_ + j * sizeof(shared_.rows[0][0]));
      ptx::ldmatrix_x4(b[1], (row_addresses_ ^ 64) + j * sizeof(shared_.rows[0][0]));
      uint32_t of[kGroups][4];
#pragma unroll
      for (int i = 0; i < kGroups; ++i)
        unpack_scales(kStaged ? ptx::ld_shared(scales_at + j * 32) : scales_[j][i], of[i]);
      uint4 staged_word = {};
      if constexpr (kStaged) staged_word = ptx::ld_shared_v4(words_at + j * 512);
#pragma unroll
      for (int s = 0; s < 4; ++s) {
        const uint32_t of_step[2] = {b[s / 2][s % 2 * 2], b[s / 2][s % 2 * 2 + 1]};
#pragma unroll
        for (int i = 0; i < kGroups; ++i) {
          const uint4& word       = kStaged ? staged_word : words_[j][i];
          const uint32_t steps[4] = {word.x, word.y, word.z, word.w};
          uint32_t a[4];
          dequantize_fragment(steps[s], of[i][s / 2], of[i][2 + s / 2], a);
          ptx::mma_m16n8k16(sum[i], a, of_step);
        }
      }
      if (more) load(j);
    }
    if (more) ahead_.next();
    if (!kLoadEarly && !kStaged) load_all();
    const uint32_t barrier = ptx::shared_address(&shared_.full[0]) + n_ % kSums * 8;
    ptx::mbarrier_wait(barrier + static_cast<uint32_t>(sizeof(shared_.full)), (n_ / kSums + 1) % 2);
    const uint32_t to = sums_ + n_ % kSums * static_cast<int>(sizeof(shared_.sums[0]));
#pragma unroll
    for (int next = 0; next < 2; ++next)
      if (column_ + next < rows_)
#pragma unroll
        for (int i = 0; i < kGroups; ++i)
#pragma unroll
          for (int half = 0; half < 2; ++half)
            ptx::st_shared(to + (next * kStride + i * 16 + half * 8) * 4, sum[i][2 * half + next]);
    ptx::mbarrier_arrive(barrier);
    ++n_;
  }

  Memory& shared_;
  int tiles_ = 0, tiles_ahead_ = 0;  // of a row of tiles: of the strip in registers, and of the next
  const uint8_t *codes_ = nullptr, *scale_ = nullptr;
  StripIterator<kGroups> ahead_;
  uint4 words_[kTiles][kGroups];
  uint32_t scales_[kTiles][kGroups];
  int rows_               = 0;
  uint32_t row_addresses_ = 0;
  int column_             = 0;  // of a lane's first sums
  uint32_t sums_          = 0;
  uint32_t n_             = 0;  // strips multiplied
};

// The reduction warp. A lane adds up rows g and g + 8, g = lane % 8, for up to 2 kGroups pairs of a column
// and a group.
template <class Memory>
class Reducer {
  static constexpr int kGroups = Memory::kGroups;

 public:
  // Requests the first biases. `begin` strips came before.
  __device__ __forceinline__ Reducer(Memory& shared, const PackedExperts& w, const Share& share,
                                     const Divisor& strips_of_expert, uint32_t begin)
      : shared_(shared),
        w_(w),
        lane_(threadIdx.x & 31),
        strips_(static_cast<int>(strips_of_expert.divisor)),
        begin_(begin),
        ahead_(share, strips_, static_cast<int>(w.depth / kTile)),
        current_(ahead_) {
#pragma unroll 1
    for (int i = 0; i < kBiases - 1; ++i) copy();
  }

  template <class Layer>
  __device__ __forceinline__ void run(const Share& share, const Layer& layer) {
    int rows = 0, expert_row[2 * kGroups];
    float weight[2 * kGroups];
    const auto pair            = [&](int c) { return (lane_ >> 3) + 4 * c; };
    const auto set_expert_rows = [&](uint32_t of) {
      rows = __popc(of);
#pragma unroll
      for (int c = 0; c < 2 * kGroups; ++c)
        if (pair(c) < rows * kGroups) {
          expert_row[c] = nth_bit(of, pair(c) / kGroups);
          weight[c]     = layer.weight(expert_row[c]);
        }
    };
#pragma unroll 1
    for (uint32_t i = 0; !current_.done(); ++i, current_.next()) {
      if (i == 0 || i == share.until[0])
        set_expert_rows(i == 0 ? share.first.expert_rows : share.second.expert_rows);
      copy();
      ptx::cp_async_wait_group<kBiases - 1>();
      __syncwarp();  // other lanes copied some of the biases
      const uint32_t n = begin_ + i;
      ptx::mbarrier_wait(&shared_.full[n % kSums], n / kSums % 2);
      float low[2 * kGroups] = {}, high[2 * kGroups] = {};
#pragma unroll
      for (int c = 0; c < 2 * kGroups; ++c)
        if (pair(c) < rows * kGroups)
#pragma unroll
          for (int worker = 0; worker < kWorkers; ++worker) {
            const float* sums =
                &shared_.sums[n % kSums][worker][pair(c) / kGroups][pair(c) % kGroups * 16 + (lane_ & 7)];
            low[c] += sums[0];
            high[c] += sums[8];
          }
      ptx::mbarrier_arrive(&shared_.empty[n % kSums]);
      const int first_row = current_.strip() % strips_ * (16 * kGroups);
#pragma unroll
      for (int c = 0; c < 2 * kGroups; ++c)
        if (pair(c) < rows * kGroups)
          layer.store(w_, shared_.bias[i % kBiases] - first_row,
                      first_row + pair(c) % kGroups * 16 + (lane_ & 7), expert_row[c], low[c], high[c],
                      weight[c]);
      __syncwarp();  // all lanes have read the biases
    }
  }

 private:
  __device__ __forceinline__ void copy() {
    if (!ahead_.done()) {
      if (lane_ < 4 * kGroups)
        ptx::cp_async_cg(&shared_.bias[to_ % kBiases][lane_ * 4],
                         w_.bias + int64_t{ahead_.strip()} * (16 * kGroups) + lane_ * 4);
      ahead_.next();
    }
    ptx::cp_async_commit_group();
    ++to_;
  }

  Memory& shared_;
  const PackedExperts& w_;
  const int lane_, strips_;
  const uint32_t begin_;
  StripIterator<kGroups> ahead_, current_;
  int to_ = 0;
};

// What both launchers demand.
inline void expect_gemv_shapes(View<const bf16, 2> x, View<const int32_t, 2> experts,
                               const PackedExperts& w) {
  FATHOM_EXPECT(experts.extent(0) <= kMaxRows && experts.size() <= kMaxExpertRows && experts.contiguous(),
                "experts_gemv: experts [T, top_k] are contiguous, at most 8 tokens and 32 in all");
  FATHOM_EXPECT(x.stride(1) == 1 && x.stride(0) % 8 == 0 && x.extent(1) % 8 == 0 && x.extent(1) <= w.depth,
                "experts_gemv: rows of whole 16 bytes, at most w.depth columns");
  // Under 2^17 rows are under 2^13 strips of an expert. All active strips times that are below 2^31, so that
  // Divisor is exact.
  FATHOM_EXPECT(w.bias != nullptr && w.depth <= kMaxGemvColumns && w.rows < 1 << 17,
                "experts_gemv: with biases, at most 2880 columns, and under 2^17 rows");
}

}  // namespace fathom::kernels::experts_gemv
