// out(t) = sum_k gate(t, k) relu(x(t) W1[e]) W2[e]      T tokens on each of 2 ranks, top_k of 16 experts,
// fp32
//
// bytes   1 KB for each token that has an expert elsewhere, at most T, and as much back
// flops   T top_k x 262,144 on each rank
// limit   FMA peak of a core; here the copies of a socket come on top of it
// idea    hierarchical, as in DeepEP: one copy of a token for each rank, not for each expert; that rank adds
// up
//         what its experts say and sends one row back
#include <cstring>

#include "dispatch.h"

namespace fathom::lab::expert_dispatch_cpu {

// A record: top_k experts, -1 where they lie elsewhere; top_k gates; the row.
Step one_copy(const Dispatch& prepared, Context& context) {
  return [links = join(prepared, *context.rank)](const Dispatch& p, Context& step) {
    const int64_t K = p.top_k(), record = 2 * K + kModel;
    links->experts.clear();
    links->x.clear();
    links->y.clear();
    std::array<int64_t, kRanks> count{};
    int64_t computed   = 0;  // rows of y in use
    const auto compute = [&](int32_t e, const float* x) {
      links->experts.push_back(e);
      links->x.push_back(x);
      links->y.push_back(&p.y(computed++, 0));
      return links->y.back();
    };
    // Records are in the order of tokens, so results come back in it too.
    for (int64_t t = 0; t < p.tokens(); ++t)
      for (int r = 0; r < kRanks; ++r) {
        float* const to = &p.out_pieces(r, count[static_cast<size_t>(r)] * record);
        bool goes       = false;
        for (int64_t k = 0; k < K; ++k) {
          const int32_t e     = p.expert(t, k);
          const bool here     = rank_of(e) == r;
          const int32_t named = here ? e : -1;
          if (r == p.rank) {
            links->result[static_cast<size_t>(t * K + k)] = here ? compute(e, &p.x(t, 0)) : nullptr;
            continue;
          }
          goes |= here;
          std::memcpy(to + k, &named, sizeof named);
          to[K + k] = here ? p.gate(t, k) : 0;
        }
        if (!goes) continue;
        std::copy_n(&p.x(t, 0), kModel, to + 2 * K);
        ++count[static_cast<size_t>(r)];
      }
    const auto coming = announce(p, *links, *step.rank, count);
    const auto floats = [](const std::array<int64_t, kRanks>& rows, int64_t of_row) {
      std::array<int64_t, kRanks> total{};
      for (size_t r = 0; r < kRanks; ++r) total[r] = rows[r] * of_row;
      return total;
    };
    exchange(p, *links, p.out_pieces, floats(count, record), p.in_pieces, floats(coming, record));

    const auto expert_of = [&](const float* from, int64_t k) {
      int32_t e = 0;
      std::memcpy(&e, from + k, sizeof e);
      return e;
    };
    const auto for_all_records = [&](auto&& visit) {  // visit(rank, number, record)
      for (int r = 0; r < kRanks; ++r)
        for (int64_t i = 0; r != p.rank && i < coming[static_cast<size_t>(r)]; ++i)
          visit(r, i, &p.in_pieces(r, i * record));
    };
    int64_t next = computed;
    for_all_records([&](int, int64_t, const float* from) {
      for (int64_t k = 0; k < K; ++k)
        if (const int32_t e = expert_of(from, k); e >= 0) compute(e, from + 2 * K);
    });
    moe::compute_rows(p, links->experts, links->x, links->y);
    for_all_records([&](int r, int64_t i, const float* from) {
      float* const sum = &p.out_results(r, i * kModel);
      std::fill_n(sum, kModel, 0.0f);
      for (int64_t k = 0; k < K; ++k) {
        if (expert_of(from, k) < 0) continue;
        const float* const row = &p.y(next++, 0);
        for (int64_t m = 0; m < kModel; ++m) sum[m] += from[K + k] * row[m];
      }
    });
    exchange(p, *links, p.out_results, floats(coming, kModel), p.in_results, floats(count, kModel));

    combine(p, *links);
    for (int r = 0; r < kRanks; ++r) {
      int64_t i = 0;
      for (int64_t t = 0; r != p.rank && t < p.tokens(); ++t) {
        bool went = false;
        for (int64_t k = 0; k < K; ++k) went |= rank_of(p.expert(t, k)) == r;
        if (!went) continue;
        const float* const sum = &p.in_results(r, i++ * kModel);
        for (int64_t m = 0; m < kModel; ++m) p.out(t, m) += sum[m];
      }
    }
  };
}

}  // namespace fathom::lab::expert_dispatch_cpu
