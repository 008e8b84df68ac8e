// What becomes of a product W x, in the threads that have it: packed rows p and p + 8 (p % 16 < 8) for one
// row t of x. The 8 lanes of a warp that have lane % 4 in common have the same t and the 16 rows of a group,
// p % 8 being lane / 4. Products with few rows and with many end in these alike. Each first reads what it
// needs besides the product, read(p, t), so that a thread with many products can have many reads under way.
//
// Products that are added to something are rounded as __fmaf_rn says, which the compiler would else settle
// anew in each kernel: a row's bits would depend on which one it is in.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>
#include <type_traits>

#include "core/dtype.h"
#include "core/ptx.cuh"
#include "kernels/kv_tiles.h"
#include "kernels/packed_weights.h"

namespace fathom::kernels {

__device__ inline void store_bf16(bf16* to, float value) {
  *reinterpret_cast<__nv_bfloat16*>(to) = __float2bfloat16_rn(value);
}

// y(t, p) = product + bias, or that added to y. Rows are those of the checkpoint (RowOrder::plain), the first
// `rows` of them.
template <bool kAdd>
struct StoreRows {
  float* y;  // [T, stride]
  int64_t stride;
  int64_t rows;
  const float* bias;  // null: none

  struct Given {
    float low, high;  // bias, or that and y
  };
  __device__ Given read(int p, int t) const { return {read_one(p, t), read_one(p + 8, t)}; }

  __device__ void operator()(int p, int t, float low, float high, const Given& given) const {
    if (p < rows) y[t * stride + p] = given.low + low;
    if (p + 8 < rows) y[t * stride + p + 8] = given.high + high;
  }
  __device__ void operator()(int p, int t, float low, float high) const {
    (*this)(p, t, low, high, read(p, t));
  }

 private:
  __device__ float read_one(int p, int t) const {
    if (p >= rows) return 0;
    return (bias ? bias[p] : 0.0f) + (kAdd ? y[t * stride + p] : 0.0f);
  }
};

// Queries, keys and values of RowOrder::rotary_pairs, turned by their positions (kernels/rope.h) and put
// where attention reads them: queries at q [T, query heads, 64], keys and values in the cache. Heads of
// queries come first, then those of keys, then those of values.
template <class Kv>
struct StoreHeads {
  const float* bias;     // [rows]
  const float* turns;    // [T, 64]: 32 cosines, 32 sines
  const int32_t* slots;  // [T]: page * 64 + place in the page; -1: the row is padding
  bf16* q;
  Kv kv;
  int query_heads;

  struct Given {
    float bias[2], cosine, sine;
    int slot;
  };
  __device__ Given read(int p, int t) const {
    const int head = p / 64, i = p % 64 / 16 * 8 + p % 8;
    Given given{{bias[p], bias[p + 8]}, 1, 0, 0};
    if (head < query_heads + static_cast<int>(kv.heads)) {
      given.cosine = turns[t * 64 + i];
      given.sine   = turns[t * 64 + 32 + i];
    }
    if (head >= query_heads) given.slot = slots[t];
    return given;
  }

  __device__ void operator()(int p, int t, float a, float b, const Given& given) const {
    const int head = p / 64, i = p % 64 / 16 * 8 + p % 8, kv_heads = static_cast<int>(kv.heads);
    a += given.bias[0];
    b += given.bias[1];
    const float first  = __fmaf_rn(a, given.cosine, __fmul_rn(-b, given.sine));
    const float second = __fmaf_rn(b, given.cosine, __fmul_rn(a, given.sine));
    if (head < query_heads) {
      bf16* to = q + (int64_t{t} * query_heads + head) * 64;
      store_bf16(to + i, first);
      store_bf16(to + 32 + i, second);
      return;
    }
    const int slot = given.slot;
    if (slot < 0) return;
    const bool keys = head < query_heads + kv_heads;
    if constexpr (std::is_same_v<Kv, KvTiles>) {
      bf16* tile =
          keys ? kv.keys(slot / 64, head - query_heads) : kv.values(slot / 64, head - query_heads - kv_heads);
      store_bf16(tile + KvTiles::at(slot % 64, i), first);
      store_bf16(tile + KvTiles::at(slot % 64, 32 + i), second);
    } else {
      // The group's rows are a block. Floats without their sign are in the order of their bits, NaN on top.
      uint32_t largest = max(__float_as_uint(first) & 0x7fffffff, __float_as_uint(second) & 0x7fffffff);
#pragma unroll
      for (int other = 4; other < 32; other *= 2)
        largest = max(largest, __shfl_xor_sync(0x11111111u << threadIdx.x % 4, largest, other));
      const uint32_t scale = Kv::scale_of(largest);
      const float times    = 1 / Kv::scale(scale);
      const uint32_t codes = ptx::to_e4m3(first * times, second * times);
      uint8_t* strips      = kv.strips(slot / 64, keys ? head - query_heads : head - query_heads - kv_heads);
      uint8_t* to          = strips + (keys ? 0 : Kv::kCodeBytes);
      to[Kv::at(slot % 64, i)]      = static_cast<uint8_t>(codes);
      to[Kv::at(slot % 64, 32 + i)] = static_cast<uint8_t>(codes >> 8);
      if (p % 8 == 0)
        strips[(keys ? 0 : Kv::kScaleBytes) + Kv::scale_at(slot % 64, i)] = static_cast<uint8_t>(scale);
    }
  }
  __device__ void operator()(int p, int t, float a, float b) const { (*this)(p, t, a, b, read(p, t)); }
};

// The first layer of expert e: a(t, u) = g sigmoid(alpha g) (l + 1), with the gate g and the linear part l of
// unit u clamped (kernels/experts.h). `t` is a row of the expert layer's rows, one for each token and expert.
struct StoreGated {
  bf16* a;  // [rows, units], units the padded number
  int64_t units;
  const float* bias;  // of expert e
  float times;        // PackedExperts::times
  float limit, alpha;

  struct Given {
    float gate, linear;  // bias
  };
  __device__ Given read(int p, int) const { return {bias[p], bias[p + 8]}; }

  __device__ void operator()(int p, int t, float gate, float linear, const Given& given) const {
    const float g = fminf(__fmaf_rn(gate, times, given.gate), limit);
    const float l = fminf(fmaxf(__fmaf_rn(linear, times, given.linear), -limit), limit);
    store_bf16(a + t * units + p / 16 * 8 + p % 8, __fdividef(g, 1 + __expf(-alpha * g)) * (l + 1));
  }
  __device__ void operator()(int p, int t, float gate, float linear) const {
    (*this)(p, t, gate, linear, read(p, t));
  }
};

// The second layer of expert e, times the weight that the token gives it: y(slot, p).
struct StoreWeighted {
  float* y;  // [slots, hidden]
  int64_t hidden;
  const float* bias;  // of expert e
  float times;

  struct Given {
    float low, high;  // bias
  };
  __device__ Given read(int p) const {
    return {p < hidden ? bias[p] : 0.0f, p + 8 < hidden ? bias[p + 8] : 0.0f};
  }

  __device__ void operator()(int p, int slot, float low, float high, float weight, const Given& given) const {
    if (p < hidden) y[slot * hidden + p] = weight * __fmaf_rn(low, times, given.low);
    if (p + 8 < hidden) y[slot * hidden + p + 8] = weight * __fmaf_rn(high, times, given.high);
  }
  __device__ void operator()(int p, int slot, float low, float high, float weight) const {
    (*this)(p, slot, low, high, weight, read(p));
  }
};

}  // namespace fathom::kernels
