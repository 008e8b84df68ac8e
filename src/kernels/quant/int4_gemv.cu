// y(m, t, n) = sum_k x(m, t, k) scale(m, n, k / G) (code(m, n, k) - zero(m, n, k / G))
//
// bytes   N K / 2 of codes and 2.5 of each group's scale and zero point, once, whatever T
// flops   2 T N K, by the tensor cores
// limit   memory bandwidth. H200: 8 matrices of 4096 x 4096, 70 MB, take 15 us at 4.55 TB/s
// idea    Weights go from memory into registers, four steps of 16 rows x 128 columns ahead. (A ring in shared
//         memory was no faster: see the notes of ch16/int4_gemv_gpu.) There two codes become bf16 by three
//         instructions: a shift; LOP3 puts four bits below the exponent of 128 (bf16 has seven bits there, so
//         128 + code is exact); 128 + zero is subtracted, which is exact too. The scale is left to the sums:
//         each group has its own, and only its sum in fp32 is multiplied. So no weight is ever rounded.
//         (Frantar et al., "MARLIN", arXiv 2408.11743; Kim et al., "Who Says Elephants Can't Run", arXiv
//         2211.10017.)
//
// Units of work are 16 rows of weights. A CTA, one for each multiprocessor, has units one after another, and
// its 16 warps split their K: so loads go on across the end of a unit, and a CTA reads x once for each
// matrix. A further warp copies x to shared memory and adds up the warps' sums, while they are at the next
// units.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include "cuda/launch.cuh"
#include "cuda/multiprocessors.h"
#include "cuda/ptx.cuh"
#include "kernels/alignment.h"
#include "kernels/quant/int4_gemv.h"

namespace fathom::kernels {
namespace {

constexpr int kWarps     = 16;  // that multiply; one more adds up
constexpr int kThreads   = 32 * (kWarps + 1);
constexpr int kAhead     = 4;  // steps of a warp that are loaded or on their way
constexpr int kSlots     = 4;  // units whose sums wait for being added up
constexpr int kUnitBytes = 512, kUnit = 64, kStep = 2 * kUnit;
constexpr int64_t kMostColumns = 8192;       // of a launch, so that x fits
constexpr int kMaxShared       = 192 << 10;  // for x

struct Product {
  const bf16* x;
  int64_t x_stride, x_matrix;  // between rows, between matrices
  PackedInt4 w;
  int tokens, units, row_blocks;  // units of K, 64 columns each
  int first_step, steps;          // of K, of this launch
  int warps;                      // that have steps
  int x_buffers;
  bool add;  // to y
  float* y;
  int64_t y_stride, y_matrix;

  __device__ int columns() const { return min(2 * steps, units - 2 * first_step) * kUnit; }
  // Rows of x lie 16 bytes apart modulo 128, so that ldmatrix has no bank conflicts.
  __device__ int x_row_bytes() const { return columns() * 2 + 16; }
};

// A lane's part of 16 rows x 128 columns.
template <int kGroups>
struct Step {
  uint4 unit[2];
  uint32_t scales[kGroups];  // each of rows g and g + 8
  uint32_t zeros;            // a byte for each group
};

// Where a lane's parts of steps lie. Rows of 16 are counted over all matrices.
template <int kGroups>
struct Source {
  const PackedInt4& w;
  const uint8_t* codes;
  int units, grid;  // units of a row; the lane's place in a step's grid of scales

  __device__ Source(const Product& p, int lane)
      : w(p.w), codes(p.w.codes + lane * 16), units(p.units), grid(lane / 4) {}

  __device__ bool has_two_units(int step) const { return 2 * step + 1 < units; }

  __device__ void load(Step<kGroups>& to, int row_block, int step) const {
    const uint8_t* from = codes + (int64_t{row_block} * units + 2 * step) * kUnitBytes;
    to.unit[0]          = ptx::ld_global_nc_no_allocate(from);
    if (has_two_units(step)) to.unit[1] = ptx::ld_global_nc_no_allocate(from + kUnitBytes);
    const int64_t at = (int64_t{row_block} * ((units + 1) / 2) + step) * 8 + grid;
    to.zeros         = 0x8888;
    if constexpr (kGroups == 1) {
      to.scales[0] = __ldg(w.scales + at);
      if (w.zeros) to.zeros = __ldg(w.zeros + at);
    } else {
      const uint2 two = __ldg(reinterpret_cast<const uint2*>(w.scales) + at);
      to.scales[0] = two.x, to.scales[1] = two.y;
      if (w.zeros) to.zeros = __ldg(reinterpret_cast<const uint16_t*>(w.zeros) + at);
    }
  }
};

// Two codes of a word, minus their zero point, in bf16. `offset` is 128 + zero, twice.
__device__ uint32_t dequantize(uint32_t word, uint32_t offset) {
  uint32_t above_128;  // (word & 0x000f000f) | 0x43004300, for which the compiler takes two instructions
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(above_128) : "r"(word), "r"(0x000f000f), "r"(0x43004300));
  const __nv_bfloat162 w = __hsub2(reinterpret_cast<const __nv_bfloat162&>(above_128),
                                   reinterpret_cast<const __nv_bfloat162&>(offset));
  return reinterpret_cast<const uint32_t&>(w);
}

// sum += step x. `x_at` is what the lane passes to ldmatrix for the step's first 32 columns.
template <int kGroups>
__device__ void multiply(const Step<kGroups>& step, bool two_units, uint32_t x_at, float (&sum)[4]) {
  float part[2][4] = {};  // two chains of dependent products: of the two groups, or of even and odd ones
#pragma unroll
  for (int u = 0; u < 2; ++u) {
    if (u == 1 && !two_units) break;
    const int group          = kGroups == 2 ? u : 0;
    const uint32_t zeros     = step.zeros >> (8 * group);
    const uint32_t offset_g  = 0x43004300 | (zeros & 15) * 0x00010001;
    const uint32_t offset_g8 = 0x43004300 | (zeros >> 4 & 15) * 0x00010001;
    const uint32_t words[4]  = {step.unit[u].x, step.unit[u].y, step.unit[u].z, step.unit[u].w};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t x[4];
      ptx::ldmatrix_x4(x, x_at + u * (kUnit * 2) + half * kUnit);
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        const uint32_t word = words[2 * half + s];
        const uint32_t a[4] = {dequantize(word, offset_g), dequantize(word >> 4, offset_g8),
                               dequantize(word >> 8, offset_g), dequantize(word >> 12, offset_g8)};
        ptx::mma_m16n8k16(part[kGroups == 2 ? u : s], a, {x[2 * s], x[2 * s + 1]});
      }
    }
  }
#pragma unroll
  for (int p = 0; p < 2; ++p) {
    const float2 scale = __half22float2(reinterpret_cast<const __half2&>(step.scales[kGroups == 2 ? p : 0]));
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[i] += (i < 2 ? scale.x : scale.y) * part[p][i];
  }
}

struct Shared {
  uint64_t x_full[2];                    // a matrix's x is in the buffer
  uint64_t full[kSlots], empty[kSlots];  // all warps have written a unit's sums; they are added up
  float4 sums[kSlots][kWarps][32];
};

// The last warp: copies x, and adds up and stores the sums of units first .. end.
__device__ void add_up(const Product& p, int first, int end, uint8_t* x_at, Shared& shared) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  ptx::griddepcontrol_wait();  // x is there, and nobody reads y any more
  const auto copy_x = [&](int matrix) {
    if (lane > 0 || matrix > (end - 1) / p.row_blocks) return;
    const int buffer = (matrix - first / p.row_blocks) % p.x_buffers, bytes = p.columns() * 2;
    ptx::mbarrier_arrive_expect_tx(&shared.x_full[buffer], p.tokens * bytes);
    for (int t = 0; t < p.tokens; ++t)
      ptx::cp_async_bulk_load(x_at + (buffer * p.tokens + t) * p.x_row_bytes(),
                              p.x + matrix * p.x_matrix + t * p.x_stride + p.first_step * kStep, bytes,
                              &shared.x_full[buffer]);
  };
  for (int buffer = 0; buffer < p.x_buffers; ++buffer) copy_x(first / p.row_blocks + buffer);

  for (int unit = first; unit < end; ++unit) {
    const int slot = (unit - first) % kSlots, matrix = unit / p.row_blocks;
    ptx::mbarrier_wait(&shared.full[slot], (unit - first) / kSlots & 1);
    float total[4] = {};
    for (int w = 0; w < p.warps; ++w) {
      const float4 part = shared.sums[slot][w][lane];
      total[0] += part.x, total[1] += part.y, total[2] += part.z, total[3] += part.w;
    }
    __syncwarp();  // all lanes have read the slot
    if (lane == 0) ptx::mbarrier_arrive(&shared.empty[slot]);
    // All warps are behind this unit: the last of a matrix needs its x no more.
    if ((unit + 1) % p.row_blocks == 0) copy_x(matrix + p.x_buffers);
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // the layout of mma's sums
      const int row = (unit - matrix * p.row_blocks) * 16 + lane / 4 + i / 2 * 8, t = lane % 4 * 2 + i % 2;
      if (row >= p.w.rows || t >= p.tokens) continue;
      float* const y = p.y + matrix * p.y_matrix + t * p.y_stride + row;
      *y             = p.add ? *y + total[i] : total[i];
    }
  }
}

// kGroups: of a step.
template <int kGroups>
__global__ void __launch_bounds__(kThreads, 1) int4_gemv_kernel(const __grid_constant__ Product p) {
  extern __shared__ __align__(128) uint8_t x_buffers[];
  __shared__ Shared shared;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  // The CTA has units first .. end of all matrices, and a warp steps begin .. last of each.
  const int all         = static_cast<int>(p.w.matrices) * p.row_blocks;
  const int first       = static_cast<int>(int64_t{blockIdx.x} * all / gridDim.x);
  const int end         = static_cast<int>((int64_t{blockIdx.x} + 1) * all / gridDim.x);
  const int begin       = p.first_step + warp * p.steps / p.warps;
  const int last        = p.first_step + (warp + 1) * p.steps / p.warps;
  const bool multiplies = warp < p.warps;

  const Source<kGroups> source(p, lane);
  Step<kGroups> ahead[kAhead];
  int next_unit = first, next_step = begin;  // to load
  const auto load_next = [&](Step<kGroups>& to) {
    if (next_unit == end) return;
    source.load(to, next_unit, next_step);
    if (++next_step == last) ++next_unit, next_step = begin;
  };
  if (multiplies)
#pragma unroll
    for (int a = 0; a < kAhead; ++a) load_next(ahead[a]);

  if (threadIdx.x == 0) {
    for (uint64_t& barrier : shared.x_full) ptx::mbarrier_init(&barrier, 1);
    for (uint64_t& barrier : shared.full) ptx::mbarrier_init(&barrier, p.warps);
    for (uint64_t& barrier : shared.empty) ptx::mbarrier_init(&barrier, 1);
    ptx::fence_mbarrier_init();
  }
  ptx::griddepcontrol_launch_dependents();
  __syncthreads();  // the barriers are there
  if (warp == kWarps) add_up(p, first, end, x_buffers, shared);
  if (!multiplies) return;

  // What a lane passes to ldmatrix for the first 32 columns of a buffer. Rows of x beyond the last repeat it;
  // their sums are not stored.
  const uint32_t x_lane =
      ptx::shared_address(x_buffers) + min(lane % 8, p.tokens - 1) * p.x_row_bytes() + lane / 8 * 16;
  uint32_t x_at = 0;
  float sum[4]  = {};
  for (int unit = first, step = begin; unit < end;) {
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      if (unit == end) break;
      if (step == begin && (unit == first || unit % p.row_blocks == 0)) {  // the first of its matrix here
        const int n = unit / p.row_blocks - first / p.row_blocks, buffer = n % p.x_buffers;
        ptx::mbarrier_wait(&shared.x_full[buffer], n / p.x_buffers & 1);
        x_at = x_lane + buffer * p.tokens * p.x_row_bytes();
      }
      multiply(ahead[a], source.has_two_units(step), x_at + (step - p.first_step) * (kStep * 2), sum);
      load_next(ahead[a]);
      if (++step < last) continue;

      const int slot = (unit - first) % kSlots;
      ptx::mbarrier_wait(&shared.empty[slot], ((unit - first) / kSlots & 1) ^ 1);
      shared.sums[slot][warp][lane] = {sum[0], sum[1], sum[2], sum[3]};
      __syncwarp();  // all lanes' sums are written before the first lane arrives
      if (lane == 0) ptx::mbarrier_arrive(&shared.full[slot]);
#pragma unroll
      for (float& of_lane : sum) of_lane = 0;
      step = begin, ++unit;
    }
  }
}

template <int kGroups>
void launch(const Product& product, int ctas, int64_t shared_bytes, StreamRef stream) {
  allow_shared_memory_once<int4_gemv_kernel<kGroups>>(kMaxShared);
  launch_with_pdl(int4_gemv_kernel<kGroups>, dim3(static_cast<unsigned>(ctas)), dim3(kThreads),
                  static_cast<size_t>(shared_bytes), stream, product);
}

}  // namespace

void int4_gemv(View<const bf16, 3> x, const PackedInt4& w, View<float, 3> y, StreamRef stream) {
  const int64_t T = x.extent(1);
  FATHOM_EXPECT(x.extent(0) == w.matrices && x.extent(2) == w.depth && T <= kMaxInt4GemvRows,
                "int4_gemv: x is [M, T, K], T at most 8");
  FATHOM_EXPECT(y.extent(0) == w.matrices && y.extent(1) == T && y.extent(2) == w.rows && y.stride(2) == 1,
                "int4_gemv: y is [M, T, N], its rows contiguous");
  FATHOM_EXPECT(w.group == 64 || w.group == 128, "int4_gemv: groups have 64 or 128 inputs");
  if (y.size() == 0) return;
  FATHOM_EXPECT(x.stride(2) == 1 && x.stride(1) % 8 == 0 && x.stride(0) % 8 == 0 && aligned_to_16(x.data()) &&
                    aligned_to_16(w.codes),
                "int4_gemv: rows of x and codes are 16-byte aligned");
  FATHOM_EXPECT(w.depth % kUnit == 0 && w.depth > 0, "int4_gemv: K is a multiple of 64");
  FATHOM_EXPECT(w.scale_words() < int64_t{1} << 31, "int4_gemv: too many weights for one launch");
  FATHOM_EXPECT(w.rows < int64_t{1} << 31, "int4_gemv: fewer than 2^31 outputs");
  Product product{.x          = x.data(),
                  .x_stride   = x.stride(1),
                  .x_matrix   = x.stride(0),
                  .w          = w,
                  .tokens     = static_cast<int>(T),
                  .units      = static_cast<int>(w.depth / kUnit),
                  .row_blocks = static_cast<int>(w.row_blocks()),
                  .y          = y.data(),
                  .y_stride   = y.stride(1),
                  .y_matrix   = y.stride(0)};
  const int ctas = static_cast<int>(std::min<int64_t>(w.matrices * w.row_blocks(), multiprocessors()));
  // How K is cut decides the order of summation, so it must not depend on T.
  for (int64_t first = 0; first < w.depth; first += kMostColumns) {
    const int64_t columns = std::min(w.depth - first, kMostColumns), x_bytes = T * (2 * columns + 16);
    product.first_step  = static_cast<int>(first / kStep);
    product.steps       = static_cast<int>((columns + kStep - 1) / kStep);
    product.warps       = std::min(product.steps, kWarps);
    product.x_buffers   = w.matrices > 1 && 2 * x_bytes <= kMaxShared ? 2 : 1;
    product.add         = first > 0;
    const int64_t bytes = product.x_buffers * x_bytes;
    w.group == 64 ? launch<2>(product, ctas, bytes, stream) : launch<1>(product, ctas, bytes, stream);
  }
}

}  // namespace fathom::kernels
