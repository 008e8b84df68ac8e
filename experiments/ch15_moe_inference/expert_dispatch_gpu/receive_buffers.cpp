#include "receive_buffers.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "cuda/device_buffer.h"
#include "cuda/peer_access.h"
#include "exchange_kernels.h"
#include "step_graph.h"

namespace fathom::lab::expert_dispatch_gpu {
namespace {

struct Receiver {
  DeviceBuffer<std::byte> memory;
  DeviceBuffer<int32_t> pass;  // not of the arena, which is overwritten between samples
  kernels::AllToAllPeers peers;

  kernels::AllToAllCall call(int index) const {
    return {.pass = View<const int32_t, 1>(pass.view()), .index = index, .count = kExchanges};
  }
};

std::shared_ptr<const Receiver> receiver_of(const Dispatch& p, const Rank& me) {
  std::vector<DeviceId> devices;
  for (int r = 0; r < me.size(); ++r) devices.push_back({r});
  if (const Status can = can_access_peers(devices); !can)
    throw Unavailable("needs_feature", can.error().message);
  if (me.rank() == 0) enable_peer_access(devices);
  me.barrier();
  const auto made = std::make_shared<Receiver>();
  made->peers     = {
          .rank             = me.rank(),
          .experts_per_rank = kExpertsOfRank,
          .layout = {.ranks = me.size(), .max_tokens = std::max<int64_t>(p.tokens.tokens(), 1), .width = kWidth}};
  made->memory = {*me.device(), made->peers.layout.bytes()};
  made->pass   = {*me.device(), 1};
  me.device()->set_words(made->memory.data(), made->memory.bytes(), 0);
  me.device()->set_words(made->pass.data(), made->pass.bytes(), 0);
  auto* addresses      = reinterpret_cast<std::byte**>(me.shared().data());
  addresses[me.rank()] = made->memory.data();
  me.barrier();  // all have said where
  for (int r = 0; r < me.size(); ++r) made->peers.receive[static_cast<size_t>(r)] = addresses[r];
  me.barrier();  // all have read it
  return made;
}

}  // namespace

Call all_to_all_by(kernels::AllToAllProtocol protocol, const Dispatch& p, Context& context) {
  const auto receiver = receiver_of(p, *context.rank);
  return captured(p, context,
                  {.begin = [receiver](StreamRef stream) { count(receiver->pass.view(), stream); },
                   .dispatch =
                       [receiver, protocol](const Exchange& e, int index, StreamRef stream) {
                         kernels::expert_dispatch(e.x, e.experts, e.weights, receiver->peers,
                                                  receiver->call(index), e.rows, protocol, stream);
                       },
                   .combine =
                       [receiver, protocol](const Exchange& e, int index, StreamRef stream) {
                         kernels::expert_combine_add(e.parts, View<const int32_t, 2>(e.rows.experts),
                                                     e.experts, receiver->peers, receiver->call(index), e.out,
                                                     protocol, stream);
                       }});
}

}  // namespace fathom::lab::expert_dispatch_gpu
