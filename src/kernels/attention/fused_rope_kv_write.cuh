// Epilogue of the QKV projection: adds the bias, rotates queries and keys (RoPE, kernels/attention/rope.h),
// stores queries, and writes keys and values to the paged cache (kernels/attention/kv_layer.h), in bf16 or
// quantised. kernels/gemm/epilogue.cuh says what an epilogue is.
#pragma once

#include <cstdint>
#include <type_traits>
#include <variant>

#include "core/dtype.h"
#include "core/expect.h"
#include "cuda/bf16_pack.cuh"
#include "cuda/ptx.cuh"
#include "kernels/attention/qkv_rope_output.h"
#include "kernels/gemm/packed_weights.h"

namespace fathom::kernels {

// Where keys and values go in a quantised cache, of any format: the formats differ in offsets and codes only,
// and one kernel for all of them is one to compile.
struct QuantizedKvPages {
  struct Side {
    int codes, scales;  // offsets in a strip
    bool fp4;
  };
  uint8_t* tiles;
  int64_t heads;
  int page_bytes, strip_bytes;  // of a head
  Side keys, values;

  explicit QuantizedKvPages(const Fp8KvPages& kv)
      : tiles(kv.tiles),
        heads(kv.heads),
        page_bytes(Fp8KvPages::kPageBytes),
        strip_bytes(Fp8KvPages::kStripBytes),
        keys{0, 2 * Fp8KvPages::kCodeBytes, false},
        values{Fp8KvPages::kCodeBytes, 2 * Fp8KvPages::kCodeBytes + Fp8KvPages::kScaleBytes, false} {}
  template <bool kFp8Keys>
  explicit QuantizedKvPages(const Fp4KvPages<kFp8Keys>& kv)
      : tiles(kv.tiles),
        heads(kv.heads),
        page_bytes(Fp4KvPages<kFp8Keys>::kPageBytes),
        strip_bytes(Fp4KvPages<kFp8Keys>::kStripBytes),
        keys{0, Fp4KvPages<kFp8Keys>::kKeyScalesAt, !kFp8Keys},
        values{Fp4KvPages<kFp8Keys>::kKeyBytes, Fp4KvPages<kFp8Keys>::kValueScalesAt, true} {}

  // Stores `first` as dimension i of a key (or a value), i < 32, and `second` as dimension 32 + i. By the 8
  // lanes of equal lane % 4, which have consecutive i of one position: a block of the cache, with one scale.
  __device__ void store(int slot, int head, bool key, int i, float first, float second) const {
    const unsigned lanes = 0x11111111u << threadIdx.x % 4;
    // The bits of floats without their sign have the order of the floats, with NaN on top, so that an integer
    // maximum finds the largest magnitude.
    uint32_t largest = max(__float_as_uint(first) & 0x7fffffff, __float_as_uint(second) & 0x7fffffff);
#pragma unroll
    for (int other = 4; other < 32; other *= 2)
      largest = max(largest, __shfl_xor_sync(lanes, largest, other));
    // Not a reference to either, which would put the kernel's parameters into local memory.
    const int codes_at = key ? keys.codes : values.codes, scales_at = key ? keys.scales : values.scales;
    const bool fp4       = key ? keys.fp4 : values.fp4;
    const uint32_t scale = fp4 ? Nvfp4KvPages::scale_of(largest) : Fp8KvPages::scale_of(largest);
    const float unit     = 1 / Fp8KvPages::scale(scale);
    uint8_t* strip       = tiles + (slot / 64 * heads + head) * page_bytes + slot % 64 / 16 * strip_bytes;
    const int r          = slot % 16;
    if (fp4) {
      // Two dimensions are a byte: an even one and its neighbour store a byte each.
      const uint32_t mine  = fp4_e2m1_code(first * unit) | fp4_e2m1_code(second * unit) << 4;
      const uint32_t other = __shfl_xor_sync(lanes, mine, 4);
      const bool odd       = i % 2 != 0;
      const uint32_t pair  = odd ? other >> 4 | (mine & 0xf0) : (mine & 0xf) | (other & 0xf) << 4;
      strip[codes_at + Nvfp4KvPages::at(r, false, odd ? 31 + i : i)] = static_cast<uint8_t>(pair);
    } else {
      const uint32_t codes                        = ptx::cvt_e4m3x2(first * unit, second * unit);
      strip[codes_at + Fp8KvPages::at(r, i)]      = static_cast<uint8_t>(codes);
      strip[codes_at + Fp8KvPages::at(r, 32 + i)] = static_cast<uint8_t>(codes >> 8);
    }
    if (i % 8 == 0) strip[scales_at + r * 4 + i / 8] = static_cast<uint8_t>(scale);
  }

 private:
  // The nearest E2M1 number of 0, 0.5, 1, 1.5, 2, 3, 4, 6; ties to the even code, as fp4_e2m1 (core/dtype.h)
  // rounds. Hopper has no instruction for it.
  __device__ static uint32_t fp4_e2m1_code(float x) {
    const float size = fabsf(x);
    const int code   = (size > 0.25f) + (size >= 0.75f) + (size > 1.25f) + (size >= 1.75f) + (size > 2.5f) +
                     (size >= 3.5f) + (size > 5.0f);
    return static_cast<uint32_t>(code) | __float_as_uint(x) >> 31 << 3;
  }
};

// Of weights in RowOrder::rotary_pairs. Heads of queries come first, then those of keys, then those of
// values.
template <class Kv>
struct RopeKvWriteEpilogue {
  const float* bias;            // [rows]
  const float* rope_table;      // [T, 64]: 32 cosines, 32 sines
  const int32_t* slot_mapping;  // [T]: page * 64 + position in the page; -1: the row is padding
  bf16* q;                      // [T, query heads, 64]
  Kv kv;
  int query_heads;

  struct Operands {
    float bias[2], cosine, sine;
    int slot;
  };
  __device__ Operands read(int p, int t) const {
    const int head = p / 64, i = p % 64 / 16 * 8 + p % 8;
    Operands operands{{bias[p], bias[p + 8]}, 1, 0, 0};
    if (head < query_heads + static_cast<int>(kv.heads)) {
      operands.cosine = rope_table[t * 64 + i];
      operands.sine   = rope_table[t * 64 + 32 + i];
    }
    if (head >= query_heads) operands.slot = slot_mapping[t];
    return operands;
  }

  __device__ void operator()(int p, int t, float a, float b, const Operands& operands) const {
    const int head = p / 64, i = p % 64 / 16 * 8 + p % 8, kv_heads = static_cast<int>(kv.heads);
    a += operands.bias[0];
    b += operands.bias[1];
    const float first  = __fmaf_rn(a, operands.cosine, __fmul_rn(-b, operands.sine));
    const float second = __fmaf_rn(b, operands.cosine, __fmul_rn(a, operands.sine));
    if (head < query_heads) {
      bf16* to = q + (int64_t{t} * query_heads + head) * 64;
      store_bf16(to + i, first);
      store_bf16(to + 32 + i, second);
      return;
    }
    const int slot = operands.slot;
    if (slot < 0) return;
    const bool keys = head < query_heads + kv_heads;
    if constexpr (std::is_same_v<Kv, Bf16KvPages>) {
      bf16* tile =
          keys ? kv.keys(slot / 64, head - query_heads) : kv.values(slot / 64, head - query_heads - kv_heads);
      store_bf16(tile + Bf16KvPages::at(slot % 64, i), first);
      store_bf16(tile + Bf16KvPages::at(slot % 64, 32 + i), second);
    } else {
      kv.store(slot, keys ? head - query_heads : head - query_heads - kv_heads, keys, i, first, second);
    }
  }
  __device__ void operator()(int p, int t, float a, float b) const { (*this)(p, t, a, b, read(p, t)); }
};

// Calls with(Bf16KvPages) or with(QuantizedKvPages).
template <class With>
void with_kv_writer(const KvLayer& kv, const With& with) {
  std::visit(
      [&](const auto& pages) {
        if constexpr (std::is_same_v<decltype(pages), const Bf16KvPages&>)
          with(pages);
        else
          with(QuantizedKvPages(pages));
      },
      kv);
}

// The epilogue of x [T, K] times w, for a cache of this format. Checks the contract of qkv_rope.
template <class Kv>
RopeKvWriteEpilogue<Kv> rope_kv_write_epilogue(View<const bf16, 2> x, const PackedMatrix& w,
                                               const QkvRopeOutput& to, const Kv& kv) {
  const int64_t rows = x.extent(0), heads = to.q.extent(1);
  FATHOM_EXPECT(to.rope_table.extent(0) == rows && to.rope_table.extent(1) == kHeadDim &&
                    to.rope_table.contiguous() && to.slot_mapping.extent(0) == rows &&
                    to.slot_mapping.contiguous() && to.q.extent(0) == rows && to.q.extent(2) == kHeadDim &&
                    to.q.contiguous(),
                "qkv_rope: rope_table is [T, 64], slot_mapping [T], q [T, query heads, 64]");
  FATHOM_EXPECT(w.bias && w.rows == (heads + 2 * kv.heads) * kHeadDim,
                "qkv_rope: the weights have a bias, and the rows of all heads");
  return {.bias         = w.bias,
          .rope_table   = to.rope_table.data(),
          .slot_mapping = to.slot_mapping.data(),
          .q            = to.q.data(),
          .kv           = kv,
          .query_heads  = static_cast<int>(heads)};
}

}  // namespace fathom::kernels
