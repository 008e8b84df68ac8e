// Epilogue of the QKV projection: adds the bias, rotates queries and keys (RoPE, kernels/attention/rope.h),
// stores queries, and writes keys and values to the paged cache (kernels/attention/paged_kv_cache.h), in bf16
// or quantised to FP8. kernels/gemm/epilogue.cuh says what an epilogue is.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/dtype.h"
#include "core/expect.h"
#include "cuda/bf16_pack.cuh"
#include "cuda/ptx.cuh"
#include "kernels/attention/qkv_rope_output.h"
#include "kernels/gemm/packed_weights.h"

namespace fathom::kernels {

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
      // The 16 packed rows of a group share a scale. The bits of floats without their sign have the order of
      // the floats, with NaN on top, so that an integer maximum finds the largest magnitude.
      uint32_t largest = max(__float_as_uint(first) & 0x7fffffff, __float_as_uint(second) & 0x7fffffff);
#pragma unroll
      for (int other = 4; other < 32; other *= 2)
        largest = max(largest, __shfl_xor_sync(0x11111111u << threadIdx.x % 4, largest, other));
      const uint32_t scale      = Kv::scale_of(largest);
      const float inverse_scale = 1 / Kv::scale(scale);
      const uint32_t codes      = ptx::cvt_e4m3x2(first * inverse_scale, second * inverse_scale);
      uint8_t* strips = kv.strips(slot / 64, keys ? head - query_heads : head - query_heads - kv_heads);
      uint8_t* to     = strips + (keys ? 0 : Kv::kCodeBytes);
      to[Kv::at(slot % 64, i)]      = static_cast<uint8_t>(codes);
      to[Kv::at(slot % 64, 32 + i)] = static_cast<uint8_t>(codes >> 8);
      if (p % 8 == 0)
        strips[(keys ? 0 : Kv::kScaleBytes) + Kv::scale_at(slot % 64, i)] = static_cast<uint8_t>(scale);
    }
  }
  __device__ void operator()(int p, int t, float a, float b) const { (*this)(p, t, a, b, read(p, t)); }
};

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
