// The problem: causal attention of one head over a sequence that is spread over two ranks, fp32. Each rank
// has the queries, keys and values of its half, and needs the outputs of its half.
//   out(i, d) = sum_j p(i, j) v(j, d),   p(i, .) = softmax over j <= i of q(i, .) . k(j, .) / sqrt(64)
// Ranks are processes connected by TCP (src/comm), as ranks of different hosts would be.
#pragma once

#include <cmath>
#include <functional>
#include <memory>
#include <vector>

#include "comm/group.h"
#include "lab/metric.h"
#include "lab/problem.h"
#include "lab/rank.h"

namespace fathom::lab::ring_attention_cpu {

inline constexpr int kRanks       = 2;
inline constexpr int64_t kHeadDim = 64;
inline constexpr float kScale     = 0.125f;  // 1 / sqrt(kHeadDim)

// The sequence in twice as many chunks as ranks; a rank's half is two of them.
inline constexpr int kChunks = 2 * kRanks;
struct Chunk {
  int64_t first, rows;  // positions
};
inline Chunk chunk(int64_t tokens, int c) {
  const int64_t first = tokens * c / kChunks;
  return {first, tokens * (c + 1) / kChunks - first};
}

// A message: a nonce, then rows of keys, values and whatever else. Room for the largest.
inline constexpr int64_t kHeader = 16;  // floats before the rows
inline int64_t most_rows(int64_t tokens) { return 2 * ((tokens + kChunks - 1) / kChunks); }  // of a rank
inline int64_t message_floats(int64_t tokens) { return 2 * kHeader + 3 * most_rows(tokens) * kHeadDim; }

struct RingAttention {
  int64_t tokens;
  int rank;
  View<const float, 2> q, k, v;  // rows of this rank's half, kHeadDim
  View<float, 2> out;
  // Workspace: messages of all ranks; rows of outputs and the state of their softmax; keys of a tile.
  View<float, 2> messages, rows;
  View<float, 1> max, sum, panels;
  View<int64_t, 1> sent_bytes, scores;  // of this rank in the step
  View<uint64_t, 1> nonces;

  RingAttention(const Point& at, Arena& arena, const Rank& me);

  Chunk half() const {
    const Chunk a = chunk(tokens, 2 * rank), b = chunk(tokens, 2 * rank + 1);
    return {a.first, a.rows + b.rows};
  }
  // An even share: two products of 64 for each pair of a query and a key that it sees.
  double pairs() const { return static_cast<double>(tokens) * static_cast<double>(tokens + 1) / 2; }
  Cost cost() const {
    return {.read = 3 * q.bytes(), .written = out.bytes(), .flops = 4 * kHeadDim * pairs() / kRanks};
  }
  uint64_t nonce_sum(Context&) const { return nonces(0); }
  void check(Checker& checker, const AllRanks<RingAttention>& ranks) const;
  void metrics(CallMetrics& metrics) const;
};

// Queries at consecutive positions, and how far their attention has come.
struct Queries {
  Chunk at;
  const float* q;    // rows x kHeadDim
  float* out;        // the same; sums of values, until finish()
  float *max, *sum;  // of each row
};
void begin(const Queries& queries);
// Adds the keys at those positions that the queries see: an online softmax (Milakov and Gimelshein, 2018).
// Returns the number of pairs of a query and a key. panels: as in RingAttention.
int64_t attend(const Queries& queries, Chunk keys, const float* k, const float* v, float* panels);
void finish(const Queries& queries);

// The same for the rows of this rank's half, with its state in the workspace.
Queries own_queries(const RingAttention& p);

// A group of the ranks, joined in prepare(). Every variant of a rank has its own.
std::shared_ptr<comm::Group> join(const Rank& me);

using Step = std::function<void(const RingAttention&, Context&)>;
Step all_gather(const RingAttention& p, Context& context);
Step ring(const RingAttention& p, Context& context);
Step zigzag(const RingAttention& p, Context& context);

}  // namespace fathom::lab::ring_attention_cpu
