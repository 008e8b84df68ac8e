// NCCL's all-to-all, as frameworks use it in a captured graph: lengths are fixed when it is captured, so each
// rank sends room for all its tokens to every rank, with their experts and weights, from which each rank
// counts what it got. Then rows are sorted by expert and gathered; sums over a rank's experts travel back and
// are added. Seven launches an exchange, two of them NCCL's.
//
// bytes   over the link: 2 T H each way, whatever the routing, and 8 T top_k there
//         in memory: all rows of all ranks, written and read once more than in the fused kernels, each way
#include <algorithm>
#include <memory>

#include "cuda/device_buffer.h"
#include "exchange_kernels.h"
#include "kernels/moe/permute.h"
#include "nccl_messages.h"
#include "step_graph.h"

namespace fathom::lab::expert_dispatch_gpu {
namespace {

// What NCCL moves, of all ranks, and the kernels around it.
struct Moved {
  const int rank;
  NcclMessages messages;
  DeviceBuffer<bf16> x, out_sums, in_sums;
  DeviceBuffer<int32_t> experts;
  DeviceBuffer<float> weights;

  Moved(const NcclId& id, const Rank& me, int64_t tokens)
      : rank(me.rank()),
        messages(id, me.rank(), me.size()),
        x(*me.device(), kRanks * tokens * kWidth),
        out_sums(*me.device(), kRanks * tokens * kWidth),
        in_sums(*me.device(), kRanks * tokens * kWidth),
        experts(*me.device(), kRanks * tokens * kTopK),
        weights(*me.device(), kRanks * tokens * kTopK) {
    me.device()->set_words(experts.data(), experts.bytes(), 0);  // for load_kernels
  }

  void send_rows(const Exchange& e, StreamRef stream) const {
    messages.all_to_all({{e.x.data(), 0, x.data(), e.x.bytes(), e.x.bytes()},
                         {e.experts.data(), 0, experts.data(), e.experts.bytes(), e.experts.bytes()},
                         {e.weights.data(), 0, weights.data(), e.weights.bytes(), e.weights.bytes()}},
                        stream);
  }
  void sort_rows(const Exchange& e, StreamRef stream) const {
    const int64_t rows = kRanks * e.tokens();
    number_from_rank(View<const int32_t, 2>(experts.as({rows, kTopK})),
                     View<const float, 2>(weights.as({rows, kTopK})), rank, e.rows, stream);
    kernels::sort_by_expert(View<const int32_t, 2>(e.rows.experts), e.rows.offsets, e.rows.sorted_ids,
                            stream);
    kernels::gather_rows(View<const bf16, 2>(x.as({rows, kWidth})), {e.rows.offsets, e.rows.sorted_ids},
                         kTopK, e.rows.sorted, stream);
  }
  void sum(const Exchange& e, StreamRef stream) const {
    sum_parts(e.parts, View<const int32_t, 2>(e.rows.experts), out_sums.as({kRanks * e.tokens(), kWidth}),
              stream);
  }
  void send_sums(const Exchange& e, StreamRef stream) const {
    messages.all_to_all({{out_sums.data(), e.x.bytes(), in_sums.data(), e.x.bytes(), e.x.bytes()}}, stream);
  }
  void add(const Exchange& e, StreamRef stream) const {
    add_sums(View<const bf16, 2>(in_sums.as({kRanks * e.tokens(), kWidth})), e.out, stream);
  }
  // Before the first message: a GPU that waits in one might not load them.
  void load_kernels(const Dispatch& p, StreamRef stream) const {
    sort_rows(p.nonce, stream);
    sum(p.nonce, stream);
    add(p.nonce, stream);
  }
};

}  // namespace

Call nccl_all_to_all(const Dispatch& p, Context& context) {
  const Rank& me = *context.rank;
  if (const std::string why = why_no_messages(); !why.empty()) throw Unavailable("needs_library", why);
  // Rank 0 makes the id that all join by.
  auto* id = reinterpret_cast<NcclId*>(me.shared().data());
  if (me.rank() == 0) *id = make_nccl_id();
  me.barrier();
  const auto moved = std::make_shared<Moved>(*id, me, std::max<int64_t>(p.tokens.tokens(), 1));
  moved->load_kernels(p, context.stream);
  me.device()->synchronize();
  me.barrier();
  return captured(p, context,
                  {.dispatch =
                       [moved](const Exchange& e, int, StreamRef stream) {
                         if (e.tokens() > 0) moved->send_rows(e, stream);
                         moved->sort_rows(e, stream);
                       },
                   .combine =
                       [moved](const Exchange& e, int, StreamRef stream) {
                         if (e.tokens() == 0) return;
                         moved->sum(e, stream);
                         moved->send_sums(e, stream);
                         moved->add(e, stream);
                       }});
}

}  // namespace fathom::lab::expert_dispatch_gpu
