// The problem's memory, reference and group.
#include "ring_attention.h"

#include <algorithm>

#include "comm/tcp_group.h"

namespace fathom::lab::ring_attention_cpu {

RingAttention::RingAttention(const Point& at, Arena& arena, const Rank& me)
    : tokens(at["tokens"]),
      rank(me.rank()),
      q(arena.input<float>({half().rows, kHeadDim}, Normal{})),
      k(arena.input<float>({half().rows, kHeadDim}, Normal{})),
      v(arena.input<float>({half().rows, kHeadDim}, Normal{})),
      out(arena.output<float>({half().rows, kHeadDim})),
      messages(arena.workspace<float>({kRanks, message_floats(tokens)})),
      rows(arena.workspace<float>({most_rows(tokens), kHeadDim})),
      max(arena.workspace<float>({2 * most_rows(tokens)})),
      sum(arena.workspace<float>({2 * most_rows(tokens)})),
      panels(arena.workspace<float>({128 * kHeadDim})),
      sent_bytes(arena.workspace<int64_t>({1})),
      scores(arena.workspace<int64_t>({1})),
      nonces(arena.workspace<uint64_t>({1})) {}

// In double, with all scores of a row in memory.
void RingAttention::check(Checker& checker, const AllRanks<RingAttention>& ranks) const {
  std::vector<const float*> keys, values;  // of each position
  for (int r = 0; r < ranks.size(); ++r)
    for (int64_t i = 0; i < ranks[r].k.extent(0); ++i) {
      keys.push_back(&ranks[r].k(i, 0));
      values.push_back(&ranks[r].v(i, 0));
    }
  std::vector<double> weight, size;  // of the row that was asked for last
  int64_t known = -1;
  checker.values("out", out, [&](int64_t i, int64_t d) {
    const auto seen = static_cast<size_t>(half().first + i + 1);
    if (known != i) {
      known = i;
      weight.assign(seen, 0);
      size.assign(seen, 0);
      for (size_t j = 0; j < seen; ++j)
        for (int64_t h = 0; h < kHeadDim; ++h) {
          const double product = static_cast<double>(q(i, h)) * keys[j][h] / 8;
          weight[j] += product;
          size[j] += std::abs(product);
        }
      const double most = *std::max_element(weight.begin(), weight.end());
      for (double& w : weight) w = std::exp(w - most);
    }
    double total = 0;
    // An absolute error of a score is a relative one of its exponential: hence the factor 1 + size.
    Sum result{.length = static_cast<int64_t>(seen) + kHeadDim};
    for (size_t j = 0; j < seen; ++j) {
      total += weight[j];
      result.value += weight[j] * values[j][d];
      result.magnitude += weight[j] * std::abs(values[j][d]) * (1 + size[j]);
    }
    result.value /= total;
    result.magnitude /= total;
    return result;
  });
}

void RingAttention::metrics(CallMetrics& metrics) const {
  metrics["sent_bytes"]             = {static_cast<double>(sent_bytes(0)), "lower"};
  metrics["scores_share_of_rank_0"] = {pairs() > 0 ? static_cast<double>(scores(0)) / pairs() : 0, "higher"};
}

Queries own_queries(const RingAttention& p) {
  return {p.half(), p.q.data(), p.out.data(), p.max.data(), p.sum.data()};
}

std::shared_ptr<comm::Group> join(const Rank& me) {
  auto* const port = reinterpret_cast<int64_t*>(me.shared().data());  // told by rank 0
  if (me.rank() == 0) *port = comm::free_tcp_port();
  me.barrier();
  std::shared_ptr<comm::Group> group =
      comm::join_tcp_group({.port = static_cast<int>(*port), .rank = me.rank(), .size = me.size()});
  me.barrier();
  return group;
}

}  // namespace fathom::lab::ring_attention_cpu
