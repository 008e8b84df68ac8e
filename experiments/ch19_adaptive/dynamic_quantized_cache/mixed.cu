// out(s, h) = softmax(q(s, h) k' / 8, sink(h)) v        64 heads over 8 key-value heads of 64, pages in 3
// formats
//
// bytes   2048 a position in bf16, 1088 in FP8, 576 in NVFP4, each read once
// flops   16384 a position, on the tensor cores, and some 2 instructions to convert a number to bf16
// limit   DRAM bandwidth. H100: 64 x 1024 positions in 40 % of bf16's bytes are 52 MB, 17 us at 3.09 TB/s
// idea    the engine's tiles (kernels/attention/decode_attention.cuh) with a loop for each format. A warp
// takes every
//         fourth unit: a page in NVFP4 or FP8, half of one in bf16, so that a unit is 4.5 to 8.5 KB and one
//         pipeline serves all. Accumulators have dimensions in another order for each format: a warp adds
//         them to its sums in shared memory where its format changes, twice a sequence
#include "cache.h"
#include "kernels/attention/decode_attention.cuh"

namespace fathom::lab::dynamic_quantized_cache {
namespace {

using namespace kernels;
using decode::attend_tile, decode::kDims, decode::kKeys, decode::kLog2E, decode::OnlineSoftmax;

using Bf16 = Bf16KvFragments<kKeys>;
using Fp8  = Fp8KvFragments<kKeys>;
using Fp4  = Nvfp4KvFragments<kKeys>;

constexpr int kWarps = 4, kThreads = 32 * kWarps, kCtasPerSm = 3, kStages = 2;
constexpr int kStageBytes = Bf16::kBytes;  // the largest unit
static_assert(Fp8::kBytes <= kStageBytes && kFp4Bytes == 2 * Fp4::kBytes && kFp4Bytes <= kStageBytes &&
              kPage == 2 * kKeys);
constexpr int kSharedBytes = kWarps * kStages * kStageBytes;
constexpr int kRowStride =
    kDims + 4;  // floats: lanes 4 g + t, dimension g of head 2 t, use 32 different banks

struct Mixed {
  const bf16* q;
  Bf16KvPages in_bf16;
  Fp8KvPages in_fp8;
  Nvfp4KvPages in_fp4;
  const int32_t* pages;  // [S, pages_stride]
  const float* sinks;
  bf16* out;
  int pages_stride, context;
  int fp4_pages, fp8_pages;  // of each sequence, the oldest first; the others are in bf16

  __device__ int fp8_end() const { return fp4_pages + 2 * fp8_pages; }  // units in NVFP4 and FP8
};

// What a warp has found: [heads][dimensions], in units of 2^max, and sums of weights.
struct Sums {
  float out[decode::kGroup][kRowStride];
  float2 max_and_sum[decode::kGroup];
};

// A warp's units, in order: warp, warp + kWarps, ...
struct Units {
  const Mixed& o;
  const int32_t* pages;  // of the sequence
  char* stages;
  uint64_t* full;
  int head, count;  // of all warps
  int unit, done = 0;

  __device__ void fetch(int of, int i) const {
    if (of >= count || threadIdx.x % 32 != 0) return;
    char* const to          = stages + i % kStages * kStageBytes;
    uint64_t* const barrier = &full[i % kStages];
    if (of < o.fp4_pages) {
      ptx::mbarrier_arrive_expect_tx(barrier, kFp4Bytes);
      ptx::cp_async_bulk_load(to, o.in_fp4.strips(pages[of], head), kFp4Bytes, barrier);
    } else if (of < o.fp8_end()) {
      const int half = of - o.fp4_pages;
      ptx::mbarrier_arrive_expect_tx(barrier, Fp8::kBytes);
      ptx::cp_async_bulk_load(to, Fp8::source(o.in_fp8, pages[o.fp4_pages + half / 2], head, half % 2),
                              Fp8::kBytes, barrier);
    } else {
      const int half = of - o.fp8_end();
      const bf16* const from =
          Bf16::source(o.in_bf16, pages[o.fp4_pages + o.fp8_pages + half / 2], head, half % 2);
      ptx::mbarrier_arrive_expect_tx(barrier, Bf16::kBytes);
      ptx::cp_async_bulk_load(to, from, Bf16::kCopyBytes, barrier);
      ptx::cp_async_bulk_load(to + Bf16::kCopyBytes, from + Bf16::kCopyStride, Bf16::kCopyBytes, barrier);
    }
  }
};

// Adds what a warp found in pages of one format.
template <class Format>
__device__ void add(Sums& to, const OnlineSoftmax& state) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int head        = lane % 4 * 2 + h;
    const float sum       = column_reduce_sum(state.sum[h]);
    const float2 before   = to.max_and_sum[head];
    const float max_score = fmaxf(before.x, state.max_score[h]);  // finite: a unit has a key in reach
    const float old       = ptx::ex2_approx(before.x - max_score),
                now       = ptx::ex2_approx(state.max_score[h] - max_score);
    float* const row      = to.out[head] + lane / 4 * Format::kDimPerLane;
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float& out = row[Format::dimension(i, half)];
        out        = out * old + state.out[i][2 * half + h] * (now * Format::kValueFactor);
      }
    __syncwarp();  // all lanes have read what the next line changes
    if (lane < 4) to.max_and_sum[head] = {max_score, before.y * old + sum * now};
  }
  __syncwarp();  // other lanes add to these numbers next
}

// The warp's units before `end`, all in one format, kTiles tiles of 32 positions each. Unit `first` holds
// position `first_position` and those that follow.
template <class Format, int kTiles>
__device__ void attend(Units& units, int end, int first, int first_position, const uint32_t* q, Sums& sums) {
  if (units.unit >= end) return;
  const int lane = threadIdx.x % 32;
  uint32_t query[4][2];
  Format::load_query(query, q, lane);
  OnlineSoftmax state;
  for (; units.unit < end; units.unit += kWarps, ++units.done) {
    const int i       = units.done;
    char* const stage = units.stages + i % kStages * kStageBytes;
    ptx::mbarrier_wait(&units.full[i % kStages], i / kStages & 1);
    const int last = units.o.context - 1 - first_position - (units.unit - first) * (kTiles * kKeys);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      char* const at = stage + tile * Format::kBytes;
      // Only the last page, in bf16, may not be full.
      if (kTiles == 1 && last < kKeys - 1) {
        Format::mask_values(at, 0, last, lane);  // 0 times NaN is NaN
        ptx::fence_proxy_async();                // orders the stores before the next copy into the stage
        __syncwarp();                            // lanes read what other lanes cleared
      }
      attend_tile<Format>(state, query, at, 0, kTiles == 1 ? min(last, kKeys - 1) : kKeys - 1,
                          kScale * kLog2E * Format::kKeyFactor);
    }
    __syncwarp();  // all lanes have read the stage
    units.fetch(units.unit + kStages * kWarps, i + kStages);
  }
  add<Format>(sums, state);
}

// Grid: (key-value heads, sequences).
__global__ void __launch_bounds__(kThreads, kCtasPerSm) mixed_kernel(const __grid_constant__ Mixed o) {
  extern __shared__ __align__(128) char stages[];
  __shared__ uint64_t full[kWarps][kStages];
  __shared__ Sums sums[kWarps];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int head = blockIdx.x, sequence = blockIdx.y;
  const int bf16_at = (o.fp4_pages + o.fp8_pages) * kPage;  // the first position in bf16
  const int count   = o.fp8_end() + (o.context - bf16_at + kKeys - 1) / kKeys;

  if (lane == 0)
    for (uint64_t& barrier : full[warp]) ptx::mbarrier_init(&barrier, 1);
  ptx::fence_mbarrier_init();
  ptx::fence_proxy_async();  // TMA sees the initialised barriers
  for (int i = lane; i < decode::kGroup * kRowStride; i += 32) (&sums[warp].out[0][0])[i] = 0;
  if (lane < decode::kGroup) sums[warp].max_and_sum[lane] = {-INFINITY, 0};
  __syncwarp();  // the warp has its barriers and sums

  Units units{.o      = o,
              .pages  = o.pages + int64_t{sequence} * o.pages_stride,
              .stages = stages + warp * (kStages * kStageBytes),
              .full   = full[warp],
              .head   = head,
              .count  = count,
              .unit   = warp};
  for (int i = 0; i < kStages; ++i) units.fetch(warp + i * kWarps, i);
  const int first_head = head * kGroup;
  const auto* const q =
      reinterpret_cast<const uint32_t*>(o.q + ((int64_t{sequence} * kHeads + first_head) + lane / 4) * kDims);
  attend<Fp4, 2>(units, o.fp4_pages, 0, 0, q, sums[warp]);
  attend<Fp8, 1>(units, o.fp8_end(), o.fp4_pages, o.fp4_pages * kPage, q, sums[warp]);
  attend<Bf16, 1>(units, count, o.fp8_end(), bf16_at, q, sums[warp]);
  __syncthreads();  // all warps' sums are in shared memory

  // A thread merges four dimensions of a head.
  static_assert(kThreads == decode::kGroup * kDims / 4);
  const int h = threadIdx.x / (kDims / 4), d = threadIdx.x % (kDims / 4) * 4;
  const float sink = o.sinks[first_head + h] * kLog2E;
  float row_max    = sink;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) row_max = fmaxf(row_max, sums[w].max_and_sum[h].x);
  decode::MergedOutput row;
#pragma unroll
  for (int w = 0; w < kWarps; ++w)
    row.add(ptx::ex2_approx(sums[w].max_and_sum[h].x - row_max), sums[w].max_and_sum[h].y,
            *reinterpret_cast<const float4*>(&sums[w].out[h][d]));
  const float rescale                        = 1 / (row.sum + ptx::ex2_approx(sink - row_max));
  auto* const out                            = o.out + (int64_t{sequence} * kHeads + first_head) * kDims;
  reinterpret_cast<uint2*>(out)[threadIdx.x] = {pack_bf16x2(row.out.x * rescale, row.out.y * rescale),
                                                pack_bf16x2(row.out.z * rescale, row.out.w * rescale)};
}

}  // namespace

void mixed(const MixedCache& p, StreamRef stream) {
  if (p.out.size() == 0) return;
  FATHOM_EXPECT(p.window == 0 && p.context < (int64_t{1} << 30),
                "positions are counted in 31 bits, without window");
  const Mixed o{.q            = p.q.data(),
                .in_bf16      = p.in_bf16(),
                .in_fp8       = p.in_fp8(),
                .in_fp4       = p.in_fp4(),
                .pages        = p.pages.data(),
                .sinks        = p.sinks.data(),
                .out          = p.out.data(),
                .pages_stride = static_cast<int>(p.pages.extent(1)),
                .context      = static_cast<int>(p.context),
                .fp4_pages    = static_cast<int>(p.formats.fp4),
                .fp8_pages    = static_cast<int>(p.formats.fp8)};
  allow_shared_memory_once<mixed_kernel>(kSharedBytes);
  mixed_kernel<<<dim3(kKvHeads, static_cast<unsigned>(p.q.extent(0))), kThreads, kSharedBytes, stream>>>(o);
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::dynamic_quantized_cache
