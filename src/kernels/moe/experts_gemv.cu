// Products of the experts that have a row with at most 8 rows each: weights are the A operand of mma.sync,
// rows are its 8 columns.
//
// Two things cost time: the latency from the experts' ids, which the previous kernel has just written, to the
// first weights, and whatever keeps weight loads from being in flight all the time. So there are only as many
// CTAs as the GPU has room for, each with an equal share of the strips of all active experts (persistent). A
// CTA derives its share by itself, from the ids that a warp's lanes hold. Each worker warp has its own part
// of the columns. It keeps the rows' columns in its own part of shared memory, and has the weights of its
// next strip in flight to registers while it computes: no barrier stands between memory and products. One
// more warp, the reduction warp, adds the workers' sums in a fixed order and stores. The second layer's
// weight loads do not wait for the end of the first layer.
//
// bytes   17/32 a weight; the rows, once for each CTA, from L2
// flops   2 for each weight and row
// limit   memory bandwidth
// instructions  for 32 weights of a lane: 52 to dequantise, 4 HMMA, and 9 (strips of two groups of 16 rows)
// to
//         14 (of one) to load, count and hand over. That is half to two thirds of the time that the weights
//         take from memory, if an H200's schedulers issue all the time
// overhead  a token's first layer takes 13.5 us, of which memory needs 7.9. 1 us passes until the ids are
// there
//         and weights are requested, 2.4 more until the median CTA has its first strip, because all request
//         theirs at once. On half of the multiprocessors one CTA, never two, finishes its first two strips
//         4 us later than most, and the others have ended when it does its last. A pipeline in shared memory,
//         and more CTAs than fit at once, gained nothing; prefetches to L2 cost time.
#include "cuda/launch.cuh"
#include "cuda/multiprocessors.h"
#include "cuda/ptx.cuh"
#include "kernels/moe/experts_gemv.h"
#include "kernels/moe/swiglu_epilogue.cuh"
#include "kernels/moe/weighted_epilogue.cuh"
#include "kernels/quant/mxfp4_dequantize.cuh"

namespace fathom::kernels {
namespace {

constexpr int kMaxRows = 8, kMaxExpertRows = 32;
// Worker warps of a CTA, and the tiles that each has of a row of tiles, at most: 45 tiles are 2880 columns.
// The order of summation depends on these, and is the same for all shapes of strips and CTAs.
constexpr int kWorkers = 9, kTiles = 5;
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

// A CTA's share of all strips. It has strips of at most two experts, because there are at least as many CTAs
// as experts.
struct Share {
  ActiveExpert first, second;
  int begin;          // strip of the first expert that the CTA begins with
  uint32_t until[2];  // number of strips of the first expert, and of both

  __device__ Share(const ActiveExperts& active, const Divisor& ctas, const Divisor& strips_of_expert) {
    const int strips = static_cast<int>(strips_of_expert.divisor), all = active.count() * strips;
    const int cta = static_cast<int>(blockIdx.x), each = ctas.quotient(all);
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
constexpr int kSums   = 2;  // strips whose sums are buffered for the reduction warp
constexpr int kBiases = 4;  // strips whose biases are in flight or in shared memory

template <int kGroups>
struct Shared {
  uint4 rows[kWorkers][kTiles][kMaxRows]
            [8];  // for the tiles of each warp; 16-byte piece c of row r is at c ^ r
  float bias[kBiases][16 * kGroups];
  float sums[kSums][kWorkers][kMaxRows][sums_stride(kGroups)];
  uint64_t full[kSums], empty[kSums];
};

// kFullDepth: every worker warp has kTiles tiles of a row of tiles.
template <class Layer, bool kFullDepth, int kGroups, int kCtasPerSm>
__global__ void __launch_bounds__(32 * kWorkers + 32, kCtasPerSm)
    experts_gemv_mxfp4_kernel(InputRows from, const int32_t* experts, int expert_rows, PackedExperts w,
                              Divisor ctas, Divisor strips_of_expert, Layer layer) {
  constexpr int kTileBytes = PackedExperts::kTileBytes, kScaleBytes = PackedExperts::kScaleBytes;
  constexpr int kStride = sums_stride(kGroups);
  // Requests a tile of the next strip as soon as its registers are free, and not after the whole strip. That
  // saves 6 % of the time, but nothing for small strips, and there are registers for it only where the number
  // of tiles is known at compile time.
  constexpr bool kLoadEarly = kFullDepth && kGroups == 2;
  extern __shared__ __align__(128) uint4 memory[];
  auto& shared   = *reinterpret_cast<Shared<kGroups>*>(memory);
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int across = static_cast<int>(w.depth / kTile), strips = static_cast<int>(strips_of_expert.divisor);
  if (threadIdx.x == 0)
    for (int i = 0; i < kSums; ++i) {
      ptx::mbarrier_init(&shared.full[i], 32 * kWorkers);
      ptx::mbarrier_init(&shared.empty[i], 32);
    }
  __syncthreads();  // the barriers are initialised

  if (Layer::kIdsFromPreviousKernel) ptx::griddepcontrol_wait();
  const ActiveExperts active(experts, expert_rows);
  const Share share(active, ctas, strips_of_expert);

  if (warp < kWorkers) {
    // Worker warp: tiles warp, warp + kWorkers, .. of each row of tiles.
    const int tiles      = kFullDepth ? kTiles : (across - warp + kWorkers - 1) / kWorkers;
    const uint8_t* codes = ptx::opaque(w.tiles + warp * kTileBytes + lane * 16);
    const uint8_t* scale = ptx::opaque(w.scales + warp * kScaleBytes + (lane >> 2) * 4);
    uint4 words[kTiles][kGroups];
    uint32_t scales[kTiles][kGroups];
    StripIterator<kGroups> ahead(share, strips, across);
    const auto load = [&](int j) {  // tile j of the next strip
      const uint8_t* from_codes = codes + uint64_t{ahead.scales()} * 16;
      const uint8_t* from_scale = scale + ahead.scales();
#pragma unroll
      for (int i = 0; i < kGroups; ++i) {
        words[j][i] = ptx::ld_global_nc_no_allocate(from_codes + j * (kWorkers * kTileBytes) + i * 512);
        scales[j][i] =
            __ldg(reinterpret_cast<const uint32_t*>(from_scale + j * (kWorkers * kScaleBytes) + i * 32));
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
    if (!Layer::kIdsFromPreviousKernel) ptx::griddepcontrol_wait();
    ptx::griddepcontrol_launch_dependents();

    // Loads the warp's columns of the expert's rows.
    int rows               = 0;
    uint32_t row_addresses = 0;
    const auto load_rows   = [&](uint32_t of) {
      rows = __popc(of);
      __syncwarp();  // no lane needs the previous rows any more
      const int r = lane >> 2;
      if (r < rows) {
        const bf16* row = from.data + layer.row(nth_bit(of, r)) * from.stride;
#pragma unroll
        for (int j = 0; j < kTiles; ++j)
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const int c      = half * 4 + (lane & 3),
                      column = (warp + j * kWorkers) * static_cast<int>(kTile) + c * 8;
            const bool there = column < from.columns;
            ptx::cp_async_cg(&shared.rows[warp][j][r][c ^ r], there ? row + column : row, there ? 16 : 0);
          }
      }
      ptx::cp_async_commit_group();
      // Addresses for ldmatrix: lanes 8 i .. 8 i + 7 point at piece i of 8 rows. The first row stands in for
      // missing rows, whose sums are not used.
      const int r_of_lane = (lane & 7) < rows ? lane & 7 : 0;
      row_addresses =
          ptx::opaque(ptx::shared_address(&shared.rows[warp][0][r_of_lane][(lane >> 3) ^ r_of_lane]));
      ptx::cp_async_wait_group<0>();
      __syncwarp();  // all lanes' copies have arrived
    };
    const int column       = (lane & 3) * 2;
    const uint32_t sums    = ptx::opaque(ptx::shared_address(&shared.sums[0][warp][column][lane >> 2]));
    const uint32_t full    = ptx::opaque(ptx::shared_address(&shared.full[0]));
    constexpr int kToEmpty = sizeof(shared.full);
    uint32_t n             = 0;
    const auto multiply    = [&] {
      float sum[kGroups][4] = {};
      const bool more       = kLoadEarly && !ahead.done();
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        if (j >= tiles) break;
        uint32_t b[2][4];
        ptx::ldmatrix_x4(b[0], row_addresses + j * sizeof(shared.rows[0][0]));
        ptx::ldmatrix_x4(b[1], (row_addresses ^ 64) + j * sizeof(shared.rows[0][0]));
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
            dequantize_fragment(steps[s], of[i][s / 2], of[i][2 + s / 2], a);
            ptx::mma_m16n8k16(sum[i], a, of_step);
          }
        }
        if (more) load(j);
      }
      if (more) ahead.next();
      if (!kLoadEarly) load_all();
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
              ptx::st_shared(to + (next * kStride + i * 16 + half * 8) * 4, sum[i][2 * half + next]);
      ptx::mbarrier_arrive(barrier);
      ++n;
    };
#pragma unroll 1
    for (int which = 0; which < 2; ++which) {
      const uint32_t until = which == 0 ? share.until[0] : share.until[1];
      if (n == until) continue;
      load_rows(which == 0 ? share.first.expert_rows : share.second.expert_rows);
#pragma unroll 1
      while (n < until) multiply();
    }
    return;
  }

  StripIterator<kGroups> ahead(share, strips, across), current(share, strips, across);
  int to          = 0;
  const auto copy = [&] {
    if (!ahead.done()) {
      if (lane < 4 * kGroups)
        ptx::cp_async_cg(&shared.bias[to % kBiases][lane * 4],
                         w.bias + int64_t{ahead.strip()} * (16 * kGroups) + lane * 4);
      ahead.next();
    }
    ptx::cp_async_commit_group();
    ++to;
  };
#pragma unroll 1
  for (int i = 0; i < kBiases - 1; ++i) copy();
  if (!Layer::kIdsFromPreviousKernel) ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();

  // The reduction warp. A lane adds up rows g and g + 8, g = lane % 8, for up to 2 kGroups pairs of a column
  // and a group.
  int rows = 0, expert_row[2 * kGroups];
  float weight[2 * kGroups];
  const auto pair            = [&](int c) { return (lane >> 3) + 4 * c; };
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
  for (uint32_t n = 0; !current.done(); ++n, current.next()) {
    if (n == 0 || n == share.until[0])
      set_expert_rows(n == 0 ? share.first.expert_rows : share.second.expert_rows);
    copy();
    ptx::cp_async_wait_group<kBiases - 1>();
    __syncwarp();  // other lanes copied some of the biases
    ptx::mbarrier_wait(&shared.full[n % kSums], n / kSums % 2);
    float low[2 * kGroups] = {}, high[2 * kGroups] = {};
#pragma unroll
    for (int c = 0; c < 2 * kGroups; ++c)
      if (pair(c) < rows * kGroups)
#pragma unroll
        for (int worker = 0; worker < kWorkers; ++worker) {
          const float* sums =
              &shared.sums[n % kSums][worker][pair(c) / kGroups][pair(c) % kGroups * 16 + (lane & 7)];
          low[c] += sums[0];
          high[c] += sums[8];
        }
    ptx::mbarrier_arrive(&shared.empty[n % kSums]);
    const int first_row = current.strip() % strips * (16 * kGroups);
#pragma unroll
    for (int c = 0; c < 2 * kGroups; ++c)
      if (pair(c) < rows * kGroups)
        layer.store(w, shared.bias[n % kBiases] - first_row, first_row + pair(c) % kGroups * 16 + (lane & 7),
                    expert_row[c], low[c], high[c], weight[c]);
    __syncwarp();  // all lanes have read the biases
  }
}

template <bool kFullDepth, int kGroups, int kCtasPerSm, class Layer>
void launch_shape(const InputRows& rows, const int32_t* experts, int expert_rows, const PackedExperts& w,
                  const Layer& layer, StreamRef stream) {
  constexpr auto kKernel = experts_gemv_mxfp4_kernel<Layer, kFullDepth, kGroups, kCtasPerSm>;
  allow_shared_memory_once<kKernel>(sizeof(Shared<kGroups>));
  const int ctas       = kCtasPerSm * multiprocessors();
  const int64_t strips = w.rows / (16 * kGroups);
  FATHOM_EXPECT(ctas >= kMaxExpertRows,
                "experts_gemv: the GPU has fewer multiprocessors than experts may be active");
  launch_with_pdl(kKernel, ctas, 32 * kWorkers + 32, sizeof(Shared<kGroups>), stream, rows, experts,
                  expert_rows, w, Divisor(ctas), Divisor(strips), layer);
}

template <class Layer>
void launch(View<const bf16, 2> x, View<const int32_t, 2> experts, const PackedExperts& w, const Layer& layer,
            StreamRef stream) {
  FATHOM_EXPECT(experts.extent(0) <= kMaxRows && experts.size() <= kMaxExpertRows && experts.contiguous(),
                "experts_gemv: experts [T, top_k] are contiguous, at most 8 tokens and 32 in all");
  FATHOM_EXPECT(x.stride(1) == 1 && x.stride(0) % 8 == 0 && x.extent(1) % 8 == 0 && x.extent(1) <= w.depth,
                "experts_gemv: rows of whole 16 bytes, at most w.depth columns");
  // Under 2^17 rows are under 2^13 strips of an expert. All active strips times that are below 2^31, so that
  // Divisor is exact.
  FATHOM_EXPECT(w.bias != nullptr && w.depth <= kMaxGemvColumns && w.rows < 1 << 17,
                "experts_gemv: with biases, at most 2880 columns, and under 2^17 rows");
  if (experts.size() == 0 || w.rows == 0) return;
  const InputRows rows{x.data(), x.stride(0), static_cast<int>(x.extent(1))};
  const auto expert_rows = static_cast<int>(experts.size());
  if (w.depth < kMaxGemvColumns)
    return launch_shape<false, 2, 2>(rows, experts.data(), expert_rows, w, layer, stream);
  // One token's experts are little work, which smaller strips divide more evenly.
  if (experts.extent(0) == 1)
    return launch_shape<true, 1, 3>(rows, experts.data(), expert_rows, w, layer, stream);
  launch_shape<true, 2, 2>(rows, experts.data(), expert_rows, w, layer, stream);
}

}  // namespace

void experts_up_gemv(View<const bf16, 2> x, View<const int32_t, 2> experts, const PackedExperts& w1,
                     float limit, float alpha, View<bf16, 2> a, StreamRef stream) {
  FATHOM_EXPECT(x.extent(0) == experts.extent(0) && a.extent(0) == experts.size() &&
                    a.extent(1) == w1.rows / 2 && a.contiguous(),
                "experts_up_gemv: x is [T, H], a [T top_k, units], contiguous");
  launch(x, experts, w1,
         UpProjection{.top_k = Divisor(std::max<int64_t>(1, experts.extent(1))),
                      .limit = limit,
                      .alpha = alpha,
                      .a     = a.data()},
         stream);
}

void experts_down_gemv(View<const bf16, 2> a, View<const int32_t, 2> experts, View<const float, 2> weights,
                       const PackedExperts& w2, View<float, 2> expert_outputs, StreamRef stream) {
  FATHOM_EXPECT(a.extent(0) == experts.size() && weights.size() == experts.size() && weights.contiguous() &&
                    expert_outputs.extent(0) == experts.size() && expert_outputs.contiguous() &&
                    expert_outputs.extent(1) <= w2.rows,
                "experts_down_gemv: a and expert_rows have T top_k rows, weights are [T, top_k], contiguous");
  launch(a, experts, w2,
         DownProjection{.weights        = weights.data(),
                        .expert_outputs = expert_outputs.data(),
                        .hidden         = expert_outputs.extent(1)},
         stream);
}

}  // namespace fathom::kernels
