// code(r, c) = round(x(r, c) / unit of its group)      R x C, bf16 to the formats of formats.h
//
// bytes   3 n (E4M3, E5M2, INT8) or 2.5 n (E2M1), and scales
// flops   about 10 a number in 8 bits. E2M1, which Hopper's instructions do not know, takes more: NVFP4
//         has 0.63 of a copy's rate (experiments/ch13_training/quantize_formats)
// limit   DRAM bandwidth. H200: 2^29 numbers to NVFP4 are 1.4 GB, 0.33 ms at a copy's 4.2 TB/s
// idea    one pass: numbers wait in registers for the scale of their group. A thread has four vectors of 8
//         in flight, and lanes next to each other have vectors next to each other, so that a block of 16, 32
//         or 128 numbers is 2, 4 or 16 lanes, which find its largest number by shuffles. Magnitudes of bf16
//         are ordered as integers are, NaN and infinity last, so that the search takes a pair at a time
#include <cuda_fp8.h>

#include <type_traits>

#include "cuda/check.h"
#include "kernels/quant/quantize.h"
#include "kernels/quant/tiles.cuh"

namespace fathom::kernels {
namespace {

constexpr uint32_t kInfinity = 0x7f800000;  // bits of a float
constexpr float kLargestFp32 = 0x1.fffffep127f;
constexpr float kNan         = __builtin_nanf("");

__device__ float low(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ float high(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }

// x / by, for by from 2^-73 to 2^126 and quotients that are neither subnormal nor too large for a float.
struct Divisor {
  float by, inverse;

  static __device__ Divisor of(float by) {
    float near;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(near) : "f"(by));
    return {by, fmaf(near, fmaf(-by, near, 1.0f), near)};
  }
  // One correction of the remainder. A quotient of a bf16 number is then as good as the correctly rounded
  // one: the two differ only where neither has fewer than 10 significant bits, so that rounding to a code,
  // whose ties have 8 at most, does not tell them apart. The remainder is negated so that -0 stays -0.
  __device__ float quotient(float x) const {
    const float near = x * inverse;
    return fmaf(fmaf(by, near, -x), -inverse, near);
  }
  // With the second correction of CUDA's own division: correctly rounded.
  __device__ float exact_quotient(float x) const {
    const float near = quotient(x);
    return fmaf(fmaf(by, near, -x), -inverse, near);
  }
};

// How numbers of a group become quotients, and whether they do: else their codes are 0.
struct FromDivisor {
  Divisor divisor;
  bool usable;
  __device__ float quotient(float x) const { return divisor.quotient(x); }
};
struct FromPowerOfTwo {
  float inverse;
  bool usable;
  __device__ float quotient(float x) const { return x * inverse; }
};
// With a scale that does not come from these numbers: they may be too large for it, or not finite.
struct FromGiven {
  Divisor divisor;
  float limit;
  bool usable;
  __device__ float quotient(float x) const {
    asm("min.NaN.f32 %0, %0, %1;" : "+f"(x) : "f"(limit));
    asm("max.NaN.f32 %0, %0, %1;" : "+f"(x) : "f"(-limit));
    return divisor.quotient(x);
  }
};

// The codes of 8 quotients, the first in the lowest bits. `x` are the numbers that they come from.

template <__nv_fp8_interpretation_t kType>
struct Fp8Codes {
  using Word                      = uint2;
  static constexpr float kLargest = kType == __NV_E4M3 ? 448 : 57344;

  static __device__ uint32_t four(const float* q) {
    return __nv_cvt_float2_to_fp8x2(make_float2(q[0], q[1]), __NV_SATFINITE, kType) |
           static_cast<uint32_t>(__nv_cvt_float2_to_fp8x2(make_float2(q[2], q[3]), __NV_SATFINITE, kType))
               << 16;
  }
  static __device__ Word encode(const float (&q)[8], uint4) { return {four(q), four(q + 4)}; }
};

// A float of 1.5 * 2^23 + n has n in its low bits, in two's complement, and an addition rounds to it.
constexpr float kRounding = 0x1.8p23f;

struct Int8Codes {
  using Word                      = uint2;
  static constexpr float kLargest = 127;

  static __device__ uint32_t four(const float* q) {
    const auto code = [&](int i) { return __float_as_uint(q[i] + kRounding); };
    return __byte_perm(__byte_perm(code(0), code(1), 0x0040), __byte_perm(code(2), code(3), 0x0040), 0x5410);
  }
  static __device__ Word encode(const float (&q)[8], uint4) { return {four(q), four(q + 4)}; }
};

// The codes of magnitude 0, 0.5, 1, 1.5, 2, 3, 4, 6 are 0 .. 7. Steps of 1/2 end at 2, of 1 at 4, so the code
// of v is the least of 2 v, v + 2 and v / 2 + 4, each rounded to an integer. Ties go to even integers, which
// are even codes. Each is one instruction with one rounding (kRounding).
struct E2m1Codes {
  using Word                      = uint32_t;
  static constexpr float kLargest = 6;

  static __device__ uint32_t magnitude(float quotient) {
    // A quotient may overflow to a NaN where the given tensor scale is too small: fminf() takes that for 6.
    const float v = fminf(fabsf(quotient), kLargest);
    return __float_as_uint(
        fminf(fminf(fmaf(v, 2.0f, kRounding), v + (kRounding + 2)), fmaf(v, 0.5f, kRounding + 4)));
  }
  static __device__ Word encode(const float (&q)[8], uint4 x) {
    // Sums of floats' bits modulo 2^32: what kRounding adds to them is the same always.
    constexpr uint32_t kExcess = 0x11111111u * __builtin_bit_cast(uint32_t, kRounding);
    uint32_t codes             = 0;
#pragma unroll
    for (int i = 7; i >= 0; --i) codes = codes * 16 + magnitude(q[i]);
    // Bytes with the numbers' signs in bit 7: those of even numbers, those of odd ones.
    const uint32_t first = __byte_perm(x.x, x.y, 0x7351), second = __byte_perm(x.z, x.w, 0x7351);
    const uint32_t even = __byte_perm(first, second, 0x5410), odd = __byte_perm(first, second, 0x7632);
    return (codes - kExcess) | (even >> 4 & 0x08080808u) | (odd & 0x80808080u);
  }
};

// Group sizes beside those of blocks.
constexpr int kTensor = 0, kRow = -1;

// A format's rule: unit() gives what divides the numbers of a group, and the scale that is stored, from the
// bits of the group's largest magnitude as a float. `given` is the tensor's scale.

template <class Codes_, int kGroup_>
struct Fp32Scaled {
  using Codes                 = Codes_;
  using Scale                 = float;
  static constexpr int kGroup = kGroup_;

  static __device__ FromDivisor unit(uint32_t amax, float, float* stored) {
    constexpr Divisor kBy{Codes::kLargest, 1 / Codes::kLargest};
    const bool finite = amax < kInfinity;
    const float scale = fmaxf(kBy.quotient(__uint_as_float(amax)), kSmallestScale);
    *stored           = finite ? scale : kNan;
    return {Divisor::of(scale), finite};
  }
};

template <class Codes_>
struct GivenScale {
  using Codes                 = Codes_;
  using Scale                 = float;
  static constexpr int kGroup = kTensor;

  static __device__ FromGiven unit(float given) {
    return {Divisor::of(given), fminf(given * Codes::kLargest, kLargestFp32), given == given};
  }
};

// A scale of 2^(code - 127). `kExponent` and `kCarry` make code from the largest magnitude's exponent, which
// is one higher beyond a mantissa of 2^23 - kCarry.
template <class Codes_, int kExponent, uint32_t kCarry>
struct Microscaled {
  using Codes                 = Codes_;
  using Scale                 = e8m0;
  static constexpr int kGroup = 32;

  static __device__ FromPowerOfTwo unit(uint32_t amax, float, e8m0* stored) {
    const bool finite = amax < kInfinity;
    const int code    = max(static_cast<int>((amax + kCarry) >> 23) - kExponent, 0);
    *stored           = e8m0::from_bits(finite ? static_cast<uint32_t>(code) : 255u);
    return {__uint_as_float(static_cast<uint32_t>(254 - code) << 23), finite};  // code <= 252
  }
};

struct Nvfp4Scaled {
  using Codes                 = E2m1Codes;
  using Scale                 = fp8_e4m3;
  static constexpr int kGroup = 16;

  static __device__ FromDivisor unit(uint32_t amax, float given, fp8_e4m3* stored) {
    constexpr Divisor kSix{6, 1.0f / 6};
    // Beyond the limit the scale is 448 all the same.
    const float limit   = fminf(given * (6 * 448), kLargestFp32);
    const float largest = fminf(__uint_as_float(amax), limit);
    const float ratio   = Divisor::of(given).exact_quotient(kSix.quotient(largest));
    const __nv_fp8_storage_t bits =
        __nv_cvt_float_to_fp8(amax < kInfinity ? ratio : kNan, __NV_SATFINITE, __NV_E4M3);
    *stored          = fp8_e4m3::from_bits(bits);
    const float unit = __half2float(__half(__nv_cvt_fp8_to_halfraw(bits, __NV_E4M3))) * given;
    return {Divisor::of(unit), unit > 0};  // false for NaN too
  }
};

// Pairs of magnitudes, and the larger of each.
__device__ uint32_t larger(uint32_t a, uint32_t b) { return __vmaxu2(a, b); }
__device__ uint32_t magnitudes(uint4 x) {
  return larger(larger(x.x & 0x7fff7fffu, x.y & 0x7fff7fffu), larger(x.z & 0x7fff7fffu, x.w & 0x7fff7fffu));
}
// The larger of a pair, as the bits of a float.
__device__ uint32_t larger_of(uint32_t pair) { return max(pair << 16, pair & 0xffff0000u); }

// Over the lanes of a block of kGroup numbers.
template <int kGroup>
__device__ uint32_t amax_of_block(uint32_t pair) {
#pragma unroll
  for (int other = kGroup / kVectorSize / 2; other > 0; other /= 2)
    pair = larger(pair, __shfl_xor_sync(~0u, pair, other));
  return larger_of(pair);
}

// Over the threads of a row, which are one warp or a whole block.
__device__ uint32_t amax_of_row(uint32_t pair) {
  __shared__ uint32_t of_warp[32];
  uint32_t amax = __reduce_max_sync(~0u, larger_of(pair));
  if (blockDim.x == 32) return amax;
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = amax;
  __syncthreads();  // all warps have written before any reads
  for (unsigned w = 0; w < blockDim.x / 32; ++w) amax = max(amax, of_warp[w]);
  return amax;
}

template <class Scale>
struct Scales {
  Scale* data;
  int64_t row_stride, stride;
};

template <class Codes, class Unit>
__device__ void encode_and_store(uint4 x, const Unit& unit, const Tiles& t, const Place& at, int k,
                                 uint8_t* codes) {
  using Word       = typename Codes::Word;
  const float q[8] = {unit.quotient(low(x.x)),  unit.quotient(high(x.x)), unit.quotient(low(x.y)),
                      unit.quotient(high(x.y)), unit.quotient(low(x.z)),  unit.quotient(high(x.z)),
                      unit.quotient(low(x.w)),  unit.quotient(high(x.w))};
  const Word word  = Codes::encode(q, x);
  // 8 codes in a byte each, or half a byte each.
  const int64_t bytes = sizeof(Word) == kVectorSize ? t.cols : (t.cols + 1) / 2;
  store_word(codes + at.row * bytes, bytes, at.first, k, t.whole, unit.usable ? word : Word{});
}

// Five blocks of 256 a multiprocessor have 80 KiB in flight. Where no number of blocks is asked for, ptxas
// saves registers and spills.
template <class Format>
__global__ void __launch_bounds__(Format::kGroup == kRow ? 512 : 256, Format::kGroup == kRow ? 2 : 5)
    quantize_kernel(const bf16* x, uint8_t* codes, Scales<typename Format::Scale> scales, const float* given,
                    Tiles t) {
  using Codes = typename Format::Codes;
  Place at    = place_of(t);
  if constexpr (Format::kGroup == kRow)
    at = {int64_t{blockIdx.x} * blockDim.y + threadIdx.y, static_cast<int>(threadIdx.x)};
  if (at.row >= t.rows) return;  // whole warps, and only where a row is one warp's

  const auto* row = reinterpret_cast<const uint8_t*>(x + at.row * t.cols);
  uint4 v[kLoads];
  load_words(row, 2 * t.cols, at.first, t.whole, v);

  if constexpr (Format::kGroup == kRow) {
    const int step = static_cast<int>(blockDim.x) * kLoads;
    uint32_t pair  = 0;
#pragma unroll
    for (int k = 0; k < kLoads; ++k) pair = larger(pair, magnitudes(v[k]));
    // What registers do not hold of a long row is read twice.
    uint4 more[kLoads];
    for (int tile = 1; tile < t.tiles; ++tile) {
      load_words(row, 2 * t.cols, at.first + tile * step, t.whole, more);
#pragma unroll
      for (int k = 0; k < kLoads; ++k) pair = larger(pair, magnitudes(more[k]));
    }
    typename Format::Scale scale;
    const auto unit = Format::unit(amax_of_row(pair), 0, &scale);
    if (threadIdx.x == 0) scales.data[at.row * scales.row_stride] = scale;
    for (int tile = 0;;) {
#pragma unroll
      for (int k = 0; k < kLoads; ++k) encode_and_store<Codes>(v[k], unit, t, at, k, codes);
      if (++tile >= t.tiles) return;
      at.first += step;
      load_words(row, 2 * t.cols, at.first, t.whole, v);
    }
  } else if constexpr (Format::kGroup == kTensor) {
    const FromGiven unit = Format::unit(*given);
#pragma unroll
    for (int k = 0; k < kLoads; ++k) encode_and_store<Codes>(v[k], unit, t, at, k, codes);
  } else {
    constexpr int kLanes  = Format::kGroup / kVectorSize;
    const float of_tensor = given ? *given : 0;
#pragma unroll
    for (int k = 0; k < kLoads; ++k) {
      typename Format::Scale scale;
      const auto unit  = Format::unit(amax_of_block<Format::kGroup>(magnitudes(v[k])), of_tensor, &scale);
      const int vector = at.first + k * static_cast<int>(blockDim.x);
      if (vector % kLanes == 0 && vector < t.vectors)
        scales.data[at.row * scales.row_stride + vector / kLanes * scales.stride] = scale;
      encode_and_store<Codes>(v[k], unit, t, at, k, codes);
    }
  }
}

// The largest magnitude of all, as the bits of a float, in *amax, which is 0 at first.
__global__ void __launch_bounds__(256, 5) amax_kernel(const bf16* x, uint32_t* amax, Tiles t) {
  const Place at = place_of(t);
  if (at.row >= t.rows) return;
  uint4 v[kLoads];
  load_words(reinterpret_cast<const uint8_t*>(x + at.row * t.cols), 2 * t.cols, at.first, t.whole, v);
  uint32_t pair = 0;
#pragma unroll
  for (int k = 0; k < kLoads; ++k) pair = larger(pair, magnitudes(v[k]));
  const uint32_t of_row = amax_of_row(pair);
  if (threadIdx.x == 0) atomicMax(amax, of_row);
}

// *scale holds the bits that amax_kernel() left.
__global__ void scale_kernel(float* scale, float largest) {
  const float amax = *scale;
  *scale = __float_as_uint(amax) < kInfinity ? fmaxf(__fdiv_rn(amax, largest), kSmallestScale) : kNan;
}

// `one_row`: x is cut up as one long row. It may be where rows end with a whole group and scales lie one
// after another.
template <class Format, class Code>
void launch(View<const bf16, 2> x, View<Code, 2> codes, Scales<typename Format::Scale> scales, bool one_row,
            const float* given, StreamRef stream) {
  constexpr int64_t kWord = sizeof(typename Format::Codes::Word);
  FATHOM_EXPECT(x.contiguous() && codes.contiguous(), "quantize: rows of x and of codes have no gaps");
  FATHOM_EXPECT(codes.extent(0) == x.extent(0) &&
                    codes.extent(1) == (kWord == kVectorSize ? x.extent(1) : (x.extent(1) + 1) / 2),
                "quantize: codes are R x C, or R x ceil(C / 2) bytes of E2M1, for x of R x C");
  if (x.size() == 0) return;
  const TiledLaunch l =
      tiled_launch(one_row ? 1 : x.extent(0), one_row ? x.size() : x.extent(1),
                   aligned_to(x.data(), 16) && aligned_to(codes.data(), kWord), Format::kGroup == kRow);
  quantize_kernel<Format><<<l.grid, l.block, 0, stream>>>(x.data(), reinterpret_cast<uint8_t*>(codes.data()),
                                                          scales, given, l.tiles);
  FATHOM_LAUNCHED();
}

template <class Format, class Code, class Scale>
void launch_blocks(View<const bf16, 2> x, View<Code, 2> codes, View<Scale, 2> scales, const float* given,
                   StreamRef stream) {
  FATHOM_EXPECT(scales.extent(0) == x.extent(0) &&
                    scales.extent(1) == (x.extent(1) + Format::kGroup - 1) / Format::kGroup,
                "quantize: scales are R x ceil(C / block) for x of R x C");
  if (x.extent(1) % Format::kGroup == 0 && scales.contiguous())
    launch<Format>(x, codes, {scales.data(), 0, 1}, true, given, stream);
  else
    launch<Format>(x, codes, {scales.data(), scales.stride(0), scales.stride(1)}, false, given, stream);
}

template <class Code>
using CodesOf = std::conditional_t<
    std::is_same_v<Code, int8_t>, Int8Codes,
    std::conditional_t<std::is_same_v<Code, fp8_e4m3>, Fp8Codes<__NV_E4M3>, Fp8Codes<__NV_E5M2>>>;

template <class Code>
void start(View<const bf16, 2> x, const TensorScaled<Code>& q, StreamRef stream) {
  FATHOM_EXPECT(q.scale.size() == 1, "quantize: a tensor has one scale");
  launch<GivenScale<CodesOf<Code>>>(x, q.codes, {}, true, q.scale.data(), stream);
}
template <class Code>
void start(View<const bf16, 2> x, const RowScaled<Code>& q, StreamRef stream) {
  FATHOM_EXPECT(q.scales.size() == x.extent(0), "quantize: scales are one for each row");
  launch<Fp32Scaled<CodesOf<Code>, kRow>>(x, q.codes, {q.scales.data(), q.scales.stride(0), 0}, false,
                                          nullptr, stream);
}
template <class Code>
void start(View<const bf16, 2> x, const BlockScaled<Code>& q, StreamRef stream) {
  launch_blocks<Fp32Scaled<CodesOf<Code>, BlockScaled<Code>::kBlock>>(x, q.codes, q.scales, nullptr, stream);
}
void start(View<const bf16, 2> x, const Mxfp8& q, StreamRef stream) {
  // 448 is 1.75 * 2^8: a scale of amax / 2^8 rounded down, and twice that beyond a mantissa of 1.75.
  launch_blocks<Microscaled<Fp8Codes<__NV_E4M3>, 8, 0x1fffff>>(x, q.codes, q.scales, nullptr, stream);
}
void start(View<const bf16, 2> x, const Mxfp4& q, StreamRef stream) {
  // 6 is 1.5 * 2^2: the standard's rule rounds amax / 2^2 down.
  launch_blocks<Microscaled<E2m1Codes, 2, 0>>(x, q.codes, q.scales, nullptr, stream);
}
void start(View<const bf16, 2> x, const Nvfp4& q, StreamRef stream) {
  FATHOM_EXPECT(q.tensor_scale.size() == 1, "quantize: a tensor has one scale");
  launch_blocks<Nvfp4Scaled>(x, q.codes, q.scales, q.tensor_scale.data(), stream);
}

template <class Code>
float largest_of(const TensorScaled<Code>&) {
  return CodesOf<Code>::kLargest;
}
float largest_of(const Nvfp4&) { return 6 * 448; }
template <class Code>
View<float, 1> scale_of(const TensorScaled<Code>& q) {
  return q.scale;
}
View<float, 1> scale_of(const Nvfp4& q) { return q.tensor_scale; }

}  // namespace

template <class Format>
void quantize(View<const bf16, 2> x, const Format& q, StreamRef stream) {
  start(x, q, stream);
}

template <class Format>
void tensor_scale(View<const bf16, 2> x, const Format& q, StreamRef stream) {
  const View<float, 1> scale = scale_of(q);
  FATHOM_EXPECT(x.contiguous() && scale.size() == 1, "tensor_scale: x has no gaps, and one scale");
  FATHOM_CUDA(cudaMemsetAsync(scale.data(), 0, sizeof(float), stream));
  if (x.size() > 0) {
    const TiledLaunch l = tiled_launch(1, x.size(), aligned_to(x.data(), 16), false);
    amax_kernel<<<l.grid, l.block, 0, stream>>>(x.data(), reinterpret_cast<uint32_t*>(scale.data()), l.tiles);
    FATHOM_LAUNCHED();
  }
  scale_kernel<<<1, 1, 0, stream>>>(scale.data(), largest_of(q));
  FATHOM_LAUNCHED();
}

template void tensor_scale(View<const bf16, 2>, const TensorScaled<fp8_e4m3>&, StreamRef);
template void tensor_scale(View<const bf16, 2>, const TensorScaled<fp8_e5m2>&, StreamRef);
template void tensor_scale(View<const bf16, 2>, const Nvfp4&, StreamRef);

template void quantize(View<const bf16, 2>, const TensorScaled<fp8_e4m3>&, StreamRef);
template void quantize(View<const bf16, 2>, const TensorScaled<fp8_e5m2>&, StreamRef);
template void quantize(View<const bf16, 2>, const RowScaled<fp8_e4m3>&, StreamRef);
template void quantize(View<const bf16, 2>, const RowScaled<fp8_e5m2>&, StreamRef);
template void quantize(View<const bf16, 2>, const RowScaled<int8_t>&, StreamRef);
template void quantize(View<const bf16, 2>, const BlockScaled<fp8_e4m3>&, StreamRef);
template void quantize(View<const bf16, 2>, const BlockScaled<fp8_e5m2>&, StreamRef);
template void quantize(View<const bf16, 2>, const BlockScaled<int8_t>&, StreamRef);
template void quantize(View<const bf16, 2>, const Mxfp8&, StreamRef);
template void quantize(View<const bf16, 2>, const Mxfp4&, StreamRef);
template void quantize(View<const bf16, 2>, const Nvfp4&, StreamRef);

}  // namespace fathom::kernels
