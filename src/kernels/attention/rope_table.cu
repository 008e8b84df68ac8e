// table(t, .) = concentration (cosines, then sines) of position(t) frequency(.)
//
// bytes   a token: 4 read, 256 written
// limit   latency
// idea    A warp has a row. The angle, rounded to fp32, is reduced to [-pi/4, pi/4] in double, which needs no
//         slow path for large angles
#include "cuda/check.h"
#include "cuda/launch.cuh"
#include "cuda/ptx.cuh"
#include "kernels/attention/rope_table.h"

namespace fathom::kernels {
namespace {

constexpr int kHalf       = 32;  // of a head
constexpr int kRowsPerCta = 8;

// For an angle below 2^20 in magnitude; each result is within an ulp of fp32.
__device__ void sine_and_cosine(float angle, float& sine, float& cosine) {
  // angle - quarters pi/2, with pi/2 as the sum of two doubles: exact to 2^-80 of pi/2.
  const double quarters = rint(angle * 0.63661977236758134);
  const double r = fma(quarters, -6.123233995736766e-17, fma(quarters, -1.5707963267948966, double{angle}));
  const double square = r * r;
  // Taylor series; the omitted terms are below 2^-33.
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

__global__ void __launch_bounds__(kRowsPerCta* kHalf)
    rope_table_kernel(const int32_t* positions, const float* frequencies, float concentration, float* table,
                      int rows) {
  const int t = blockIdx.x * kRowsPerCta + threadIdx.x / kHalf, k = threadIdx.x % kHalf;
  float sine = 0, cosine = 0;
  if (t < rows) sine_and_cosine(static_cast<float>(positions[t]) * frequencies[k], sine, cosine);
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  if (t >= rows) return;
  float* to = table + int64_t{t} * (2 * kHalf) + k;
  to[0]     = concentration * cosine;
  to[kHalf] = concentration * sine;
}

}  // namespace

void rope_table(View<const int32_t, 1> positions, View<const float, 1> frequencies, float concentration,
                View<float, 2> table, StreamRef stream) {
  const int64_t rows = positions.extent(0);
  FATHOM_EXPECT(table.extent(0) == rows && table.extent(1) == 2 * kHalf && frequencies.extent(0) == kHalf,
                "rope_table: positions are [T], frequencies [32], table [T, 64]");
  FATHOM_EXPECT(table.contiguous() && positions.contiguous() && frequencies.contiguous(),
                "rope_table: operands are contiguous");
  if (rows == 0) return;
  launch_with_pdl(rope_table_kernel, dim3(blocks_for(rows, kRowsPerCta)), dim3(kRowsPerCta * kHalf), 0,
                  stream, positions.data(), frequencies.data(), concentration, table.data(),
                  static_cast<int>(rows));
}

}  // namespace fathom::kernels
