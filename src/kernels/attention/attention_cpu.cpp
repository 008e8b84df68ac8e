// out = sum_j exp(s(j)) v(j) / (exp(sink) + sum_j exp(s(j))),  s(j) = q . k(j) / sqrt(Dh)
//
// bytes   8 Dh for each position in reach and kv head, once for a tile of query rows
// flops   4 Dh for each pair of a query row and a position, and one exp
// limit   decode: memory bandwidth; prefill: the FMA units
// idea    SIMD lanes are query rows. A tile is one or two vectors of rows that share a kv head (the heads of
// a
//         group, then the next token's), transposed once. Keys and values are read in place, one broadcast
//         for each number, which serves all rows. Maxima and sums over positions are per lane, and lanes
//         never exchange data, so that a row's result depends on nothing but the row.
//
// Online softmax over blocks of positions (Milakov, Gimelshein 2018; Dao et al., FlashAttention, 2022).
// Blocks begin at multiples of kBlock, and a row always adds them in order, in prefill and in decode. Masked
// positions have weight exactly 0, and a block that is masked as a whole leaves a row's bits as they were.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "core/expect.h"
#include "core/thread_pool.h"
#include "kernels/attention/attention.h"

#define HWY_DISABLE_PCLMUL_AES  // not part of x86-64-v3; else Highway adds code for SSSE3 and SSE4
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/attention_cpu.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h, because it is compiled for each instruction set.
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

#ifndef FATHOM_KERNELS_ATTENTION_CPU
#define FATHOM_KERNELS_ATTENTION_CPU
namespace fathom::kernels {
namespace {

constexpr int64_t kBlock    = 64;  // positions
constexpr int64_t kTileWide = 32;  // lanes of a tile, at most: two AVX-512 vectors
constexpr int64_t kStateWide =
    128;  // lanes times kv heads of a tile, at most: 64 KB of queries and sums at Dh = 64

struct AttentionTask {
  View<const float, 3> q;
  KvPages kv;
  View<const bf16, 1> sinks;
  int64_t window;
  SequenceRows rows;
  View<float, 3> out;
  int64_t tile_heads;  // kv heads of a tile, where one tile has all rows of a sequence
};

// Rows first .. first + count of a sequence, counted as tokens x heads of a group, for each of kv_heads kv
// heads. The kv heads go through the positions together, because a position's kv heads are adjacent in
// memory.
struct AttentionTile {
  int64_t sequence, kv_head, kv_heads, first, count;
};

struct AttentionScratch {
  float* queries;        // [kv heads, Dh, rows], scaled
  float* sums;           // [kv heads, Dh, rows], of weighted values
  float* largest;        // [kv heads, rows], the largest score so far
  float* total;          // [kv heads, rows], sum of weights so far
  float* weights;        // [kBlock, rows]; scores, then weights
  float* rescale;        // [rows], factor of earlier blocks
  int32_t* first;        // [rows], first position in reach
  int32_t* last;         // [rows], last position in reach
  const float** keys;    // [2, kBlock], of this block and of the next one
  const float** values;  // [2, kBlock]

  static int64_t bytes(int64_t head_dim) {
    return (2 * head_dim + 2) * kStateWide * 4 + (kBlock + 3) * kTileWide * 4 +
           4 * kBlock * static_cast<int64_t>(sizeof(float*));
  }

  AttentionScratch(std::byte* from, int64_t head_dim) {
    const auto take = [&](auto*& array, int64_t count) {
      array = reinterpret_cast<std::remove_reference_t<decltype(array)>>(from);
      from += count * static_cast<int64_t>(sizeof *array);
    };
    for (float** array : {&queries, &sums}) take(*array, head_dim * kStateWide);
    for (float** array : {&largest, &total}) take(*array, kStateWide);
    take(weights, kBlock * kTileWide);
    take(rescale, kTileWide);
    for (int32_t** array : {&first, &last}) take(*array, kTileWide);
    for (const float*** array : {&keys, &values}) take(*array, 2 * kBlock);
  }
};

}  // namespace
}  // namespace fathom::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace fathom::kernels::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using F      = hn::CappedTag<float, 16>;
using V      = hn::Vec<F>;

constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(F()));

// Lanes of a row, at most. A row has two lanes, one for even and one for odd dimensions, where a vector would
// otherwise be half empty; scores and weights are the same in both. A score always sums even and odd
// dimensions separately, so that the order of summation is the same either way.
constexpr int64_t kMaxSpread = kLanes > 1 ? 2 : 1;

// Accumulators of a register tile: 16 of 32 registers, or 8 of 16. Eight independent FMAs cover their
// latency.
constexpr int64_t kSums = kLanes == 16 ? 16 : 8;

constexpr int64_t kLine = 16;  // numbers in a cache line

// To L2, because rows a power of two apart share few sets of L1.
HWY_INLINE void prefetch(const float* from) { __builtin_prefetch(from, 0, 2); }

// Broadcasts one number, or a pair of numbers, to all lanes.
template <int64_t kSpread>
HWY_INLINE V broadcast(const float* from) {
  const F f;
  if constexpr (kSpread == 1) return hn::Set(f, *from);
  int64_t pair;
  std::memcpy(&pair, from, sizeof pair);
  return hn::BitCast(f, hn::Set(hn::Repartition<int64_t, F>(), pair));
}

// weights(j, row) = sum_d queries(d, row) keys[j][at + d], j < kKeys. Prefetches as many bytes of `next` as
// it reads, because rows are too far apart for the hardware prefetcher.
template <int64_t kVectors, int64_t kSpread, int64_t kKeys>
HWY_NOINLINE void score(const float* HWY_RESTRICT queries, const float* const* keys, int64_t at,
                        const float* const* next, int64_t next_at, int64_t head_dim,
                        float* HWY_RESTRICT weights) {
  constexpr int64_t kWide = kVectors * kLanes, kSets = 2 / kSpread;
  const F f;
  V sum[kKeys][kSets][kVectors];
  const float* key[kKeys];
#pragma GCC unroll 8
  for (int64_t j = 0; j < kKeys; ++j) {
    key[j] = keys[j] + at;
#pragma GCC unroll 2
    for (int64_t set = 0; set < kSets; ++set)
#pragma GCC unroll 2
      for (int64_t r = 0; r < kVectors; ++r) sum[j][set][r] = hn::Zero(f);
  }
  for (int64_t line = 0; line < head_dim; line += kLine) {
    for (int64_t j = 0; j < kKeys; ++j) prefetch(next[j] + next_at + line);
    for (int64_t d = line; d < std::min(line + kLine, head_dim); d += 2, queries += kSets * kWide)
#pragma GCC unroll 2
      for (int64_t set = 0; set < kSets; ++set) {
        V query[kVectors];
#pragma GCC unroll 2
        for (int64_t r = 0; r < kVectors; ++r) query[r] = hn::Load(f, queries + set * kWide + r * kLanes);
#pragma GCC unroll 8
        for (int64_t j = 0; j < kKeys; ++j) {
          const V number = broadcast<kSpread>(key[j] + d + set);
#pragma GCC unroll 2
          for (int64_t r = 0; r < kVectors; ++r)
            sum[j][set][r] = hn::MulAdd(query[r], number, sum[j][set][r]);
        }
      }
  }
#pragma GCC unroll 8
  for (int64_t j = 0; j < kKeys; ++j)
#pragma GCC unroll 2
    for (int64_t r = 0; r < kVectors; ++r) {
      V other;
      if constexpr (kSpread == 1)
        other = sum[j][1][r];
      else
        other = hn::Reverse2(f, sum[j][0][r]);
      hn::Store(hn::Add(sum[j][0][r], other), f, weights + j * kWide + r * kLanes);
    }
}

// sums(d, row) = rescale(row) sums(d, row) + sum_j weights(j, row) values[j][at + d], d < kSpread kUnits.
// Prefetches `next`.
template <int64_t kVectors, int64_t kSpread, int64_t kUnits>
HWY_NOINLINE void accumulate_values(const float* HWY_RESTRICT weights, const float* const* values,
                                    int64_t count, int64_t at, const float* const* next, int64_t next_at,
                                    const float* HWY_RESTRICT rescale, float* HWY_RESTRICT sums) {
  constexpr int64_t kWide = kVectors * kLanes;
  const F f;
  V sum[kUnits][kVectors];
#pragma GCC unroll 8
  for (int64_t i = 0; i < kUnits; ++i)
#pragma GCC unroll 2
    for (int64_t r = 0; r < kVectors; ++r)
      sum[i][r] = hn::Mul(hn::Load(f, rescale + r * kLanes), hn::Load(f, sums + i * kWide + r * kLanes));
  for (int64_t j = 0; j < count; ++j) {
    const float* value = values[j] + at;
    prefetch(next[j] + next_at);
    V weight[kVectors];
#pragma GCC unroll 2
    for (int64_t r = 0; r < kVectors; ++r) weight[r] = hn::Load(f, weights + j * kWide + r * kLanes);
#pragma GCC unroll 8
    for (int64_t i = 0; i < kUnits; ++i) {
      const V number = broadcast<kSpread>(value + i * kSpread);
#pragma GCC unroll 2
      for (int64_t r = 0; r < kVectors; ++r) sum[i][r] = hn::MulAdd(weight[r], number, sum[i][r]);
    }
  }
#pragma GCC unroll 8
  for (int64_t i = 0; i < kUnits; ++i)
#pragma GCC unroll 2
    for (int64_t r = 0; r < kVectors; ++r) hn::Store(sum[i][r], f, sums + i * kWide + r * kLanes);
}

// Online softmax: turns the scores of positions from .. from + count into weights, and updates on.rescale,
// the maxima and the sums of weights.
template <int64_t kVectors>
HWY_NOINLINE void online_softmax(const AttentionScratch& on, int64_t from, int64_t count, bool unmasked,
                                 float* HWY_RESTRICT largest_of, float* HWY_RESTRICT total_of) {
  constexpr int64_t kWide = kVectors * kLanes;
  const F f;
  const hn::RebindToSigned<F> i;
  for (int64_t r = 0; r < kWide; r += kLanes) {
    float* weights = on.weights + r;
    if (!unmasked) {
      const auto first = hn::Load(i, on.first + r), last = hn::Load(i, on.last + r);
      for (int64_t j = 0; j < count; ++j) {
        const auto position = hn::Set(i, static_cast<int32_t>(from + j));
        const auto masked   = hn::RebindMask(f, hn::Or(hn::Gt(first, position), hn::Gt(position, last)));
        hn::Store(hn::IfThenElse(masked, hn::Set(f, -INFINITY), hn::Load(f, weights + j * kWide)), f,
                  weights + j * kWide);
      }
    }
    const V before = hn::Load(f, largest_of + r);
    V largest      = before;
    for (int64_t j = 0; j < count; ++j) largest = hn::Max(largest, hn::Load(f, weights + j * kWide));
    V total = hn::Zero(f);
    for (int64_t j = 0; j < count; ++j) {
      const V weight = hn::Exp(f, hn::Sub(hn::Load(f, weights + j * kWide), largest));
      total          = hn::Add(total, weight);
      hn::Store(weight, f, weights + j * kWide);
    }
    const V rescale = hn::Exp(f, hn::Sub(before, largest));
    hn::Store(largest, f, largest_of + r);
    hn::Store(rescale, f, on.rescale + r);
    hn::Store(hn::MulAdd(hn::Load(f, total_of + r), rescale, total), f, total_of + r);
  }
}

// Addresses of the tile's keys and values of positions from .. to; up to kBlock the last one is repeated.
void find_pages(const AttentionTask& task, const AttentionTile& tile, int64_t from, int64_t to,
                const float** keys, const float** values) {
  const KvPages& kv       = task.kv;
  const int64_t page_size = kv.page_size();
  int64_t index = from / page_size, slot = from % page_size;
  for (int64_t position = from; position < to; ++index, slot = 0) {
    const int64_t page = index < task.rows.pages.extent(1) ? task.rows.pages(tile.sequence, index) : -1;
    FATHOM_EXPECT(page >= 0 && page < kv.keys.extent(0), "attention: a position in reach has no page");
    const float* key   = &kv.keys(page, slot, tile.kv_head, 0);
    const float* value = &kv.values(page, slot, tile.kv_head, 0);
    for (; slot < page_size && position < to; ++slot, ++position) {
      keys[position - from]   = key;
      values[position - from] = value;
      key += kv.keys.stride(1);
      value += kv.values.stride(1);
    }
  }
  std::fill(keys + (to - from), keys + kBlock, keys[to - from - 1]);
  std::fill(values + (to - from), values + kBlock, values[to - from - 1]);
}

template <int64_t kVectors, int64_t kSpread>
void attend_tile(const AttentionTask& task, const AttentionTile& tile, const AttentionScratch& on) {
  constexpr int64_t kWide  = kVectors * kLanes;
  constexpr int64_t kKeys  = std::min<int64_t>(8, kSums * kSpread / (2 * kVectors));
  constexpr int64_t kUnits = std::min<int64_t>(8, kSums / kVectors);
  const F f;
  const int64_t head_dim = task.q.extent(2), group = task.q.extent(1) / task.kv.keys.extent(2);
  const int64_t units = head_dim / kSpread;
  const float scale   = static_cast<float>(1 / std::sqrt(static_cast<double>(head_dim)));
  const auto token_of = [&](int64_t row) {
    return task.rows.first_row(tile.sequence) + (tile.first + row) / group;
  };
  const auto head_of = [&](int64_t row, int64_t h) {
    return (tile.kv_head + h) * group + (tile.first + row) % group;
  };
  const auto index_of = [&](int64_t h, int64_t d, int64_t row) {  // index in `queries` and `sums`
    return (h * units + d / kSpread) * kWide + row * kSpread + d % kSpread;
  };

  for (int64_t lane = 0; lane < kWide; ++lane) {
    const int64_t row     = std::min(lane / kSpread, tile.count - 1);  // lanes without a row repeat the last
    const int32_t at      = task.rows.positions(token_of(row));
    const int64_t reaches = task.window == 0 ? at : task.window - 1;
    on.last[lane]         = at;
    on.first[lane]        = static_cast<int32_t>(std::max<int64_t>(0, at - reaches));
    for (int64_t h = 0; h < tile.kv_heads; ++h) {
      // The sum over positions starts from the sink, with weight exp(0) = 1. The maximum must be finite, so
      // that a row of which nothing is in reach yet subtracts no infinity.
      on.largest[h * kWide + lane] = std::max(static_cast<float>(task.sinks(head_of(row, h))), -1e30f);
      on.total[h * kWide + lane]   = 1;
      const float* query           = &task.q(token_of(row), head_of(row, h), 0);
      for (int64_t d = lane % kSpread; d < head_dim; d += kSpread)
        on.queries[index_of(h, d, 0) + lane - lane % kSpread] = query[d] * scale;
    }
  }
  std::fill_n(on.sums, tile.kv_heads * units * kWide, 0.0f);

  // Rows are in the order of their positions.
  const int64_t end      = on.last[kWide - 1] + 1;
  const auto end_of      = [&](int64_t from) { return std::min((from / kBlock + 1) * kBlock, end); };
  int64_t from           = on.first[0];
  const float** keys     = on.keys;
  const float** values   = on.values;
  const float** keys_2   = on.keys + kBlock;
  const float** values_2 = on.values + kBlock;
  if (from < end) find_pages(task, tile, from, end_of(from), keys, values);
  while (from < end) {
    const int64_t to = end_of(from), size = to - from, size_2 = end_of(to) - to;
    const bool unmasked = on.first[kWide - 1] <= from && to - 1 <= on.last[0];
    if (size_2 > 0) find_pages(task, tile, to, to + size_2, keys_2, values_2);
    const float** next = size_2 > 0 ? keys_2 : keys;
    for (int64_t h = 0; h < tile.kv_heads; ++h) {
      const int64_t key_at = h * task.kv.keys.stride(2), value_at = h * task.kv.values.stride(2);
      for (int64_t j = 0; j < size; j += kKeys) {
        score<kVectors, kSpread, kKeys>(on.queries + index_of(h, 0, 0), keys + j, key_at, values + j,
                                        value_at, head_dim, on.weights + j * kWide);
      }
      online_softmax<kVectors>(on, from, size, unmasked, on.largest + h * kWide, on.total + h * kWide);
      int64_t unit = 0;
      for (; unit + kUnits <= units; unit += kUnits)
        accumulate_values<kVectors, kSpread, kUnits>(on.weights, values, size, value_at + unit * kSpread,
                                                     next, key_at + unit * kSpread, on.rescale,
                                                     on.sums + index_of(h, unit * kSpread, 0));
      for (; unit < units; ++unit)
        accumulate_values<kVectors, kSpread, 1>(on.weights, values, size, value_at + unit * kSpread, next,
                                                key_at + unit * kSpread, on.rescale,
                                                on.sums + index_of(h, unit * kSpread, 0));
    }
    std::swap(keys, keys_2);
    std::swap(values, values_2);
    from = to;
  }

  for (int64_t h = 0; h < tile.kv_heads; ++h) {
    for (int64_t r = 0; r < kWide; r += kLanes) {
      const V total = hn::Load(f, on.total + h * kWide + r);
      float* sums   = on.sums + index_of(h, 0, 0) + r;
      for (int64_t unit = 0; unit < units; ++unit, sums += kWide)
        hn::Store(hn::Div(hn::Load(f, sums), total), f, sums);
    }
    for (int64_t row = 0; row < tile.count; ++row) {
      float* out = &task.out(token_of(row), head_of(row, h), 0);
      for (int64_t d = 0; d < head_dim; ++d) out[d] = on.sums[index_of(h, d, row)];
    }
  }
}

// Computes tiles, by number, until none are left. The tiles of a kv head come one after another, the longest
// first, because they share keys and values in the cache.
void attend(const AttentionTask& task, std::atomic<int64_t>& next, std::byte* scratch) {
  constexpr int64_t kRows = 2 * kLanes;  // of a tile
  static_assert(kRows <= kTileWide);
  const int64_t kv_heads = task.kv.keys.extent(2), group = task.q.extent(1) / kv_heads;
  const AttentionScratch on(scratch, task.q.extent(2));
  int64_t number = next.fetch_add(1, std::memory_order_relaxed);
  for (int64_t sequence = 0, before = 0; sequence < task.rows.pages.extent(0); ++sequence) {
    const int64_t rows  = (task.rows.first_row(sequence + 1) - task.rows.first_row(sequence)) * group;
    const int64_t tiles = (rows + kRows - 1) / kRows;
    const int64_t wide  = rows <= kLanes ? kLanes : kRows;
    const int64_t heads = tiles > 1 ? 1 : std::min(task.tile_heads, kStateWide / wide);
    const int64_t after = before + tiles * ((kv_heads + heads - 1) / heads);
    for (; number < after; number = next.fetch_add(1, std::memory_order_relaxed)) {
      const int64_t kv_head = (number - before) / tiles * heads;
      const int64_t first   = (tiles - 1 - (number - before) % tiles) * kRows;
      const AttentionTile tile{.sequence = sequence,
                               .kv_head  = kv_head,
                               .kv_heads = std::min(heads, kv_heads - kv_head),
                               .first    = first,
                               .count    = std::min(kRows, rows - first)};
      if (tile.count * kMaxSpread <= kLanes)
        attend_tile<1, kMaxSpread>(task, tile, on);
      else if (tile.count <= kLanes)
        attend_tile<1, 1>(task, tile, on);
      else
        attend_tile<2, 1>(task, tile, on);
    }
    before = after;
  }
}

}  // namespace
}  // namespace fathom::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fathom::kernels {

HWY_EXPORT(attend);

int64_t attention_cpu_scratch_bytes(int64_t, int64_t head_dim, int threads) {
  return (AttentionScratch::bytes(head_dim) + 63) / 64 * 64 * threads;
}

void attention_cpu(View<const float, 3> q, const KvPages& kv, View<const bf16, 1> sinks, int64_t window,
                   const SequenceRows& rows, View<float, 3> out, const Execution& on) {
  const int64_t count = q.extent(0), heads = q.extent(1), head_dim = q.extent(2),
                kv_heads = kv.keys.extent(2);
  FATHOM_EXPECT(kv_heads > 0 && heads % kv_heads == 0 && sinks.extent(0) == heads,
                "attention: query heads must be a multiple of key-value heads, and each has a sink");
  FATHOM_EXPECT(out.extent(0) == count && out.extent(1) == heads && out.extent(2) == head_dim,
                "attention: out must be [T, Hq, Dh] as q is");
  FATHOM_EXPECT(kv.keys.extent(3) == head_dim && kv.values.extent(3) == head_dim,
                "attention: keys and values must be as wide as queries");
  FATHOM_EXPECT(q.stride(2) == 1 && out.stride(2) == 1 && kv.keys.stride(3) == 1 && kv.values.stride(3) == 1,
                "attention: heads must be contiguous");
  const int64_t sequences = rows.pages.extent(0);
  FATHOM_EXPECT(rows.positions.extent(0) == count, "attention: positions must be [T]");
  FATHOM_EXPECT(rows.first_row.extent(0) == sequences + 1, "attention: first_row must be [S + 1]");
  FATHOM_EXPECT(count == 0 || rows.first_row(sequences) == count, "attention: first_row must end at T");
  FATHOM_EXPECT(on.threads != nullptr, "attention: Execution needs threads");
  FATHOM_EXPECT(on.scratch.bytes() >= attention_cpu_scratch_bytes(heads, head_dim, on.threads->threads()),
                "attention: scratch is smaller than attention_cpu_scratch_bytes()");
  if (count == 0) return;

  // As many kv heads in a tile as still give every thread a tile.
  const int64_t tile_heads = std::max<int64_t>(1, sequences * kv_heads / on.threads->threads());
  const AttentionTask task{q, kv, sinks, window, rows, out, tile_heads};
  const int64_t share = attention_cpu_scratch_bytes(heads, head_dim, 1);
  std::atomic<int64_t> next{0};
  on.threads->run_shares([&](int worker) {
    HWY_DYNAMIC_DISPATCH(attend)(task, next, on.scratch.data() + worker * share);
  });
}

}  // namespace fathom::kernels
#endif
