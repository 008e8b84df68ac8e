// u = W1 x + b1;  a = g sigmoid(alpha g) (l + 1);  y += weight (W2 a + b2)      x and a in int8, W in MXFP4
//
// bytes   1.5 H I 17/16 of each expert that has a token
// ops     6 H I for each token and expert of it, integers of 8 bits; 1/32 as many in fp32
// limit   few tokens: memory bandwidth; many: the units that multiply bytes
// idea    A byte shuffle makes of a code its number, doubled, plus 12: 0 to 24, the unsigned factor of a
//         product of bytes (kernels/gemm/int8_dot_cpu.h). With AVX2 products are summed in 16 bits, which
//         with weights this small cannot saturate
#include "kernels/moe/experts_int8.h"

#include <type_traits>

#include "core/thread_pool.h"
#include "kernels/gemm/panel_scheduler_cpu.h"

#define HWY_DISABLE_PCLMUL_AES  // not part of x86-64-v3; else Highway adds code for SSSE3 and SSE4
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/moe/experts_int8_cpu.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h, because it is compiled for each instruction set.
#include "kernels/gemm/int8_dot_cpu.h"
#include "kernels/moe/expert_layer_cpu.h"

#ifndef FATHOM_KERNELS_EXPERTS_INT8_CPU
#define FATHOM_KERNELS_EXPERTS_INT8_CPU
namespace fathom::kernels {
namespace N_AVX2 {
void experts_int8(const ExpertsTask& task, View<std::byte, 1> memory);
}
namespace {

struct ExpertsInt8Scratch {
  SortedRows sorted;
  uint8_t* x;                      // [T], quantized rows of H
  const uint8_t** x_rows;          // [T top_k], sorted
  float* activations;              // [T top_k, I], sorted
  uint8_t* quantized;              // [T top_k], sorted, quantized rows of I
  const uint8_t** quantized_rows;  // [T top_k], sorted
  float* out;                      // [T top_k, H], by expert row: W2 a + b2
  Int8TileScratches tiles;

  ExpertsInt8Scratch(int64_t rows, int64_t top_k, int64_t num_experts, int64_t hidden, int64_t intermediate,
                     int threads, ScratchAllocator& allocator)
      : sorted(rows * top_k, num_experts, allocator),
        x(allocator.take<uint8_t>(rows * int8_row_bytes(hidden))),
        x_rows(allocator.take<const uint8_t*>(rows * top_k)),
        activations(allocator.take<float>(rows * top_k * intermediate)),
        quantized(allocator.take<uint8_t>(rows * top_k * int8_row_bytes(intermediate))),
        quantized_rows(allocator.take<const uint8_t*>(rows * top_k)),
        out(allocator.take<float>(rows * top_k * hidden)),
        tiles(std::max(hidden, intermediate), threads, allocator) {}
};

}  // namespace
}  // namespace fathom::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace fathom::kernels::HWY_NAMESPACE {

#if FATHOM_KERNELS_HAVE_INT8_DOT

namespace int8 {

static_assert(kInt8Group == kMxfp4Block);

// Doubled numbers plus kOffset, of the low nibbles of words and of the high ones.
HWY_INLINE void unpack(Bytes words, Bytes& even, Bytes& odd) {
  const ByteTag bytes;
  const hn::Repartition<uint16_t, FloatTag> shorts;
  HWY_ALIGN static constexpr uint8_t kNumbers[16] = {12, 13, 14, 15, 16, 18, 20, 24,
                                                     12, 11, 10, 9,  8,  6,  4,  0};
  const Bytes numbers = hn::LoadDup128(bytes, kNumbers), low = hn::Set(bytes, uint8_t{15});
  even = hn::TableLookupBytes(numbers, hn::And(words, low));
  odd  = hn::TableLookupBytes(numbers,
                              hn::And(hn::BitCast(bytes, hn::ShiftRight<4>(hn::BitCast(shorts, words))), low));
}

// The weights of one expert's matrix. Word w of a block's packed weights has numbers 8 w + 2 j + odd, j < 4,
// as bytes of vector 2 w + odd. Lane 4 m + i is block 2 i + m, which is what a transposition inside each half
// of 128 bits makes of 4 vectors of packed weights.
struct Mxfp4Codes {
  // On Zen 4 VNNI gains nothing for few rows, where unpacking takes most of the time.
  using Products               = ShortProducts;
  using TileProducts           = std::conditional_t<HWY_TARGET == HWY_AVX3, VnniShortProducts, ShortProducts>;
  static constexpr int kOffset = 12;
  static constexpr float kUnit = 0.5f;
  static constexpr int8_t kOrder[16] = {0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15};
  static constexpr int64_t kRaw      = 4;
  static constexpr int64_t lane_of(int64_t block) { return block % 2 * 4 + block / 2; }

  const uint8_t* blocks;  // 16 bytes each
  const uint8_t* scales;
  int64_t count;   // of an output's blocks
  int64_t stride;  // blocks from one output's first to the next's

  int64_t whole_steps() const { return count / kBlocks; }

  HWY_INLINE Floats load(int64_t output, int64_t block, Bytes* raw) const {
    const uint8_t* from = blocks_of(output, block);
#pragma GCC unroll 4
    for (int64_t i = 0; i < 4; ++i) raw[i] = hn::LoadU(ByteTag(), from + i * kBytes);
    return expand_scales(scales_of(output, block));
  }

  HWY_INLINE Floats load_last(int64_t output, int64_t block, Bytes* raw) const {
    const ByteTag bytes;
    const WordTag words;
    const int64_t left = count - block;
    const auto* from   = reinterpret_cast<const uint32_t*>(blocks_of(output, block));
    for (int64_t i = 0; i < 4; ++i) {
      const auto there = static_cast<size_t>(std::clamp<int64_t>(4 * left - i * kBlocks, 0, kBlocks));
      raw[i] = hn::BitCast(bytes, hn::MaskedLoad(hn::FirstN(words, there), words, from + i * kBlocks));
    }
    uint8_t some[kBlocks];  // 1 for missing blocks: 0 times a subnormal would be slow
    std::memset(some, 127, sizeof some);
    std::copy_n(scales_of(output, block), left, some);
    return expand_scales(some);
  }

  template <class F>
  static HWY_INLINE void for_each(const Bytes* raw, const F& f) {
    Bytes words[4];
    transpose(raw[0], raw[1], raw[2], raw[3], words);
#pragma GCC unroll 4
    for (int64_t i = 0; i < 4; ++i) {
      Bytes even, odd;
      unpack(words[i], even, odd);
      f(2 * i, even);
      f(2 * i + 1, odd);
    }
  }

  // Eight outputs ahead: 12 KB with 2880 inputs.
  HWY_INLINE void prefetch(int64_t output, int64_t block) const {
    const uint8_t* ahead = blocks_of(output + 8, block);
    for (int64_t line = 0; line < kBlocks * kMxfp4Block / 2; line += 64) hwy::Prefetch(ahead + line);
  }

  const char* address(int64_t output) const { return reinterpret_cast<const char*>(blocks_of(output, 0)); }

 private:
  HWY_INLINE const uint8_t* blocks_of(int64_t output, int64_t block) const {
    return blocks + (output * stride + block) * (kMxfp4Block / 2);
  }
  HWY_INLINE const uint8_t* scales_of(int64_t output, int64_t block) const {
    return scales + output * stride + block;
  }

  // The scale of each lane's block, from kBlocks bytes. A byte becomes the exponent of a float; 0 becomes the
  // subnormal 2^-127.
  static HWY_INLINE Floats expand_scales(const uint8_t* from) {
    const FloatTag d;
    const WordTag words;
    const ByteTag bytes;
    struct ToTop {
      uint8_t index[kBytes];
      constexpr ToTop() : index() {
        for (auto& i : index) i = 128;  // a zero
        for (int64_t b = 0; b < kBlocks; ++b) index[4 * lane_of(b) + 3] = static_cast<uint8_t>(b);
      }
    };
    alignas(64) static constexpr ToTop kToTop;
    uint64_t all;  // repeated in each half
    std::memcpy(&all, from, sizeof all);
    const auto repeated = hn::BitCast(bytes, hn::Set(hn::Repartition<uint64_t, FloatTag>(), all));
    const auto top = hn::BitCast(words, hn::TableLookupBytesOr0(repeated, hn::Load(bytes, kToTop.index)));
    return hn::BitCast(d, hn::Max(hn::ShiftRight<1>(top), hn::Set(words, 0x00400000u)));
  }
};

Mxfp4Codes codes_of(const Mxfp4Matrices& w, int64_t e) {
  return {w.blocks.data() + e * w.blocks.stride(0), w.scales.data() + e * w.scales.stride(0),
          w.scales.extent(2), w.scales.stride(1)};
}

// The products of each active expert's rows with all its outputs, on all threads: calls take(expert, first
// sorted row, rows, first output, end output, sums).
template <class Take>
void expert_products(const ExpertsTask& task, const ExpertsInt8Scratch& s, int64_t active,
                     const Mxfp4Matrices& matrices, int64_t outputs, const uint8_t* const* rows,
                     const Take& take) {
  PanelScheduler queue(active, round_up(outputs, kPanel) / kPanel, task.threads.threads());
  task.threads.run_shares([&](int worker) {
    const Int8TileScratch tile = s.tiles.of(worker);
    for (auto run = queue.take(); run.begin < run.end; run = queue.take()) {
      const int64_t e = s.sorted.active[run.matrix], first = s.sorted.first[e],
                    count = s.sorted.first[e + 1] - first;
      dot_products(codes_of(matrices, e), rows + first, count, run.begin * kPanel,
                   std::min(run.end * kPanel, outputs), tile,
                   [&](int64_t row, int64_t some, int64_t n0, int64_t n1, const float* sums) {
                     take(e, first + row, some, n0, n1, sums);
                   });
    }
  });
}

inline constexpr int64_t kNumbersOfOneThread = 1 << 14;

// The first layer: quantized activations of all expert rows.
void up_projection(const ExpertsTask& task, const ExpertsInt8Scratch& s, int64_t active) {
  const ExpertWeights& w     = task.w;
  const int64_t intermediate = task.intermediate(), top_k = task.top_k();
  const int64_t x_stride = int8_row_bytes(task.hidden()), a_stride = int8_row_bytes(intermediate);

  task.threads.parallel_for(task.tokens(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t)
      quantize_row<Mxfp4Codes>(task.x.data() + t * task.x.stride(0), task.hidden(), s.x + t * x_stride);
    for (int64_t i = begin * top_k; i < end * top_k; ++i) {
      s.x_rows[i]         = s.x + s.sorted.rows[i] / top_k * x_stride;
      s.quantized_rows[i] = s.quantized + i * a_stride;
    }
  });

  expert_products(task, s, active, std::get<Mxfp4Matrices>(w.mlp1), 2 * intermediate, s.x_rows,
                  [&](int64_t e, int64_t first, int64_t count, int64_t n0, int64_t n1, const float* sums) {
                    HWY_ALIGN float u[2 * round_up(kPanel / 2, kBlocks)] = {};
                    HWY_ALIGN float a[round_up(kPanel / 2, kBlocks)];
                    for (int64_t r = 0; r < count; ++r) {
                      for (int64_t n = n0; n < n1; ++n)
                        u[n - n0] = sums[r * kPanel + n - n0] + static_cast<float>(w.mlp1_bias(e, n));
                      swiglu(FloatTag(), u, (n1 - n0) / 2, w.limit, w.alpha, a);
                      std::copy_n(a, (n1 - n0) / 2, s.activations + (first + r) * intermediate + n0 / 2);
                    }
                  });

  const auto quantize = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      quantize_row<Mxfp4Codes>(s.activations + i * intermediate, intermediate, s.quantized + i * a_stride);
  };
  // To wake a thread takes longer than to quantize a few thousand numbers.
  const int64_t rows = s.sorted.first[task.num_experts()];
  if (rows * intermediate <= kNumbersOfOneThread)
    quantize(0, rows);
  else
    task.threads.parallel_for(rows, 1, quantize);
}

void down_projection(const ExpertsTask& task, const ExpertsInt8Scratch& s, int64_t active) {
  const int64_t hidden = task.hidden();
  expert_products(task, s, active, std::get<Mxfp4Matrices>(task.w.mlp2), hidden, s.quantized_rows,
                  [&](int64_t e, int64_t first, int64_t count, int64_t n0, int64_t n1, const float* sums) {
                    for (int64_t r = 0; r < count; ++r) {
                      float* out = s.out + s.sorted.rows[first + r] * hidden;
                      for (int64_t n = n0; n < n1; ++n)
                        out[n] = sums[r * kPanel + n - n0] + static_cast<float>(task.w.mlp2_bias(e, n));
                    }
                  });
}

}  // namespace int8

void experts_int8(const ExpertsTask& task, View<std::byte, 1> memory) {
#if HWY_TARGET == HWY_AVX3
  if (!int8::has_vnni()) return N_AVX2::experts_int8(task, memory);
#endif
  ScratchAllocator allocator(memory);
  const ExpertsInt8Scratch s(task.tokens(), task.top_k(), task.num_experts(), task.hidden(),
                             task.intermediate(), task.threads.threads(), allocator);
  const int64_t active = group_by_expert(task, s.sorted);
  int8::up_projection(task, s, active);
  int8::down_projection(task, s, active);
  combine(int8::FloatTag(), task, s.out);
}

#else

void experts_int8(const ExpertsTask& task, View<std::byte, 1>) {
  experts_int8_reference(task.x, task.experts, task.weights, task.w, task.y, {});
}

#endif

}  // namespace fathom::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fathom::kernels {

HWY_EXPORT(experts_int8);

void experts_int8_cpu(View<const float, 2> x, View<const int32_t, 2> experts, View<const float, 2> weights,
                      const ExpertWeights& w, View<float, 2> y, const Execution& on) {
  const ExpertsTask task{x, experts, weights, w, y, *on.threads};
  expect_experts(task);
  FATHOM_EXPECT(
      std::holds_alternative<Mxfp4Matrices>(w.mlp1) && std::holds_alternative<Mxfp4Matrices>(w.mlp2),
      "activations in int8 go with weights in MXFP4");
  if (task.tokens() == 0) return;
  HWY_DYNAMIC_DISPATCH(experts_int8)(task, on.scratch);
}

int64_t experts_int8_cpu_scratch_bytes(int64_t rows, int64_t top_k, int64_t num_experts, int64_t hidden,
                                       int64_t intermediate, int threads) {
  ScratchAllocator counter;
  ExpertsInt8Scratch(rows, top_k, num_experts, hidden, intermediate, threads, counter);
  return counter.used();
}

}  // namespace fathom::kernels
#endif
