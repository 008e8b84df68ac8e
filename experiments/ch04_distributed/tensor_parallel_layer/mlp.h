// The problem: one MLP of two layers, y = W2 relu(W1 x), whose input is a sum over ranks, as it comes from a
// layer before, and whose output every rank needs. Ranks are processes, which share memory for their
// messages. The variants differ in who computes what, and so in what travels.
//
// All ranks have the same weights, which depend on nothing, and read the part that is theirs.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/expect.h"
#include "core/rng.h"
#include "lab/problem.h"
#include "lab/rank.h"

namespace fathom::lab::tensor_parallel_layer {

constexpr int kRanks      = 2;
constexpr int64_t kModel  = 1024;
constexpr int64_t kHidden = 4096;
constexpr int64_t kTokens = 16;  // at most

// Of variance 1 / depth, so that sums of `depth` products are as large as their inputs.
inline Generate weights(uint64_t which, int64_t depth) {
  return generate<float>([which, depth](float* to, int64_t n, uint64_t) {
    const double most = std::sqrt(3.0 / static_cast<double>(depth));
    fill_uniform(to, n, which, -most, most);
  });
}

struct Mlp {
  View<const float, 2> part;       // [T, kModel]: of the sum that is x
  View<const float, 2> w1, w2;     // [kHidden, kModel], [kModel, kHidden]
  View<float, 2> y;                // [T, kModel]
  View<float, 2> x, hidden, mine;  // [T, kModel], [T, kHidden], [T, kModel]
  View<uint64_t, 1> nonces;

  Mlp(const Point& at, Arena& arena, const Rank&)
      : part(arena.input<float>({at["tokens"], kModel}, Uniform{-1, 1})),
        w1(arena.input<float>({kHidden, kModel}, weights(1, kModel))),
        w2(arena.input<float>({kModel, kHidden}, weights(2, kHidden))),
        y(arena.output<float>({at["tokens"], kModel})),
        x(arena.workspace<float>({at["tokens"], kModel})),
        hidden(arena.workspace<float>({at["tokens"], kHidden})),
        mine(arena.workspace<float>({at["tokens"], kModel})),
        nonces(arena.workspace<uint64_t>({1})) {
    FATHOM_EXPECT(at["tokens"] <= kTokens, "the memory that ranks share has room for 16 tokens");
  }

  int64_t tokens() const { return part.extent(0); }
  // A rank's share of the layer.
  Cost cost() const {
    return {.read    = (w1.bytes() + w2.bytes()) / kRanks + part.bytes(),
            .written = y.bytes(),
            .flops   = 4.0 * static_cast<double>(tokens() * kModel * kHidden) / kRanks};
  }
  uint64_t nonce_sum(Context&) const { return nonces(0); }
  void check(Checker& checker, const AllRanks<Mlp>& ranks) const;
};

// What ranks share: for each rank its nonce, its part of x, its hidden activations, its part of y.
struct Outbox {
  uint64_t* nonce;
  float *x, *hidden, *y;
};
constexpr int64_t kOutboxBytes = 64 + kTokens * (2 * kModel + kHidden) * int64_t{sizeof(float)};
inline Outbox outbox(const Rank& me, int rank) {
  std::byte* const at = me.shared().data() + rank * kOutboxBytes;
  auto* const numbers = reinterpret_cast<float*>(at + 64);
  return {reinterpret_cast<uint64_t*>(at), numbers, numbers + kTokens * kModel,
          numbers + kTokens * (kModel + kHidden)};
}

struct Range {
  int64_t begin, end;
};
inline Range share(int64_t n, int rank) { return {n * rank / kRanks, n * (rank + 1) / kRanks}; }

// out(t, n) = sum over k in `depth` of in(t, k) w(n, k), for n in `outputs`. Eight partial sums a product,
// since the compiler may not reorder one; a row of weights is read once for all tokens.
inline void products(View<const float, 2> in, View<const float, 2> w, Range outputs, Range depth,
                     View<float, 2> out) {
  for (int64_t n = outputs.begin; n < outputs.end; ++n)
    for (int64_t t = 0; t < in.extent(0); ++t) {
      const float *a = &in(t, 0), *b = &w(n, 0);
      float sums[8] = {};
      for (int64_t k = depth.begin; k < depth.end; k += 8)
        for (int64_t lane = 0; lane < 8; ++lane) sums[lane] += a[k + lane] * b[k + lane];
      float total = 0;
      for (const float sum : sums) total += sum;
      out(t, n) = total;
    }
}

inline void relu(View<float, 2> numbers, Range columns) {
  for (int64_t t = 0; t < numbers.extent(0); ++t)
    for (int64_t n = columns.begin; n < columns.end; ++n) numbers(t, n) = std::max(numbers(t, n), 0.0f);
}

// Columns of a message, which has the row length of `numbers`.
inline void put(View<const float, 2> numbers, Range columns, float* message) {
  for (int64_t t = 0; t < numbers.extent(0); ++t)
    std::copy(&numbers(t, 0) + columns.begin, &numbers(t, 0) + columns.end,
              message + t * numbers.extent(1) + columns.begin);
}
inline void take(const float* message, Range columns, View<float, 2> numbers) {
  for (int64_t t = 0; t < numbers.extent(0); ++t)
    std::copy(message + t * numbers.extent(1) + columns.begin, message + t * numbers.extent(1) + columns.end,
              &numbers(t, 0) + columns.begin);
}

// `numbers` of all ranks, which lie in `message` of their outboxes: their sum in the order of ranks.
inline void add_up(const Rank& me, float* Outbox::*message, View<float, 2> sum) {
  for (int rank = 0; rank < me.size(); ++rank) {
    const float* theirs = outbox(me, rank).*message;
    for (int64_t i = 0; i < sum.size(); ++i) sum.data()[i] = (rank == 0 ? 0 : sum.data()[i]) + theirs[i];
  }
}

// Every variant's first step: x on all ranks. The nonces travel with it.
inline void all_reduce_input(const Mlp& p, const Rank& me) {
  const Outbox mine = outbox(me, me.rank());
  *mine.nonce       = me.nonce();
  put(p.part, {0, kModel}, mine.x);
  me.barrier();  // every part of x lies in an outbox
  add_up(me, &Outbox::x, p.x);
  p.nonces(0) = 0;
  for (int rank = 0; rank < me.size(); ++rank) p.nonces(0) += *outbox(me, rank).nonce;
}

void one_rank(const Mlp& p, Context& context);
void gather_each(const Mlp& p, Context& context);
void column_then_row(const Mlp& p, Context& context);

}  // namespace fathom::lab::tensor_parallel_layer
