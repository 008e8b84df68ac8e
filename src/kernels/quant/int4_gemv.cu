// y(m, t, n) = sum_k x(m, t, k) scale(m, n, k / G) (code(m, n, k) - zero(m, n, k / G))
//
// bytes   N K / 2 of codes and 2.5 of each group's scale and zero point, once, whatever T
// flops   2 T N K, by the tensor cores
// limit   memory bandwidth. H200: 8 matrices of 4096 x 4096, 70 MB, take 15 us at 4.55 TB/s
// idea    Weights go from memory into registers, three steps of 16 rows x 128 columns ahead. There two codes
//         become bf16 by three instructions: a shift; LOP3 puts four bits below the exponent of 128 (bf16 has
//         seven bits there, so 128 + code is exact); 128 + zero is subtracted, which is exact too. The scale
//         is left to the sums: each group has its own, and only its sum in fp32 is multiplied. So no weight
//         is ever rounded. (Frantar et al., "MARLIN", arXiv 2408.11743; Kim et al., "Who Says Elephants Can't
//         Run", arXiv 2211.10017.)
//
// A cluster has 128 rows of weights, and its CTAs split K, because each CTA must read x for its columns, and
// with 8 rows of x these are a quarter of the bytes of its weights. They add up through distributed shared
// memory.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/launch.cuh"
#include "cuda/multiprocessors.h"
#include "cuda/ptx.cuh"
#include "kernels/alignment.h"
#include "kernels/quant/int4_gemv.h"

namespace fathom::kernels {
namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps;
constexpr int kRows      = 16 * kWarps;  // of weights, of a cluster
constexpr int kAhead     = 3;            // steps of a warp that are loaded or on their way
constexpr int kUnitBytes = 512, kUnit = 64, kStep = 2 * kUnit;
constexpr int kMaxShared = 160 << 10;

struct Product {
  const bf16* x;
  int64_t x_stride, x_matrix;  // between rows, between matrices
  PackedInt4 w;
  int tokens, units, row_blocks;  // units of K
  float* y;
  int64_t y_stride, y_matrix;
};

// A lane's part of 16 rows x 128 columns.
template <int kGroups>
struct Step {
  uint4 unit[2];
  uint32_t scales[kGroups];  // each of rows g and g + 8
  uint32_t zeros;            // a byte for each group
};

// Where a lane's parts of a warp's steps lie.
template <int kGroups>
struct Source {
  const PackedInt4& w;
  const uint8_t* codes;          // of the first unit of all
  int first_unit, grids, units;  // the first unit; the first scales, in those of a step; units of a row

  __device__ Source(const Product& p, int matrix, int row_block, int lane)
      : w(p.w),
        codes(p.w.codes + lane * 16),
        first_unit((matrix * p.row_blocks + row_block) * p.units),
        grids((matrix * p.row_blocks + row_block) * ((p.units + 1) / 2) * 8 + lane / 4),
        units(p.units) {}

  __device__ bool has_two_units(int step) const { return 2 * step + 1 < units; }

  __device__ void load(Step<kGroups>& to, int step) const {
    const uint8_t* from = codes + int64_t{first_unit + 2 * step} * kUnitBytes;
    to.unit[0]          = ptx::ld_global_nc_no_allocate(from);
    if (has_two_units(step)) to.unit[1] = ptx::ld_global_nc_no_allocate(from + kUnitBytes);
    const int64_t grid = grids + step * 8;
    to.zeros           = 0x8888;
    if constexpr (kGroups == 1) {
      to.scales[0] = __ldg(w.scales + grid);
      if (w.zeros) to.zeros = __ldg(w.zeros + grid);
    } else {
      const uint2 two = __ldg(reinterpret_cast<const uint2*>(w.scales) + grid);
      to.scales[0] = two.x, to.scales[1] = two.y;
      if (w.zeros) to.zeros = __ldg(reinterpret_cast<const uint16_t*>(w.zeros) + grid);
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

// Grid: (clusters of `cluster` CTAs along x, one for each kRows rows; matrices along y). kGroups: of a step.
template <int kGroups>
__global__ void __launch_bounds__(kThreads, 3) int4_gemv_kernel(Product p, int cluster) {
  extern __shared__ uint4 shared_x[];
  __shared__ float2 sums[kRows][4];  // of 8 rows of x
  const int lane = static_cast<int>(threadIdx.x), warp = static_cast<int>(threadIdx.y);
  const int thread = warp * 32 + lane, matrix = static_cast<int>(blockIdx.y);
  const int rank = static_cast<int>(blockIdx.x) % cluster, tile = static_cast<int>(blockIdx.x) / cluster;

  // The CTA has steps first .. last of K, a warp 16 rows; behind the last row it has nothing to do.
  const int steps = (p.units + 1) / 2;
  const int first = rank * steps / cluster, last = (rank + 1) * steps / cluster;
  const int row_block = tile * kWarps + warp, end = row_block < p.row_blocks ? last : first;
  const Source<kGroups> source(p, matrix, row_block, lane);
  Step<kGroups> ahead[kAhead];
#pragma unroll
  for (int a = 0; a < kAhead; ++a)
    if (first + a < end) source.load(ahead[a], first + a);

  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();  // x is there, and nobody reads y any more

  // The CTA's columns of x, in pieces of 16 bytes. Rows lie 16 bytes apart modulo 128, so that ldmatrix has
  // no bank conflicts.
  const int pieces = (min(2 * last, p.units) - 2 * first) * (kUnit / 8), stride = pieces + 1;
  const bf16* x = p.x + matrix * p.x_matrix + first * kStep;
  for (int i = thread; i < p.tokens * pieces; i += kThreads) {
    const int t = i / pieces, piece = i % pieces;
    ptx::cp_async_cg(shared_x + t * stride + piece, x + t * p.x_stride + piece * 8);
  }
  ptx::cp_async_commit_group();
  ptx::cp_async_wait_group<0>();
  __syncthreads();  // all threads' pieces of x have arrived

  // Rows of x beyond the last repeat it; their sums are not stored.
  uint32_t x_at = ptx::shared_address(shared_x + min(lane % 8, p.tokens - 1) * stride + lane / 8);
  float sum[4]  = {};
  for (int step = first; step < end; step += kAhead) {
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      if (step + a >= end) break;
      multiply(ahead[a], source.has_two_units(step + a), x_at, sum);
      x_at += kStep * 2;
      if (step + a + kAhead < end) source.load(ahead[a], step + a + kAhead);
    }
  }

  sums[warp * 16 + lane / 4][lane % 4]     = {sum[0], sum[1]};
  sums[warp * 16 + lane / 4 + 8][lane % 4] = {sum[2], sum[3]};
  ptx::cluster_barrier_arrive();
  ptx::cluster_barrier_wait();  // all CTAs' sums are in their shared memory

  const int share = kRows / cluster;  // rows that this CTA adds up and stores
  for (int i = thread; i < share * p.tokens; i += kThreads) {
    const int row = rank * share + i % share, t = i / share, n = tile * kRows + row;
    if (n >= p.w.rows) continue;
    const uint32_t at = ptx::shared_address(reinterpret_cast<const float*>(sums[row]) + t);
    float total       = 0;
    for (int c = 0; c < cluster; ++c) total += ptx::ld_shared_cluster(ptx::mapa_shared_cluster(at, c));
    p.y[matrix * p.y_matrix + t * p.y_stride + n] = total;
  }
  ptx::cluster_barrier_arrive();
  ptx::cluster_barrier_wait();  // nobody reads this CTA's sums any more, so that it may exit
}

template <int kGroups>
void launch(const Product& product, dim3 grid, int64_t shared_bytes, int cluster, StreamRef stream) {
  allow_shared_memory_once<int4_gemv_kernel<kGroups>>(kMaxShared);
  launch_with_pdl(int4_gemv_kernel<kGroups>, grid, dim3(32, kWarps), static_cast<size_t>(shared_bytes),
                  cluster, stream, product, cluster);
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
  FATHOM_EXPECT(w.rows < 1 << 24 && w.matrices <= 65535 && w.scale_words() < int64_t{1} << 31,
                "int4_gemv: too many weights for one launch");
  const Product product{.x          = x.data(),
                        .x_stride   = x.stride(1),
                        .x_matrix   = x.stride(0),
                        .w          = w,
                        .tokens     = static_cast<int>(T),
                        .units      = static_cast<int>(w.depth / kUnit),
                        .row_blocks = static_cast<int>(w.row_blocks()),
                        .y          = y.data(),
                        .y_stride   = y.stride(1),
                        .y_matrix   = y.stride(0)};
  // Clusters of four where that fills the GPU, so that a CTA has more to load for each start and end; else
  // of eight. It decides the order of summation, so it must not depend on T.
  const int64_t tiles   = (w.rows + kRows - 1) / kRows;
  const int cluster     = tiles * w.matrices * 4 >= 2 * multiprocessors() ? 4 : 8;
  const int64_t columns = (w.steps() / cluster + 1) * kStep;
  const int64_t bytes   = T * (2 * columns + 16);
  FATHOM_EXPECT(bytes <= kMaxShared, "int4_gemv: x must fit shared memory");
  const dim3 grid(static_cast<unsigned>(tiles * cluster), static_cast<unsigned>(w.matrices));
  w.group == 64 ? launch<2>(product, grid, bytes, cluster, stream)
                : launch<1>(product, grid, bytes, cluster, stream);
}

}  // namespace fathom::kernels
