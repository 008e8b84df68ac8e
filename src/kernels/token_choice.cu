// id = argmax(logits), or an id drawn from softmax(logits / temperature) cut to its top-k, top-p and min-p
//
// bytes   4 V a row; a row that is drawn from is read twice, one that is cut three times or four
// flops   some 40 V a row that is cut
// limit   one row: latency, and the 64 bytes a clock that each of 8 multiprocessors gets from L2; many rows:
//         memory bandwidth, 51 MB for 64 rows of V = 201088
// idea    a cluster of 8 blocks has a row, each warp a run of neighbours. Top-k and top-p are found alike:
// the
//         logit is sought from which on there are k tokens, or tokens of so much weight, by cutting the
//         interval that holds it in 8 parts. What a warp has in the interval is all that stays in its shared
//         memory, so that only the first looks go through the row. Of equal logits at the border the lower
//         ids are in. Sums are taken in an order that is always the same.
//         Draw: the id at which the running sum passes u times the whole: by the sums of blocks, of warps, of
//         lanes, and then by tokens.
// paper   flashinfer.ai, "Sorting-Free GPU Kernels for LLM Sampling", 2025, finds thresholds by pivots too,
// but
//         draws before it knows them
#include <cfloat>
#include <climits>

#include "core/cuda.h"
#include "core/launch.cuh"
#include "core/philox.cuh"
#include "core/ptx.cuh"
#include "kernels/token_choice.h"

namespace fathom::kernels {
namespace {

constexpr int kBlocks  = 8;  // of a cluster
constexpr int kWarps   = 16;
constexpr int kThreads = 32 * kWarps;
constexpr int kLoads   = 7;  // vectors that a lane has on their way
constexpr int kParts   = 8;  // of an interval

// Tokens with a logit from some value on: how many, and their weights, of which the likeliest token's is 1.
struct alignas(16) Total {
  double weight = 0;
  int count     = 0;
};
struct alignas(8) TotalOfWarp {
  float weight = 0;
  int count    = 0;
};

// Totals of parts: lane j those of part j, of logits from `first` on.
struct Parts {
  float first;
  Total of_row;
  TotalOfWarp of_warp;
};

// Where the logit is sought from which on tokens may come: [floor, end), and what there is from either on. In
// shared memory, for want of registers: all lanes of a warp write the same.
struct Interval {
  float floor = 0, end = 0;
  Total from_floor = {}, from_end = {};
  TotalOfWarp warp_from_end = {};

  // To the last of its parts from which on there is at least that, or else the first.
  __device__ void narrow(const Parts& parts, const Total& least) {
    const bool enough = parts.of_row.count >= least.count && parts.of_row.weight >= least.weight;
    const int part    = 31 - __clz(static_cast<int>(__ballot_sync(~0u, enough) % (1 << kParts) | 1));
    const auto of     = [](auto value, int lane) { return __shfl_sync(~0u, value, lane); };
    floor             = of(parts.first, part);
    from_floor        = {of(parts.of_row.weight, part), of(parts.of_row.count, part)};
    if (part + 1 == kParts) return;
    end           = of(parts.first, part + 1);
    from_end      = {of(parts.of_row.weight, part + 1), of(parts.of_row.count, part + 1)};
    warp_from_end = {of(parts.of_warp.weight, part + 1), of(parts.of_warp.count, part + 1)};
  }
};

struct Shared {
  Total of_blocks[2][kBlocks][kParts];  // of two exchanges, by turns
  TotalOfWarp of_warps[2][kWarps][kParts];
  uint64_t here[2];  // completed by the exchange's stores
  uint64_t bests[kWarps];
  Interval sought[kWarps];
  TokenRule rule;
};

__device__ int lane() { return threadIdx.x % 32; }
__device__ int warp() { return threadIdx.x / 32; }
__device__ int block() { return blockIdx.x % kBlocks; }  // in its cluster

// Numbers in the order of the logits.
__device__ uint32_t key_of(float v) {
  const uint32_t bits = __float_as_uint(v + 0.0f);  // -0 as 0
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}
__device__ float value_of(uint32_t key) { return __uint_as_float(key >> 31 ? key & 0x7fffffffu : ~key); }

__device__ float larger(float a, float b) {  // NaN if one is
  float c;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
  return c;
}

constexpr float4 kNothing{-INFINITY, -INFINITY, -INFINITY, -INFINITY};
__device__ float at(float4 v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }

// In (0, 1): engine/sampler.cpp, of Philox's first two words (core/rng.h).
__device__ double uniform(uint64_t seed, int64_t position) {
  const uint4 words = philox(static_cast<uint64_t>(position), 0, seed);
  return (static_cast<double>((uint64_t{words.y} << 32 | words.x) >> 11) + 0.5) * 0x1p-53;
}

template <class T>
__device__ T over_warp(T sum) {
#pragma unroll
  for (int other = 16; other > 0; other /= 2) sum += __shfl_xor_sync(~0u, sum, other);
  return sum;
}

// What a warp knows of its row.
struct Row {
  Shared& shared;
  const float4* logits;  // this warp's
  float* slice;          // as many in shared memory, of this warp alone
  int begin, vectors;    // this warp's first id, and how many times 4 logits it has
  int turn    = 0;       // exchanges so far
  float most  = 0;       // the largest logit of the row
  float scale = 0;       // log2(e) / temperature

  __device__ float weight(float logit) const { return ptx::exp2_approximate((logit - most) * scale); }

  // 16 bytes for each of n parts to every block, those of part w by warp w: `mine` is the same in its first
  // kBlocks lanes. Returns where those of block b lie: [b * kParts + part].
  __device__ const Total* exchange(int n, Total mine) {
    const int now = turn & 1;
    if (warp() < n && lane() < kBlocks) {
      const uint32_t address = ptx::shared_address(&shared.of_blocks[now][block()][warp()]);
      ptx::store_to_block(ptx::address_in_block(address, lane()), *reinterpret_cast<const float4*>(&mine),
                          ptx::address_in_block(ptx::shared_address(&shared.here[now]), lane()));
    }
    // Others' stores may have come before: the phase does not end before this arrival. Those of the next
    // exchange, by blocks that have all of this one, go to the other barrier.
    if (threadIdx.x == 0)
      ptx::mbarrier_arrive_expect_tx(&shared.here[now], n * kBlocks * static_cast<int>(sizeof(Total)));
    ptx::mbarrier_wait(&shared.here[now], turn >> 1 & 1);
    ++turn;
    return shared.of_blocks[now][0];
  }

  // The warps' totals of n parts, lane j those of part j, added up and exchanged. The warps' own are in
  // of_warp() until the next but one.
  __device__ const Total* meet(int n, TotalOfWarp mine) {
    TotalOfWarp(&of_warps)[kWarps][kParts] = shared.of_warps[turn & 1];
    if (lane() < n) of_warps[warp()][lane()] = mine;
    __syncthreads();  // of_warps is complete
    Total sum;
    if (warp() < n) {
      const TotalOfWarp of_warp = of_warps[lane() % kWarps][warp()];
      sum                       = {static_cast<double>(of_warp.weight), of_warp.count};
#pragma unroll
      for (int other = kWarps / 2; other > 0; other /= 2) {
        sum.weight += __shfl_xor_sync(~0u, sum.weight, other);
        sum.count += __shfl_xor_sync(~0u, sum.count, other);
      }
    }
    return exchange(n, sum);
  }
  __device__ TotalOfWarp of_warp(int w) const { return shared.of_warps[(turn - 1) & 1][w][0]; }
};

// Counts a logit, and its weight, where it is not below `from`.
__device__ void add(TotalOfWarp& total, float logit, float weight, float from) {
  asm("{\n"
      ".reg .pred in;\n"
      "setp.ge.f32 in, %2, %3;\n"
      "@in add.f32 %0, %0, %4;\n"
      "@in add.s32 %1, %1, 1;\n"
      "}"
      : "+f"(total.weight), "+r"(total.count)
      : "f"(logit), "f"(from), "f"(weight));
}

__device__ TotalOfWarp from_lane(TotalOfWarp total, int source) {
  return {__shfl_sync(~0u, total.weight, source), __shfl_sync(~0u, total.count, source)};
}
__device__ TotalOfWarp with_lane(TotalOfWarp mine, TotalOfWarp theirs, int other) {
  return {mine.weight + __shfl_xor_sync(~0u, theirs.weight, other),
          mine.count + __shfl_xor_sync(~0u, theirs.count, other)};
}

// Of the logits in shared memory, the first `logits` of each lane's (every 32nd), and of `more` of the
// warp's; lane j asks for those from its `first` on, lanes are alike by 8. Halves of the warp add up half of
// the parts each: there are registers for no more.
__device__ Parts totals(Row& row, int logits, float first, TotalOfWarp more) {
  constexpr int kHalf = 16, kOwn = kParts / 2;
  static_assert(kOwn == 4);
  float from[kOwn];
  TotalOfWarp own[kOwn];
#pragma unroll
  for (int j = 0; j < kOwn; ++j) from[j] = __shfl_sync(~0u, first, lane() / kHalf * kOwn + j);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int column = lane() % kHalf + half * kHalf;
    const int last   = __shfl_sync(~0u, logits, column) * 32;
#pragma unroll 4
    for (int i = 0; i < last; i += 32) {
      const float logit = row.slice[i + column], w = row.weight(logit);
#pragma unroll
      for (int j = 0; j < kOwn; ++j) add(own[j], logit, w, from[j]);
    }
  }
  // Over the half, each of its lanes with fewer parts: in the end lane 4 j has part j.
  const bool upper = lane() & 8, later = lane() & 4;
  const TotalOfWarp a   = with_lane(upper ? own[2] : own[0], upper ? own[0] : own[2], 8);
  const TotalOfWarp b   = with_lane(upper ? own[3] : own[1], upper ? own[1] : own[3], 8);
  const TotalOfWarp c   = with_lane(later ? b : a, later ? a : b, 4);
  const TotalOfWarp two = with_lane(c, c, 2);
  Parts parts{.first = first, .of_warp = from_lane(with_lane(two, two, 1), lane() % kParts * 4)};
  parts.of_warp.weight += more.weight;
  parts.of_warp.count += more.count;

  const Total* of_blocks = row.meet(kParts, parts.of_warp);
  constexpr int kGroups  = 32 / kParts;  // of lanes, with every kGroups-th block each
#pragma unroll
  for (int b = lane() / kParts; b < kBlocks; b += kGroups) {
    const Total of_block = of_blocks[b * kParts + lane() % kParts];
    parts.of_row.weight += of_block.weight;
    parts.of_row.count += of_block.count;
  }
#pragma unroll
  for (int other = kParts; other < 32; other *= 2) {
    parts.of_row.weight += __shfl_xor_sync(~0u, parts.of_row.weight, other);
    parts.of_row.count += __shfl_xor_sync(~0u, parts.of_row.count, other);
  }
  return parts;
}

// Which tokens may come: of logits above `least`, and the first `ties` of those that are equal to it.
struct Allowed {
  float least = -INFINITY;
  int ties    = INT_MAX;

  __device__ Allowed and_of(const Allowed& other) const {
    if (least != other.least) return least > other.least ? *this : other;
    return {least, min(ties, other.ties)};
  }
  // Of tokens in the order of their ids; `left` are the ties that are left.
  __device__ bool holds(float logit, int& left) const {
    return logit > least || (logit == least && left-- > 0);
  }
};

// Has the row brought to shared memory. It is there for the lane that waits for its copies, and after that
// and a
// __syncwarp() for the others.
__device__ void begin_bringing(const Row& row) {
  for (int i = lane(); i < row.vectors; i += 32) ptx::cp_async_16(row.slice + 4 * i, row.logits + i);
  ptx::cp_async_commit();
}
__device__ void end_bringing() {
  ptx::cp_async_wait<0>();
  __syncwarp();
}

// Where a row is cut first, in natural logarithms of weights: what lies below the first is of no weight; the
// others are where the tokens of common distributions end.
__constant__ float kFirstLogs[kParts] = {-30.5f, -17, -12, -9, -6.5f, -4.5f, -2.5f, -1};

// The fewest of the likeliest tokens that are `least_count`, and have `share` of the weight `whole` (0: of
// all); `whole` becomes their weight. The row is in shared memory; what lies outside of the interval leaves
// it.
__device__ Allowed seek(Row& row, int least_count, double share, double& whole) {
  constexpr int kAtOnce = 4;
  int logits            = (4 * row.vectors - lane() + 31) / 32;  // in shared memory, of this lane
  float cut    = fmaxf(row.most + kFirstLogs[lane() % kParts] * row.shared.rule.temperature, -FLT_MAX);
  Interval& in = row.shared.sought[warp()];
  in           = {.end = nextafterf(row.most, INFINITY)};
  while (true) {
    const Parts parts = totals(row, logits, cut, in.warp_from_end);
    if (whole == 0) whole = __shfl_sync(~0u, parts.of_row.weight, 0);
    in.narrow(parts, {share * whole, least_count});
    const float floor = in.floor, end = in.end;
    const double width = static_cast<double>(fminf(end, FLT_MAX)) - static_cast<double>(floor);
    cut                = static_cast<float>(floor + width * (lane() % kParts) / kParts);
    const bool parted =
        __any_sync(~0u, cut > floor && cut < end);  // else all that is left is equal to the floor
    if (in.from_floor.count - in.from_end.count <= 1 || !parted) break;

    int left = 0;
    for (int base = 0; base < logits; base += kAtOnce) {
      float logit[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        logit[i] = base + i < logits ? row.slice[32 * (base + i) + lane()] : -INFINITY;
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        if (logit[i] >= floor && logit[i] < end) row.slice[32 * left++ + lane()] = logit[i];
    }
    logits = left;
    __syncwarp();  // lanes read what others have written
  }
  const double wanted = whole;
  whole               = in.from_floor.weight;
  const int equals    = in.from_floor.count - in.from_end.count;
  if (equals <= 1) return {.least = in.floor};
  // All of them are equal to the floor.
  const double weight = row.weight(in.floor);
  const int by_weight =
      static_cast<int>(fmin(ceil((share * wanted - in.from_end.weight) / weight), 1.0 * equals));
  const int ties = max(1, max(by_weight, least_count - in.from_end.count));
  if (ties >= equals) return {.least = in.floor};
  whole = in.from_end.weight + ties * weight;
  return {.least = in.floor, .ties = ties};
}

// Which tokens may come. The row is in shared memory then.
__device__ Allowed allowed_by_rule(Row& row, int vocabulary) {
  const TokenRule& rule = row.shared.rule;
  Allowed allowed;
  double whole = 0;
  end_bringing();
  if (rule.top_k > 0 && rule.top_k < vocabulary) {
    allowed = seek(row, rule.top_k, 0, whole);
    begin_bringing(row);
    end_bringing();
  }
  if (rule.top_p < 1) {
    allowed = allowed.and_of(seek(row, 0, rule.top_p, whole));
    begin_bringing(row);
    end_bringing();
  }
  if (rule.min_p > 0) {
    const double least = row.most + rule.temperature * log(static_cast<double>(rule.min_p));
    allowed            = allowed.and_of({.least = __double2float_ru(least)});
  }
  return allowed;
}

// The sum over the lanes before this one.
template <class T>
__device__ T before_lane(T value) {
  T sum = value;
#pragma unroll
  for (int other = 1; other < 32; other *= 2) {
    const T before = __shfl_up_sync(~0u, sum, other);
    if (lane() >= other) sum += before;
  }
  const T before = __shfl_up_sync(~0u, sum, 1);
  return lane() == 0 ? 0 : before;
}

// The last lane that has some weight and before which there is at most `target`; subtracts that. Some lane
// has.
__device__ int locate(double weight, double& target) {
  const double before = before_lane(weight);
  const int found     = 31 - __clz(static_cast<int>(__ballot_sync(~0u, weight > 0 && before <= target)));
  target -= __shfl_sync(~0u, before, found);
  return found;
}

// An id among those allowed, by their weights: in one warp of the cluster; -1 in the others.
__device__ int draw(Row& row, const Allowed& allowed) {
  // A lane has a run of neighbours: of an odd number of vectors, so that lanes meet all banks.
  const int each  = (row.vectors + 31) / 32 | 1;
  const int first = min(each * lane(), row.vectors), last = min(first + each, row.vectors);
  const auto* vectors = reinterpret_cast<const float4*>(row.slice);

  int left = INT_MAX;  // of ties, from this lane on
  if (allowed.ties < INT_MAX) {
    int equals = 0;
    for (int i = first; i < last; ++i)
      for (int c = 0; c < 4; ++c) equals += at(vectors[i], c) == allowed.least;
    const Total* of_blocks = row.meet(1, {0, __reduce_add_sync(~0u, equals)});
    int before             = before_lane(equals);
    for (int b = 0; b < block(); ++b) before += of_blocks[b * kParts].count;
    for (int w = 0; w < warp(); ++w) before += row.of_warp(w).count;
    left = allowed.ties - before;
  }

  const int left_of_lane = left;
  float weight           = 0;
  for (int i = first; i < last; ++i) {
    const float4 v = vectors[i];
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const float logit = at(v, c);
      const bool holds  = allowed.ties == INT_MAX ? logit >= allowed.least : allowed.holds(logit, left);
      weight += holds ? row.weight(logit) : 0;
    }
  }
  const Total* of_blocks = row.meet(1, {over_warp(weight), 0});
  const double of_block  = lane() < kBlocks ? of_blocks[lane() * kParts].weight : 0;
  double target          = uniform(row.shared.rule.seed, row.shared.rule.position) * over_warp(of_block);
  if (locate(of_block, target) != block()) return -1;
  if (locate(lane() < kWarps ? row.of_warp(lane()).weight : 0, target) != warp()) return -1;

  // Of the located lane's tokens, 4 each; with 2^18 tokens in all it has 68.
  const int owner = locate(weight, target);
  const int mine  = __shfl_sync(~0u, first, owner) + lane();
  const float4 v  = mine < __shfl_sync(~0u, last, owner) ? vectors[mine] : kNothing;
  int equals      = 0;
  for (int c = 0; c < 4; ++c) equals += at(v, c) == allowed.least;
  left = __shfl_sync(~0u, left_of_lane, owner) - before_lane(equals);
  float w[4];
#pragma unroll
  for (int c = 0; c < 4; ++c) w[c] = allowed.holds(at(v, c), left) ? row.weight(at(v, c)) : 0;
  const int of_owner = locate(w[0] + w[1] + w[2] + w[3], target);
  int found          = 0;
  float before       = 0;
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    if (w[c] > 0 && before <= target) found = 4 * mine + c;
    before += w[c];
  }
  return row.begin + __shfl_sync(~0u, found, of_owner);
}

// The warp's likeliest token: its logit's key, which is 2^32 - 1 if one is NaN, and V - 1 - id below that.
__device__ uint64_t likeliest_of(const Row& row, int vocabulary) {
  float most  = -INFINITY;
  int where   = 0;
  float4 best = {};
  for (int base = lane(); base < row.vectors; base += 32 * kLoads) {
    float4 v[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i)
      v[i] = base + 32 * i < row.vectors ? row.logits[base + 32 * i] : kNothing;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const float m = larger(larger(v[i].x, v[i].y), larger(v[i].z, v[i].w));
      if (m > most) {
        where = base + 32 * i;
        best  = v[i];
      }
      most = larger(most, m);
    }
  }
  const int c          = best.x == most ? 0 : best.y == most ? 1 : best.z == most ? 2 : 3;
  const uint32_t mine  = key_of(most);
  const uint32_t key   = __reduce_max_sync(~0u, mine);
  const uint32_t after = vocabulary - 1 - (row.begin + 4 * where + c);  // tokens after it
  return uint64_t{key} << 32 | __reduce_max_sync(~0u, mine == key ? after : 0u);
}

// A row for each cluster.
__global__ void __launch_bounds__(kThreads, 2) choose_kernel(const float* logits, const TokenRule* rules,
                                                             int32_t* sampled, int vocabulary, int per_warp) {
  extern __shared__ __align__(16) char memory[];
  Shared& shared  = *reinterpret_cast<Shared*>(memory);
  const int64_t r = blockIdx.x / kBlocks;
  if (rules[r].place < 0) return ptx::wait_for_previous();

  if (threadIdx.x == 0) {
    shared.rule = rules[r];
    for (uint64_t& barrier : shared.here) ptx::mbarrier_init(&barrier, 1);
    ptx::fence_mbarrier_init();
  }
  __syncwarp();
  ptx::cluster_arrive();  // others may store here once they have waited

  const int first = min((block() * kWarps + warp()) * per_warp, vocabulary / 4);
  Row row{.shared  = shared,
          .logits  = reinterpret_cast<const float4*>(logits + r * vocabulary) + first,
          .slice   = reinterpret_cast<float*>(memory + sizeof(Shared)) + 4 * warp() * per_warp,
          .begin   = 4 * first,
          .vectors = min(per_warp, vocabulary / 4 - first)};
  const bool drawn_from = rules[r].temperature > 0;
  ptx::let_next_begin();
  ptx::wait_for_previous();

  if (drawn_from) begin_bringing(row);
  const uint64_t of_warp = likeliest_of(row, vocabulary);
  if (lane() == 0) shared.bests[warp()] = of_warp;
  __syncthreads();      // bests and rule are complete, and here is initialised
  ptx::cluster_wait();  // in the other blocks too
  uint64_t likeliest = 0;
  if (warp() == 0)
    for (const uint64_t best : shared.bests) likeliest = max(likeliest, best);
  const Total* of_blocks = row.exchange(1, {__longlong_as_double(static_cast<long long>(likeliest)), 0});
  for (int b = 0; b < kBlocks; ++b)
    likeliest = max(likeliest, static_cast<uint64_t>(__double_as_longlong(of_blocks[b * kParts].weight)));

  const TokenRule& rule = shared.rule;
  const auto key        = static_cast<uint32_t>(likeliest >> 32);
  const bool possible   = key > key_of(-INFINITY) && key < key_of(INFINITY);
  int32_t& id           = sampled[rule.place];
  if (!possible || !drawn_from) {
    if (drawn_from) end_bringing();  // nobody leaves before
    if (block() == 0 && threadIdx.x == 0)
      id = possible ? vocabulary - 1 - static_cast<int32_t>(static_cast<uint32_t>(likeliest)) : -1;
    return;
  }
  row.most              = value_of(key);
  row.scale             = fminf(1.44269504f / rule.temperature, FLT_MAX);  // times 0 it is 0
  const Allowed allowed = allowed_by_rule(row, vocabulary);
  const int drawn       = draw(row, allowed);
  if (drawn >= 0 && lane() == 0) id = drawn;
}

int shared_bytes(int64_t per_warp) { return static_cast<int>(sizeof(Shared) + kWarps * per_warp * 16); }

}  // namespace

void choose_tokens(View<const float, 2> logits, View<const TokenRule, 1> rules, View<int32_t, 1> sampled,
                   StreamRef stream) {
  const int64_t rows = logits.extent(0), vocabulary = logits.extent(1);
  FATHOM_EXPECT(rules.extent(0) == rows && logits.contiguous() && rules.contiguous() && sampled.contiguous(),
                "choose_tokens: logits are [R, V], rules [R], row after row");
  if (rows == 0) return;
  FATHOM_EXPECT(vocabulary > 0 && vocabulary % 4 == 0 && vocabulary <= kMostTokens &&
                    rows <= INT32_MAX / kBlocks && reinterpret_cast<uintptr_t>(logits.data()) % 16 == 0,
                "choose_tokens: rows of at most 2^18 logits, whole vectors of 16 bytes");
  static const bool allowed =
      (allow_shared_memory(choose_kernel, shared_bytes(kMostTokens / 4 / kBlocks / kWarps)), true);
  static_cast<void>(allowed);
  const auto per_warp = static_cast<int>(blocks_for(vocabulary / 4, kBlocks * kWarps));
  launch_chained(choose_kernel, dim3(static_cast<unsigned>(rows * kBlocks)), dim3(kThreads),
                 static_cast<size_t>(shared_bytes(per_warp)), kBlocks, stream, logits.data(), rules.data(),
                 sampled.data(), static_cast<int>(vocabulary), per_warp);
}

}  // namespace fathom::kernels
