// y(t, n) = bias(n) + sum_k x(t, k) w(n, k), or that added to y      x and w in int8
//
// bytes   1.06 N K of weights, read once whatever T
// ops     2 T N K, integers of 8 bits; 1/32 as many in fp32
// limit   memory bandwidth up to a handful of rows, the units that multiply bytes beyond
// idea    The products of kernels/gemm/int8_dot_cpu.h: sums of a group are exact in integers. With VNNI a
//         weight becomes unsigned by an offset of 128. With AVX2, whose products are summed in 16 bits, that
//         would not fit, and the sign of each weight goes over to the value instead
#include "kernels/gemm/linear_int8.h"

#include <fmt/format.h>

#include "core/expect.h"
#include "core/thread_pool.h"
#include "kernels/gemm/panel_scheduler_cpu.h"

#define HWY_DISABLE_PCLMUL_AES  // not part of x86-64-v3; else Highway adds code for SSSE3 and SSE4
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemm/linear_int8_cpu.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h, because it is compiled for each instruction set.
#include "kernels/gemm/int8_dot_cpu.h"

#ifndef FATHOM_KERNELS_LINEAR_INT8_CPU
#define FATHOM_KERNELS_LINEAR_INT8_CPU
namespace fathom::kernels {
namespace N_AVX2 {
void linear_int8(View<const float, 2> x, const Int8Weights& w, View<const bf16, 1> bias, Output output,
                 View<float, 2> y, const Execution& on);
}
namespace {

struct LinearInt8Scratch {
  uint8_t* quantized;    // [T], rows of x
  const uint8_t** rows;  // [T], of quantized
  Int8TileScratches tiles;

  LinearInt8Scratch(int64_t rows, int64_t depth, int threads, ScratchAllocator& allocator)
      : quantized(allocator.take<uint8_t>(rows * int8_row_bytes(depth))),
        rows(allocator.take<const uint8_t*>(rows)),
        tiles(depth, threads, allocator) {}
};

}  // namespace
}  // namespace fathom::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace fathom::kernels::HWY_NAMESPACE {

#if FATHOM_KERNELS_HAVE_INT8_DOT

namespace int8 {

// Word i of a group is vector i. Lanes are groups in their order in memory.
struct Int8Codes {
#if HWY_TARGET == HWY_AVX3
  using Products               = VnniProducts;
  static constexpr int kOffset = 128;
#else
  using Products               = SignedProducts;
  static constexpr int kOffset = 0;
#endif
  using TileProducts                 = Products;
  static constexpr float kUnit       = 1;
  static constexpr int8_t kOrder[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  static constexpr int64_t kRaw      = kBlocks;
  static constexpr int64_t lane_of(int64_t group) { return group; }

  const int8_t* values;
  const bf16* scales;
  int64_t depth;
  int64_t values_stride, scales_stride;  // from one output's to the next's
  int64_t count;

  int64_t whole_steps() const { return depth / (kBlocks * kInt8Group); }

  HWY_INLINE Floats load(int64_t output, int64_t group, Bytes* raw) const {
    const auto* from = reinterpret_cast<const uint8_t*>(values_of(output, group));
#pragma GCC unroll 8
    for (int64_t g = 0; g < kBlocks; ++g) raw[g] = hn::LoadU(ByteTag(), from + g * kBytes);
    return expand_scales(scales + output * scales_stride + group);
  }

  HWY_INLINE Floats load_last(int64_t output, int64_t group, Bytes* raw) const {
    const auto* from   = reinterpret_cast<const uint8_t*>(values_of(output, group));
    const int64_t left = depth - group * kInt8Group;
    for (int64_t g = 0; g < kBlocks; ++g)
      raw[g] = (g + 1) * kBytes <= left ? hn::LoadU(ByteTag(), from + g * kBytes) : hn::Zero(ByteTag());
    if (const int64_t some = left % kInt8Group; some > 0) {
      HWY_ALIGN uint8_t last[kBytes] = {};
      std::copy_n(from + left - some, some, last);
      raw[left / kInt8Group] = hn::Load(ByteTag(), last);
    }
    bf16 there[kBlocks] = {};
    std::copy_n(scales + output * scales_stride + group, count - group, there);
    return expand_scales(there);
  }

  template <class F>
  static HWY_INLINE void for_each(const Bytes* raw, const F& f) {
    const ByteTag bytes;
    Bytes first[4], second[4];  // word i in the lower half, word 4 + i in the upper
    transpose(raw[0], raw[1], raw[2], raw[3], first);
    transpose(raw[4], raw[5], raw[6], raw[7], second);
    const auto offset = hn::Set(bytes, static_cast<uint8_t>(kOffset));
#pragma GCC unroll 4
    for (int64_t i = 0; i < 4; ++i) f(i, hn::Xor(hn::ConcatLowerLower(bytes, second[i], first[i]), offset));
#pragma GCC unroll 4
    for (int64_t i = 0; i < 4; ++i)
      f(4 + i, hn::Xor(hn::ConcatUpperUpper(bytes, second[i], first[i]), offset));
  }

  // Four outputs ahead: 12 KB with 2880 inputs.
  HWY_INLINE void prefetch(int64_t output, int64_t group) const {
    const int8_t* ahead = values_of(output + 4, group);
    for (int64_t line = 0; line < kBlocks * kInt8Group; line += 64) hwy::Prefetch(ahead + line);
  }

  const char* address(int64_t output) const { return reinterpret_cast<const char*>(values_of(output, 0)); }

 private:
  HWY_INLINE const int8_t* values_of(int64_t output, int64_t group) const {
    return values + output * values_stride + group * kInt8Group;
  }

  static HWY_INLINE Floats expand_scales(const bf16* from) {
    const __m128i all = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return hn::BitCast(FloatTag(), Ints{_mm256_slli_epi32(_mm256_cvtepu16_epi32(all), 16)});
  }
};

}  // namespace int8

void linear_int8(View<const float, 2> x, const Int8Weights& w, View<const bf16, 1> bias, Output output,
                 View<float, 2> y, const Execution& on) {
#if HWY_TARGET == HWY_AVX3
  if (!int8::has_vnni()) return N_AVX2::linear_int8(x, w, bias, output, y, on);
#endif
  const int64_t count = x.extent(0), depth = x.extent(1), outputs = y.extent(1);
  ScratchAllocator allocator(on.scratch);
  const LinearInt8Scratch s(count, depth, on.threads->threads(), allocator);
  const int8::Int8Codes codes{w.values.data(),    w.scales.data(),    depth,
                              w.values.stride(0), w.scales.stride(0), int8_groups(depth)};

  on.threads->parallel_for(count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      uint8_t* row = s.quantized + t * int8_row_bytes(depth);
      int8::quantize_row<int8::Int8Codes>(x.data() + t * x.stride(0), depth, row);
      s.rows[t] = row;
    }
  });

  PanelScheduler queue(1, round_up(outputs, kPanel) / kPanel, on.threads->threads());
  on.threads->run_shares([&](int worker) {
    const Int8TileScratch tile = s.tiles.of(worker);
    for (auto run = queue.take(); run.begin < run.end; run = queue.take())
      int8::dot_products(codes, s.rows, count, run.begin * kPanel, std::min(run.end * kPanel, outputs), tile,
                         [&](int64_t first, int64_t rows, int64_t n0, int64_t n1, const float* sums) {
                           for (int64_t r = 0; r < rows; ++r) {
                             float* out = y.data() + (first + r) * y.stride(0);
                             for (int64_t n = n0; n < n1; ++n) {
                               const float sum = sums[r * kPanel + n - n0] +
                                                 (bias.data() ? static_cast<float>(bias(n)) : 0.0f);
                               out[n] = output == Output::add ? out[n] + sum : sum;
                             }
                           }
                         });
  });
}

#else

void linear_int8(View<const float, 2> x, const Int8Weights& w, View<const bf16, 1> bias, Output output,
                 View<float, 2> y, const Execution& on) {
  linear_int8_reference(x, w, bias, output, y, on);
}

#endif

}  // namespace fathom::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fathom::kernels {

HWY_EXPORT(linear_int8);

void linear_int8_cpu(View<const float, 2> x, const Int8Weights& w, View<const bf16, 1> bias, Output output,
                     View<float, 2> y, const Execution& on) {
  const int64_t rows = x.extent(0), depth = x.extent(1), outputs = w.values.extent(0);
  FATHOM_EXPECT(w.values.extent(1) == depth && y.extent(0) == rows && y.extent(1) == outputs,
                fmt::format("x [{}, {}] and w [{}, {}] make no y [{}, {}]", rows, depth, outputs,
                            w.values.extent(1), y.extent(0), y.extent(1)));
  FATHOM_EXPECT(bias.data() == nullptr || bias.extent(0) == outputs,
                fmt::format("a bias of {} for {} outputs", bias.extent(0), outputs));
  FATHOM_EXPECT((depth <= 1 || x.stride(1) == 1) && (outputs <= 1 || y.stride(1) == 1) && well_formed(w),
                "rows of x, w and y must be contiguous, and w must have a scale for each group of 32");
  if (rows == 0 || outputs == 0) return;
  HWY_DYNAMIC_DISPATCH(linear_int8)(x, w, bias, output, y, on);
}

int64_t linear_int8_cpu_scratch_bytes(int64_t rows, int64_t depth, int threads) {
  ScratchAllocator counter;
  LinearInt8Scratch(rows, depth, threads, counter);
  return counter.used();
}

}  // namespace fathom::kernels
#endif
