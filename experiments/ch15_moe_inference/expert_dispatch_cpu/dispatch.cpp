// What the variants share: memory, the group, messages of exact lengths, the sum at the end.
#include "dispatch.h"

#include <algorithm>

#include "comm/tcp_group.h"

namespace fathom::lab::expert_dispatch_cpu {

Dispatch::Dispatch(const Point& at, Arena& arena, const Rank& me)
    : ZipfTokens(me, arena, at["tokens"], at["top_k"], 0),
      rank(me.rank()),
      out_pieces(arena.workspace<float>({kRanks, kHeader + slots() * (2 + kModel)})),
      in_pieces(arena.workspace<float>({kRanks, kHeader + slots() * (2 + kModel)})),
      out_results(arena.workspace<float>({kRanks, slots() * kModel})),
      in_results(arena.workspace<float>({kRanks, slots() * kModel})),
      y(arena.workspace<float>({kRanks * slots(), kModel})),
      sent_bytes(arena.workspace<int64_t>({1})) {}

std::shared_ptr<Links> join(const Dispatch& p, const Rank& me) {
  auto* const port = reinterpret_cast<int64_t*>(me.shared().data());  // told by rank 0
  if (me.rank() == 0) *port = comm::free_tcp_port();
  me.barrier();
  auto links = std::make_shared<Links>();
  links->group =
      comm::join_tcp_group({.port = static_cast<int>(*port), .rank = me.rank(), .size = me.size()});
  const auto most = static_cast<size_t>(kRanks * p.slots());
  links->experts.reserve(most);
  links->x.reserve(most);
  links->y.reserve(most);
  links->result.resize(static_cast<size_t>(p.slots()));
  me.barrier();
  return links;
}

std::array<int64_t, kRanks> announce(const Dispatch& p, Links& links, const Rank& me,
                                     const std::array<int64_t, kRanks>& counts) {
  std::array<int64_t, 2 * kRanks> out{}, in{};
  for (size_t r = 0; r < kRanks; ++r) {
    out[2 * r]     = static_cast<int64_t>(me.nonce());
    out[2 * r + 1] = counts[r];
  }
  links.group->all_to_all(std::span<const int64_t>(out), std::span<int64_t>(in));
  p.sent_bytes(0) = (kRanks - 1) * int64_t{sizeof(Announcement)};
  p.nonces(0)     = 0;
  std::array<int64_t, kRanks> coming{};
  for (size_t r = 0; r < kRanks; ++r) {
    p.nonces(0) += static_cast<uint64_t>(in[2 * r]);
    coming[r] = in[2 * r + 1];
  }
  return coming;
}

void exchange(const Dispatch& p, Links& links, View<float, 2> out,
              const std::array<int64_t, kRanks>& out_floats, View<float, 2> in,
              const std::array<int64_t, kRanks>& in_floats) {
  for (int distance = 1; distance < kRanks; ++distance) {
    const int to = (p.rank + distance) % kRanks, from = (p.rank - distance + kRanks) % kRanks;
    const auto sending = static_cast<size_t>(out_floats[static_cast<size_t>(to)]);
    links.group->send_receive(std::span<const float>(out.data() + to * out.stride(0), sending), to,
                              std::span<float>(in.data() + from * in.stride(0),
                                               static_cast<size_t>(in_floats[static_cast<size_t>(from)])),
                              from);
    p.sent_bytes(0) += static_cast<int64_t>(sending * sizeof(float));
  }
}

void combine(const Dispatch& p, const Links& links) {
  for (int64_t t = 0; t < p.tokens(); ++t) {
    float* const out = &p.out(t, 0);
    std::fill_n(out, kModel, 0.0f);
    for (int64_t k = 0; k < p.top_k(); ++k) {
      const float* const row = links.result[static_cast<size_t>(t * p.top_k() + k)];
      if (!row) continue;
      const float weight = p.gate(t, k);
      for (int64_t m = 0; m < kModel; ++m) out[m] += weight * row[m];
    }
  }
}

}  // namespace fathom::lab::expert_dispatch_cpu
