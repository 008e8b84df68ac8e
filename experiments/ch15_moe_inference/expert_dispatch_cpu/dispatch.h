// The problem: one step of an MoE layer on two ranks (../expert_ranks.h) that are connected by TCP
// (src/comm), as ranks of different hosts would be. Expert e lies on rank e mod 2; every expert is equally
// popular. Tokens go to the ranks of their experts (dispatch), and results come back (combine). The variants
// differ in what travels.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "comm/group.h"
#include "experiments/ch15_moe_inference/expert_ranks.h"
#include "lab/metric.h"

namespace fathom::lab::expert_dispatch_cpu {

using moe::kExperts;
using moe::kModel;

inline constexpr int kRanks = 2;
inline int rank_of(int32_t expert) { return expert % kRanks; }

struct Dispatch : moe::ZipfTokens {
  int rank;
  // Workspace, a piece for each rank: what goes to it and comes from it, and the results on their way back.
  View<float, 2> out_pieces, in_pieces;    // header, numbers of experts and gates, rows
  View<float, 2> out_results, in_results;  // rows
  View<float, 2> y;                        // rows that experts computed, of all ranks' slots
  View<int64_t, 1> sent_bytes;             // of this rank, to others

  Dispatch(const Point& at, Arena& arena, const Rank& me);
  void metrics(CallMetrics& metrics) const {
    metrics["sent_bytes"] = {static_cast<double>(sent_bytes(0)), "lower"};
  }
};

inline constexpr int64_t kHeader = 4;  // floats: a nonce and a count

// What a rank keeps from step to step: its group, joined in prepare(), and lists of rows.
struct Links {
  std::shared_ptr<comm::Group> group;
  std::vector<int32_t> experts;      // of the rows that this rank computes
  std::vector<const float*> x;       // where they are
  std::vector<float*> y;             // and where their results go
  std::vector<const float*> result;  // of each of this rank's slots, where it came back
};
std::shared_ptr<Links> join(const Dispatch& p, const Rank& me);

// What ranks tell each other before messages whose lengths they do not know.
struct Announcement {
  uint64_t nonce;
  int64_t count;
};
// Every rank tells every other how much comes; fills p.nonces. [rank]: how much comes from it.
std::array<int64_t, kRanks> announce(const Dispatch& p, Links& links, const Rank& me,
                                     const std::array<int64_t, kRanks>& counts);
// Sends floats to each other rank and receives as many as that one sends: an all-to-all of exact lengths.
void exchange(const Dispatch& p, Links& links, View<float, 2> out,
              const std::array<int64_t, kRanks>& out_floats, View<float, 2> in,
              const std::array<int64_t, kRanks>& in_floats);

// out(t) = sum_k gate(t, k) result[t top_k + k]; slots without one are left out.
void combine(const Dispatch& p, const Links& links);

using Step = std::function<void(const Dispatch&, Context&)>;
Step padded(const Dispatch& p, Context& context);
Step exact(const Dispatch& p, Context& context);
Step one_copy(const Dispatch& p, Context& context);

}  // namespace fathom::lab::expert_dispatch_cpu
