// x(t, .) = table(token(t), .), fp32 from bf16;  table(t, .) = cosines and sines of position(t) frequency(.)
//
// bytes   a token: 6 H and 256
// limit   latency at few rows: sampled(source), then the row of the table; DRAM bandwidth at many
// idea    embed: 16 bytes a thread, a row over as many blocks as it takes. turns: a warp is a row. The angle,
//         rounded to fp32, is reduced to [-pi/4, pi/4] in double, which needs no slow path for large angles
#include "core/cuda.h"
#include "core/launch.cuh"
#include "core/ptx.cuh"
#include "kernels/step_rows.h"

namespace fathom::kernels {
namespace {

constexpr int kEight        = 8;  // bf16 in 16 bytes
constexpr int kEmbedThreads = 128;
constexpr int kHalf         = 32;  // of a head
constexpr int kTurnRows     = 8;   // of a block

__device__ float4 two_pairs(uint32_t first, uint32_t second) {
  return {__uint_as_float(first << 16), __uint_as_float(first & 0xffff0000u), __uint_as_float(second << 16),
          __uint_as_float(second & 0xffff0000u)};
}

// Grid: (T, blocks that a row takes).
__global__ void __launch_bounds__(kEmbedThreads)
    embed_kernel(const int32_t* tokens, const int32_t* source, const int32_t* sampled, const bf16* table,
                 int vocabulary, float* x, int width) {
  const int t = blockIdx.x, at = (blockIdx.y * kEmbedThreads + threadIdx.x) * kEight;
  const int from = source[t];
  int token      = tokens[t];
  ptx::let_next_begin();
  ptx::wait_for_previous();
  if (at >= width) return;
  if (from >= 0) token = sampled[from];
  uint4 v = {};
  if (token >= 0 && token < vocabulary)
    v = __ldg(reinterpret_cast<const uint4*>(table + int64_t{token} * width + at));
  auto* to = reinterpret_cast<float4*>(x + int64_t{t} * width + at);
  to[0]    = two_pairs(v.x, v.y);
  to[1]    = two_pairs(v.z, v.w);
}

// Of an angle below 2^20 in magnitude, each within an ulp of float.
__device__ void sine_and_cosine(float angle, float& sine, float& cosine) {
  // angle - quarters pi/2, with pi/2 in two parts: exact to 2^-80 of it.
  const double quarters = rint(angle * 0.63661977236758134);
  const double r = fma(quarters, -6.123233995736766e-17, fma(quarters, -1.5707963267948966, double{angle}));
  const double square = r * r;
  // Their series: the terms left out are below 2^-33.
  const double s =
      fma(fma(fma(fma(fma(-1.0 / 39916800, square, 1.0 / 362880), square, -1.0 / 5040), square, 1.0 / 120),
              square, -1.0 / 6) *
              square,
          r, r);
  const double c =
      fma(fma(fma(fma(fma(-1.0 / 3628800, square, 1.0 / 40320), square, -1.0 / 720), square, 1.0 / 24),
              square, -0.5),
          square, 1.0);
  const int quadrant = static_cast<int>(quarters);
  const double a = quadrant & 1 ? c : s, b = quadrant & 1 ? s : c;
  sine   = static_cast<float>(quadrant & 2 ? -a : a);
  cosine = static_cast<float>((quadrant + 1) & 2 ? -b : b);
}

__global__ void __launch_bounds__(kTurnRows* kHalf)
    turns_kernel(const int32_t* positions, const float* frequencies, float concentration, float* table,
                 int rows) {
  const int t = blockIdx.x * kTurnRows + threadIdx.x / kHalf, k = threadIdx.x % kHalf;
  float sine = 0, cosine = 0;
  if (t < rows) sine_and_cosine(static_cast<float>(positions[t]) * frequencies[k], sine, cosine);
  ptx::let_next_begin();
  ptx::wait_for_previous();
  if (t >= rows) return;
  float* to = table + int64_t{t} * (2 * kHalf) + k;
  to[0]     = concentration * cosine;
  to[kHalf] = concentration * sine;
}

bool of_vectors(const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }

}  // namespace

void embed(View<const int32_t, 1> tokens, View<const int32_t, 1> source, View<const int32_t, 1> sampled,
           View<const bf16, 2> table, View<float, 2> x, StreamRef stream) {
  const int64_t rows = x.extent(0), width = x.extent(1);
  FATHOM_EXPECT(tokens.extent(0) == rows && source.extent(0) == rows && table.extent(1) == width,
                "embed: tokens and source are [T], table [V, H], x [T, H]");
  FATHOM_EXPECT(width % kEight == 0 && table.contiguous() && x.contiguous() && of_vectors(table.data()) &&
                    of_vectors(x.data()) && tokens.contiguous() && source.contiguous() &&
                    sampled.contiguous(),
                "embed: rows are whole vectors of 16 bytes, one after another");
  if (x.size() == 0) return;
  FATHOM_EXPECT(rows <= INT32_MAX && table.extent(0) <= INT32_MAX, "embed: the kernel counts in 32 bits");
  launch_chained(embed_kernel, dim3(static_cast<unsigned>(rows), blocks_for(width, kEmbedThreads * kEight)),
                 dim3(kEmbedThreads), 0, stream, tokens.data(), source.data(), sampled.data(), table.data(),
                 static_cast<int>(table.extent(0)), x.data(), static_cast<int>(width));
}

void turns(View<const int32_t, 1> positions, View<const float, 1> frequencies, float concentration,
           View<float, 2> table, StreamRef stream) {
  const int64_t rows = positions.extent(0);
  FATHOM_EXPECT(table.extent(0) == rows && table.extent(1) == 2 * kHalf && frequencies.extent(0) == kHalf,
                "turns: positions are [T], frequencies [32], table [T, 64]");
  FATHOM_EXPECT(table.contiguous() && positions.contiguous() && frequencies.contiguous(),
                "turns: rows lie one after another");
  if (rows == 0) return;
  launch_chained(turns_kernel, dim3(blocks_for(rows, kTurnRows)), dim3(kTurnRows * kHalf), 0, stream,
                 positions.data(), frequencies.data(), concentration, table.data(), static_cast<int>(rows));
}

}  // namespace fathom::kernels
