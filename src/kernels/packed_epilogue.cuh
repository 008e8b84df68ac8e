// What becomes of a product W x, in the threads that have it: packed rows p and p + 8 (p % 16 < 8) for one
// row t of x. Products with few rows and with many end in these alike.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "core/dtype.h"
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

  __device__ void operator()(int p, int t, float low, float high) const {
    store(p, t, low);
    store(p + 8, t, high);
  }

 private:
  __device__ void store(int p, int t, float value) const {
    if (p >= rows) return;
    if (bias) value += bias[p];
    float& to = y[t * stride + p];
    to        = kAdd ? to + value : value;
  }
};

// Queries, keys and values of RowOrder::rotary_pairs, turned by their positions (kernels/rope.h) and put
// where attention reads them: queries at q [T, query heads, 64], keys and values in the cache. Heads of
// queries come first, then those of keys, then those of values.
struct StoreHeads {
  const float* bias;     // [rows]
  const float* turns;    // [T, 64]: 32 cosines, 32 sines
  const int32_t* slots;  // [T]: page * 64 + place in the page; -1: the row is padding
  bf16* q;
  KvTiles kv;
  int query_heads;

  __device__ void operator()(int p, int t, float first, float second) const {
    const int head = p / 64, i = p % 64 / 16 * 8 + p % 8;
    first += bias[p];
    second += bias[p + 8];
    const int kv_heads = static_cast<int>(kv.heads);
    if (head < query_heads + kv_heads) {
      const float cosine = turns[t * 64 + i], sine = turns[t * 64 + 32 + i];
      const float turned = first * cosine - second * sine;
      second             = second * cosine + first * sine;
      first              = turned;
    }
    if (head < query_heads) {
      bf16* to = q + (int64_t{t} * query_heads + head) * 64;
      store_bf16(to + i, first);
      store_bf16(to + 32 + i, second);
      return;
    }
    const int slot = slots[t];
    if (slot < 0) return;
    const bool keys = head < query_heads + kv_heads;
    bf16* tile =
        keys ? kv.keys(slot / 64, head - query_heads) : kv.values(slot / 64, head - query_heads - kv_heads);
    store_bf16(tile + KvTiles::at(slot % 64, i), first);
    store_bf16(tile + KvTiles::at(slot % 64, 32 + i), second);
  }
};

// The first layer of expert e: a(t, u) = g sigmoid(alpha g) (l + 1), with the gate g and the linear part l of
// unit u clamped (kernels/experts.h). `t` is a row of the expert layer's rows, one for each token and expert.
struct StoreGated {
  bf16* a;  // [rows, units], units the padded number
  int64_t units;
  const float* bias;  // of expert e
  float times;        // PackedExperts::times
  float limit, alpha;

  __device__ void operator()(int p, int t, float gate, float linear) const {
    const float g = fminf(gate * times + bias[p], limit);
    const float l = fminf(fmaxf(linear * times + bias[p + 8], -limit), limit);
    store_bf16(a + t * units + p / 16 * 8 + p % 8, g / (1 + __expf(-alpha * g)) * (l + 1));
  }
};

// The second layer of expert e, times the weight that the token gives it: y(slot, p).
struct StoreWeighted {
  float* y;  // [slots, hidden]
  int64_t hidden;
  const float* bias;  // of expert e
  float times;

  __device__ void operator()(int p, int slot, float low, float high, float weight) const {
    if (p < hidden) y[slot * hidden + p] = weight * (low * times + bias[p]);
    if (p + 8 < hidden) y[slot * hidden + p + 8] = weight * (high * times + bias[p + 8]);
  }
};

}  // namespace fathom::kernels
