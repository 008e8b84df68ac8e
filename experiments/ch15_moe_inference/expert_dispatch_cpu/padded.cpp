// out(t) = sum_k gate(t, k) relu(x(t) W1[e]) W2[e]      T tokens on each of 2 ranks, top_k of 16 experts,
// fp32
//
// bytes   T top_k x 1 KB from each rank to each other and back, whatever the routing
// flops   T top_k x 262,144 on each rank
// limit   FMA peak of a core; here the copies of a socket come on top of it
// idea    baseline: one all-to-all of pieces that could hold all slots of a rank, so nobody need know lengths
#include <cstring>

#include "dispatch.h"

namespace fathom::lab::expert_dispatch_cpu {

// A piece: nonce and count, an expert for each row, rows.
Step padded(const Dispatch& prepared, Context& context) {
  return [links = join(prepared, *context.rank)](const Dispatch& p, Context& step) {
    std::array<int64_t, kRanks> count{};
    const auto row_of = [&](View<float, 2> pieces, int r, int64_t i) {
      return &pieces(r, kHeader + p.slots() + i * kModel);
    };
    for (int64_t s = 0; s < p.slots(); ++s) {
      const int32_t e = p.expert.data()[s];
      const int to    = rank_of(e);
      const int64_t i = count[static_cast<size_t>(to)]++;
      std::memcpy(&p.out_pieces(to, kHeader + i), &e, sizeof e);
      std::copy_n(&p.x(s / p.top_k(), 0), kModel, row_of(p.out_pieces, to, i));
      links->result[static_cast<size_t>(s)] = &p.in_results(to, i * kModel);
    }
    for (int r = 0; r < kRanks; ++r) {
      const Announcement header{step.rank->nonce(), count[static_cast<size_t>(r)]};
      std::memcpy(&p.out_pieces(r, 0), &header, sizeof header);
    }
    const auto all = [](View<float, 2> v) {
      return std::span<float>(v.data(), static_cast<size_t>(v.size()));
    };
    links->group->all_to_all(std::span<const float>(all(p.out_pieces)), all(p.in_pieces));

    links->experts.clear();
    links->x.clear();
    links->y.clear();
    p.nonces(0) = 0;
    for (int r = 0; r < kRanks; ++r) {
      Announcement header{};
      std::memcpy(&header, &p.in_pieces(r, 0), sizeof header);
      p.nonces(0) += header.nonce;
      for (int64_t i = 0; i < header.count; ++i) {
        int32_t e = 0;
        std::memcpy(&e, &p.in_pieces(r, kHeader + i), sizeof e);
        links->experts.push_back(e);
        links->x.push_back(row_of(p.in_pieces, r, i));
        links->y.push_back(&p.out_results(r, i * kModel));
      }
    }
    moe::compute_rows(p, links->experts, links->x, links->y);
    if (p.slots() > 0)
      links->group->all_to_all(std::span<const float>(all(p.out_results)), all(p.in_results));
    p.sent_bytes(0) = (kRanks - 1) * (p.out_pieces.bytes() + p.out_results.bytes()) / kRanks;
    combine(p, *links);
  };
}

}  // namespace fathom::lab::expert_dispatch_cpu
