// out(t) = sum_k gate(t, k) relu(x(t) W1[e]) W2[e]      T tokens on each of 2 ranks, top_k of 16 experts,
// fp32
//
// bytes   1 KB for each slot whose expert is elsewhere, half of T top_k on average, and as much back
// flops   T top_k x 262,144 on each rank
// limit   FMA peak of a core; here the copies of a socket come on top of it
// idea    exact counts: ranks first tell each other how many rows come (all-to-all-v); own rows stay
#include <cstring>

#include "dispatch.h"

namespace fathom::lab::expert_dispatch_cpu {

// A piece: an expert for each row, then rows. The receiver knows how many.
Step exact(const Dispatch& prepared, Context& context) {
  return [links = join(prepared, *context.rank)](const Dispatch& p, Context& step) {
    std::array<int64_t, kRanks> count{};
    for (int64_t s = 0; s < p.slots(); ++s) ++count[static_cast<size_t>(rank_of(p.expert.data()[s]))];
    const auto coming = announce(p, *links, *step.rank, count);
    const auto row_of = [](View<float, 2> pieces, int r, int64_t rows, int64_t i) {
      return &pieces(r, rows + i * kModel);
    };

    links->experts.clear();
    links->x.clear();
    links->y.clear();
    std::array<int64_t, kRanks> next{};
    int64_t computed = 0;  // rows of y in use
    for (int64_t s = 0; s < p.slots(); ++s) {
      const int32_t e = p.expert.data()[s];
      const int to    = rank_of(e);
      const float* x  = &p.x(s / p.top_k(), 0);
      if (to == p.rank) {
        links->experts.push_back(e);
        links->x.push_back(x);
        links->y.push_back(&p.y(computed++, 0));
        links->result[static_cast<size_t>(s)] = links->y.back();
        continue;
      }
      const int64_t i = next[static_cast<size_t>(to)]++;
      std::memcpy(&p.out_pieces(to, i), &e, sizeof e);
      std::copy_n(x, kModel, row_of(p.out_pieces, to, count[static_cast<size_t>(to)], i));
      links->result[static_cast<size_t>(s)] = &p.in_results(to, i * kModel);
    }
    const auto floats = [](const std::array<int64_t, kRanks>& rows, int64_t of_row) {
      std::array<int64_t, kRanks> total{};
      for (size_t r = 0; r < kRanks; ++r) total[r] = rows[r] * of_row;
      return total;
    };
    exchange(p, *links, p.out_pieces, floats(count, 1 + kModel), p.in_pieces, floats(coming, 1 + kModel));
    for (int r = 0; r < kRanks; ++r)
      for (int64_t i = 0; r != p.rank && i < coming[static_cast<size_t>(r)]; ++i) {
        int32_t e = 0;
        std::memcpy(&e, &p.in_pieces(r, i), sizeof e);
        links->experts.push_back(e);
        links->x.push_back(row_of(p.in_pieces, r, coming[static_cast<size_t>(r)], i));
        links->y.push_back(&p.out_results(r, i * kModel));
      }
    moe::compute_rows(p, links->experts, links->x, links->y);
    exchange(p, *links, p.out_results, floats(coming, kModel), p.in_results, floats(count, kModel));
    combine(p, *links);
  };
}

}  // namespace fathom::lab::expert_dispatch_cpu
