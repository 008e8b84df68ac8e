// out(r, c) = code(r, c) * unit of its group      R x C, the formats of formats.h to bf16
//
// bytes   3 n (E4M3, E5M2, INT8) or 2.5 n (E2M1), and scales
// flops   1 to 3 n
// limit   DRAM bandwidth. H200: 2^29 numbers from NVFP4 are 1.4 GB, 0.33 ms at a copy's 4.2 TB/s
// idea    two thirds and more of the bytes are stores, which are fast where a warp's have no gaps
//         (experiments/ch19_adaptive/dequantize_vectorized): a thread takes 8 codes, 4 or 8 bytes, as many as
//         a store of 16 bytes has numbers. It has four such loads in flight
#include <cuda_fp8.h>

#include <type_traits>

#include "cuda/bf16_pack.cuh"
#include "cuda/check.h"
#include "kernels/quant/quantize.h"
#include "kernels/quant/tiles.cuh"

namespace fathom::kernels {
namespace {

// The 8 numbers of a word of codes.

template <__nv_fp8_interpretation_t kType>
struct Fp8Codes {
  using Word = uint2;
  static __device__ void four(uint32_t codes, float* numbers) {
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const __half2 pair(
          __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(codes >> 8 * i), kType));
      numbers[i]     = __low2float(pair);
      numbers[i + 1] = __high2float(pair);
    }
  }
  static __device__ void decode(uint2 codes, float (&numbers)[8]) {
    four(codes.x, numbers);
    four(codes.y, numbers + 4);
  }
};

struct Int8Codes {
  using Word = uint2;
  // The bits of 2^23 + 128 + n are those of 2^23 with n + 128 in the lowest byte.
  static __device__ void four(uint32_t codes, float* numbers) {
    const uint32_t moved = codes ^ 0x80808080u;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      numbers[i] = __uint_as_float(__byte_perm(moved, 0x4b000000u, 0x7540u | static_cast<uint32_t>(i))) -
                   (0x1p23f + 128);
  }
  static __device__ void decode(uint2 codes, float (&numbers)[8]) {
    four(codes.x, numbers);
    four(codes.y, numbers + 4);
  }
};

// Exponent and mantissa of a code, moved to where a float has its own, are its magnitude times 2^-126: the
// biases are 1 and 127. That is right for the subnormal 0.5 too.
struct E2m1Codes {
  using Word = uint32_t;
  static __device__ void decode(uint32_t codes, float (&numbers)[8]) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const uint32_t code = codes >> 4 * i;
      numbers[i]          = __uint_as_float((code & 8) << 28 | (code & 7) << 22) * 0x1p126f;
    }
  }
};

// A group's unit, which is one factor, or for NVFP4 two that are multiplied in this order.
struct Unit {
  float scale;
  __device__ float times(float code) const { return code * scale; }
};
struct UnitOfTwo {
  float scale, tensor_scale;
  __device__ float times(float code) const { return code * scale * tensor_scale; }
};

constexpr int kTensor = 0, kRow = -1;  // groups beside blocks

template <class Codes_, int kGroup_>
struct Fp32Scaled {
  using Codes                 = Codes_;
  using Scale                 = float;
  static constexpr int kGroup = kGroup_;
  static __device__ Unit unit(float scale, float) { return {scale}; }
};

template <class Codes_>
struct Microscaled {
  using Codes                 = Codes_;
  using Scale                 = e8m0;
  static constexpr int kGroup = 32;
  static __device__ Unit unit(e8m0 scale, float) { return {static_cast<float>(scale)}; }
};

struct Nvfp4Scaled {
  using Codes                 = E2m1Codes;
  using Scale                 = fp8_e4m3;
  static constexpr int kGroup = 16;
  static __device__ UnitOfTwo unit(fp8_e4m3 scale, float given) {
    return {__half2float(__half(__nv_cvt_fp8_to_halfraw(scale.bits, __NV_E4M3))), given};
  }
};

template <class Scale>
struct Scales {
  const Scale* data;
  int64_t row_stride, stride;
};

template <class Format>
__global__ void __launch_bounds__(256)
    dequantize_kernel(const uint8_t* codes, Scales<typename Format::Scale> scales, const float* given,
                      bf16* out, Tiles t) {
  using Codes    = typename Format::Codes;
  using Word     = typename Codes::Word;
  const Place at = place_of(t);
  if (at.row >= t.rows) return;

  const int64_t bytes = sizeof(Word) == kVectorSize ? t.cols : (t.cols + 1) / 2;
  Word words[kLoads];
  load_words(codes + at.row * bytes, bytes, at.first, t.whole, words);
  const float of_tensor = given ? *given : 0;
  auto* row             = reinterpret_cast<uint8_t*>(out + at.row * t.cols);
#pragma unroll
  for (int k = 0; k < kLoads; ++k) {
    const int vector = at.first + k * static_cast<int>(blockDim.x);
    int64_t group    = at.row * scales.row_stride;
    if constexpr (Format::kGroup > 0) group += vector / (Format::kGroup / kVectorSize) * scales.stride;
    typename Format::Scale scale{};
    if (vector < t.vectors) scale = scales.data[group];
    const auto unit = Format::unit(scale, of_tensor);
    float numbers[8];
    Codes::decode(words[k], numbers);
    const auto pair = [&](int i) { return pack_bf16x2(unit.times(numbers[i]), unit.times(numbers[i + 1])); };
    store_word(row, 2 * t.cols, at.first, k, t.whole, uint4{pair(0), pair(2), pair(4), pair(6)});
  }
}

// `one_row`: codes are cut up as one long row. They may be where rows end with a whole group and scales lie
// one after another.
template <class Format, class Code>
void launch(View<Code, 2> codes, Scales<typename Format::Scale> scales, bool one_row, const float* given,
            View<bf16, 2> out, StreamRef stream) {
  constexpr int64_t kWord = sizeof(typename Format::Codes::Word);
  FATHOM_EXPECT(out.contiguous() && codes.contiguous(), "dequantize: rows of out and of codes have no gaps");
  FATHOM_EXPECT(codes.extent(0) == out.extent(0) &&
                    codes.extent(1) == (kWord == kVectorSize ? out.extent(1) : (out.extent(1) + 1) / 2),
                "dequantize: codes are R x C, or R x ceil(C / 2) bytes of E2M1, for an out of R x C");
  if (out.size() == 0) return;
  const TiledLaunch l = tiled_launch(one_row ? 1 : out.extent(0), one_row ? out.size() : out.extent(1),
                                     aligned_to(out.data(), 16) && aligned_to(codes.data(), kWord), false);
  dequantize_kernel<Format><<<l.grid, l.block, 0, stream>>>(reinterpret_cast<const uint8_t*>(codes.data()),
                                                            scales, given, out.data(), l.tiles);
  FATHOM_LAUNCHED();
}

template <class Format, class Code, class Scale>
void launch_blocks(View<Code, 2> codes, View<Scale, 2> scales, const float* given, View<bf16, 2> out,
                   StreamRef stream) {
  FATHOM_EXPECT(scales.extent(0) == out.extent(0) &&
                    scales.extent(1) == (out.extent(1) + Format::kGroup - 1) / Format::kGroup,
                "dequantize: scales are R x ceil(C / block) for an out of R x C");
  if (out.extent(1) % Format::kGroup == 0 && scales.contiguous())
    launch<Format>(codes, {scales.data(), 0, 1}, true, given, out, stream);
  else
    launch<Format>(codes, {scales.data(), scales.stride(0), scales.stride(1)}, false, given, out, stream);
}

template <class Code>
using CodesOf = std::conditional_t<
    std::is_same_v<Code, int8_t>, Int8Codes,
    std::conditional_t<std::is_same_v<Code, fp8_e4m3>, Fp8Codes<__NV_E4M3>, Fp8Codes<__NV_E5M2>>>;

template <class Code>
void start(const TensorScaled<Code>& q, View<bf16, 2> out, StreamRef stream) {
  FATHOM_EXPECT(q.scale.size() == 1, "dequantize: a tensor has one scale");
  launch<Fp32Scaled<CodesOf<Code>, kTensor>>(q.codes, {q.scale.data(), 0, 0}, true, nullptr, out, stream);
}
template <class Code>
void start(const RowScaled<Code>& q, View<bf16, 2> out, StreamRef stream) {
  FATHOM_EXPECT(q.scales.size() == out.extent(0), "dequantize: scales are one for each row");
  launch<Fp32Scaled<CodesOf<Code>, kRow>>(q.codes, {q.scales.data(), q.scales.stride(0), 0}, false, nullptr,
                                          out, stream);
}
template <class Code>
void start(const BlockScaled<Code>& q, View<bf16, 2> out, StreamRef stream) {
  launch_blocks<Fp32Scaled<CodesOf<Code>, BlockScaled<Code>::kBlock>>(q.codes, q.scales, nullptr, out,
                                                                      stream);
}
void start(const Mxfp8& q, View<bf16, 2> out, StreamRef stream) {
  launch_blocks<Microscaled<Fp8Codes<__NV_E4M3>>>(q.codes, q.scales, nullptr, out, stream);
}
void start(const Mxfp4& q, View<bf16, 2> out, StreamRef stream) {
  launch_blocks<Microscaled<E2m1Codes>>(q.codes, q.scales, nullptr, out, stream);
}
void start(const Nvfp4& q, View<bf16, 2> out, StreamRef stream) {
  FATHOM_EXPECT(q.tensor_scale.size() == 1, "dequantize: a tensor has one scale");
  launch_blocks<Nvfp4Scaled>(q.codes, q.scales, q.tensor_scale.data(), out, stream);
}

}  // namespace

template <class Format>
void dequantize(const Format& q, View<bf16, 2> out, StreamRef stream) {
  start(q, out, stream);
}

template void dequantize(const TensorScaled<fp8_e4m3>&, View<bf16, 2>, StreamRef);
template void dequantize(const TensorScaled<fp8_e5m2>&, View<bf16, 2>, StreamRef);
template void dequantize(const RowScaled<fp8_e4m3>&, View<bf16, 2>, StreamRef);
template void dequantize(const RowScaled<fp8_e5m2>&, View<bf16, 2>, StreamRef);
template void dequantize(const RowScaled<int8_t>&, View<bf16, 2>, StreamRef);
template void dequantize(const BlockScaled<fp8_e4m3>&, View<bf16, 2>, StreamRef);
template void dequantize(const BlockScaled<fp8_e5m2>&, View<bf16, 2>, StreamRef);
template void dequantize(const BlockScaled<int8_t>&, View<bf16, 2>, StreamRef);
template void dequantize(const Mxfp8&, View<bf16, 2>, StreamRef);
template void dequantize(const Mxfp4&, View<bf16, 2>, StreamRef);
template void dequantize(const Nvfp4&, View<bf16, 2>, StreamRef);

}  // namespace fathom::kernels
