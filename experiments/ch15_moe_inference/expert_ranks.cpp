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

// Fills p.sources with the slots (rank * slots of a rank + slot) that this rank computes, grouped by expert,
// and p.rows; returns where each expert's slots begin. All ranks deal the rows alike, so nobody needs to be
// told.
std::array<int64_t, kExperts + 1> deal(const ExpertRanks& p, const Rank& me, const RanksOfExperts& ranks_of) {
  const auto for_all = [&](auto&& visit) {  // visit(rank that computes, expert, slot)
    std::array<size_t, kExperts> turn{};
    for (int from = 0; from < me.size(); ++from) {
      const int32_t* experts = outbox(me, from).experts;
      for (int64_t s = 0; s < p.slots(); ++s) {
        if (experts[s] < 0) continue;
        const auto e      = static_cast<size_t>(experts[s]);
        const auto& ranks = ranks_of[e];
        visit(ranks.size() == 1 ? ranks[0] : ranks[turn[e]++ % ranks.size()], e, from * p.slots() + s);
      }
    }
  };
  std::array<int64_t, kExperts + 1> first{};
  for (int64_t r = 0; r < me.size(); ++r) p.rows(r) = 0;
  for_all([&](int32_t rank, size_t e, int64_t) {
    ++p.rows(rank);
    if (rank == me.rank()) ++first[e + 1];
  });
  for (size_t e = 0; e < kExperts; ++e) first[e + 1] += first[e];
  std::array<int64_t, kExperts + 1> next = first;
  for_all([&](int32_t rank, size_t e, int64_t slot) {
    if (rank == me.rank()) p.sources(next[e]++) = static_cast<int32_t>(slot);
  });
  return first;
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

  uint64_t nonces = 0;
  for (int rank = 0; rank < me.size(); ++rank) nonces += *outbox(me, rank).nonce;
  p.nonces(0)      = nonces;
  const auto first = deal(p, me, ranks_of);
  for (int64_t e = 0; e < kExperts; ++e) {
    const int64_t begin = first[static_cast<size_t>(e)], rows = first[static_cast<size_t>(e) + 1] - begin;
    if (rows == 0) continue;
    const auto owner = [&](int64_t i) {
      return outbox(me, static_cast<int>(p.sources(begin + i) / p.slots()));
    };
    const auto slot = [&](int64_t i) { return p.sources(begin + i) % p.slots(); };
    for (int64_t i = 0; i < rows; ++i)
      std::copy_n(owner(i).x + slot(i) / p.top_k() * kModel, kModel, &p.gathered(i, 0));
    run_expert(p, e, rows, p.gathered.data(), p.hidden.data(), p.result.data());
    for (int64_t i = 0; i < rows; ++i)
      std::copy_n(&p.result(i, 0), kModel, owner(i).results + slot(i) * kModel);
  }
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
