// The problem: every rank has n numbers, and every rank needs the sum of all. Ranks are processes, which
// share memory for their messages and nothing else.
#pragma once

#include <cmath>
#include <functional>

#include "lab/problem.h"
#include "lab/rank.h"

namespace fathom::lab::all_reduce {

struct AllReduce {
  View<const float, 1> in;
  View<float, 1> out;
  View<uint64_t, 1> nonces;  // the sum of all ranks', as it came with the messages

  AllReduce(const Point& at, Arena& arena, const Rank&)
      : in(arena.input<float>({at["n"]}, Uniform{-1, 1})),
        out(arena.output<float>({at["n"]})),
        nonces(arena.workspace<uint64_t>({1})) {}

  Cost cost() const { return {.read = in.bytes(), .written = out.bytes()}; }
  Sum expected(const AllRanks<AllReduce>& ranks, int64_t i) const {
    Sum total{.length = ranks.size()};
    for (int rank = 0; rank < ranks.size(); ++rank) {
      total.value += ranks[rank].in(i);
      total.magnitude += std::abs(static_cast<double>(ranks[rank].in(i)));
    }
    return total;
  }
  uint64_t nonce_sum(Context&) const { return nonces(0); }
};

// Where a rank leaves what others read. Each has two, for steps that follow each other without a barrier.
struct Outbox {
  uint64_t* nonce;
  float* values;  // n
};

constexpr int64_t kLargest     = int64_t{1} << 20;  // n
constexpr int64_t kLine        = 64;
constexpr int64_t kOutboxBytes = kLine + kLargest * int64_t{sizeof(float)};
constexpr int64_t kSharedBytes(int ranks) { return 2 * ranks * kOutboxBytes; }

inline Outbox outbox(const Rank& me, int rank, int64_t half = 0) {
  std::byte* const at = me.shared().data() + (half * me.size() + rank) * kOutboxBytes;
  return {reinterpret_cast<uint64_t*>(at), reinterpret_cast<float*>(at + kLine)};
}

// Element at which a rank's segment begins; that of rank size() is n.
inline int64_t segment_begin(const Rank& me, int64_t n, int rank) { return n * rank / me.size(); }

inline void copy(const float* from, float* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = from[i];
}
// In the order of ranks, so that every rank that adds gets the same bits.
inline void add(const float* from, float* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] += from[i];
}

void gather_broadcast(const AllReduce& p, Context& context);
void one_shot(const AllReduce& p, Context& context);
void two_shot(const AllReduce& p, Context& context);
std::function<void(const AllReduce&, Context&)> group_sockets(const AllReduce& p, Context& context);

}  // namespace fathom::lab::all_reduce
