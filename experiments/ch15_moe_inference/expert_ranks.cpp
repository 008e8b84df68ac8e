#include "experiments/ch15_moe_inference/expert_ranks.h"

#include <cstddef>

namespace fathom::lab::moe {
namespace {

// result = relu(x W1[e]) W2[e] for `rows` rows; hidden is scratch for as many.
void run_expert(const ExpertRanks& p, int64_t e, int64_t rows, const float* x, float* hidden, float* result) {
  product(rows, kHidden, kModel, x, kModel, packed_panels(&p.w1(e, 0), kModel), hidden, kHidden, false);
  for (int64_t i = 0; i < rows * kHidden; ++i) hidden[i] = std::max(hidden[i], 0.0f);
  product(rows, kModel, kHidden, hidden, kHidden, packed_panels(&p.w2(e, 0), kHidden), result, kModel, false);
}

}  // namespace

Outbox outbox(const Rank& me, int rank) {
  std::byte* const at   = me.shared().data() + rank * kOutboxBytes;
  std::byte* const rows = at + kHeaderBytes + kMostSlots * int64_t{sizeof(int32_t)};
  return {.nonce   = reinterpret_cast<uint64_t*>(at),
          .load    = reinterpret_cast<int64_t*>(at + 64),
          .experts = reinterpret_cast<int32_t*>(at + kHeaderBytes),
          .x       = reinterpret_cast<float*>(rows),
          .results = reinterpret_cast<float*>(rows + kRowsBytes)};
}

std::vector<int64_t> observed_load(const int32_t* experts, int64_t slots, const Rank& me) {
  int64_t* const mine = outbox(me, me.rank()).load;
  std::fill_n(mine, kExperts, 0);
  for (int64_t s = 0; s < slots; ++s) ++mine[experts[s]];
  me.barrier();
  std::vector<int64_t> load(kExperts, 0);
  for (int rank = 0; rank < me.size(); ++rank)
    for (size_t e = 0; e < kExperts; ++e) load[e] += outbox(me, rank).load[e];
  me.barrier();  // nobody counts again before all have read
  return load;
}

// The next step may overwrite what it finds in shared memory: tokens were read before the second barrier, and
// results are written after the first barrier of the next step, to which every rank comes after it has
// combined.
void compute_slots(const ExpertRanks& p, const Rank& me, const int32_t* experts,
                   const RanksOfExperts& ranks_of) {
  const Outbox mine = outbox(me, me.rank());
  *mine.nonce       = me.nonce();
  std::copy_n(experts, p.slots(), mine.experts);
  std::copy_n(p.x.data(), p.x.size(), mine.x);
  me.barrier();  // all tokens lie in the outboxes

  // All ranks deal the rows alike, so nobody needs to be told. The lists keep their memory.
  static std::vector<int32_t> expert;
  static std::vector<const float*> x;
  static std::vector<float*> y;
  expert.clear();
  x.clear();
  y.clear();
  std::fill_n(p.rows.data(), me.size(), 0);
  p.nonces(0) = 0;
  std::array<size_t, kExperts> turn{};
  for (int from = 0; from < me.size(); ++from) {
    const Outbox box = outbox(me, from);
    p.nonces(0) += *box.nonce;
    for (int64_t s = 0; s < p.slots(); ++s) {
      if (box.experts[s] < 0) continue;
      const auto e       = static_cast<size_t>(box.experts[s]);
      const int32_t rank = ranks_of[e][turn[e]++ % ranks_of[e].size()];
      ++p.rows(rank);
      if (rank != me.rank()) continue;
      expert.push_back(box.experts[s]);
      x.push_back(box.x + s / p.top_k() * kModel);
      y.push_back(box.results + s * kModel);
    }
  }
  compute_rows(p, expert, x, y);
  me.barrier();  // all results lie in their owners' outboxes
}

void compute_rows(const ExpertRanks& p, std::span<const int32_t> experts, std::span<const float* const> x,
                  std::span<float* const> y) {
  std::array<int64_t, kExperts + 1> first{};
  for (const int32_t e : experts) ++first[static_cast<size_t>(e) + 1];
  for (size_t e = 0; e < kExperts; ++e) first[e + 1] += first[e];
  std::array<int64_t, kExperts + 1> next = first;
  for (size_t i = 0; i < experts.size(); ++i)
    p.sources(next[static_cast<size_t>(experts[i])]++) = static_cast<int32_t>(i);
  for (int64_t e = 0; e < kExperts; ++e) {
    const int64_t begin = first[static_cast<size_t>(e)], rows = first[static_cast<size_t>(e) + 1] - begin;
    if (rows == 0) continue;
    const auto source = [&](int64_t i) { return static_cast<size_t>(p.sources(begin + i)); };
    for (int64_t i = 0; i < rows; ++i) std::copy_n(x[source(i)], kModel, &p.gathered(i, 0));
    run_expert(p, e, rows, p.gathered.data(), p.hidden.data(), p.result.data());
    for (int64_t i = 0; i < rows; ++i) std::copy_n(&p.result(i, 0), kModel, y[source(i)]);
  }
}

void combine(const ExpertRanks& p, const int32_t* experts, const float* gates, const float* results) {
  for (int64_t t = 0; t < p.tokens(); ++t) {
    float* const out = &p.out(t, 0);
    std::fill_n(out, kModel, 0.0f);
    for (int64_t s = t * p.top_k(); s < (t + 1) * p.top_k(); ++s) {
      if (experts[s] < 0) continue;
      const float* const row = results + s * kModel;
      const float weight     = gates[s];
      for (int64_t m = 0; m < kModel; ++m) out[m] += weight * row[m];
    }
  }
}

}  // namespace fathom::lab::moe
