#include "receive_buffers.h"

#include <vector>

#include "cuda/device_buffer.h"
#include "cuda/peer_access.h"
#include "step_graph.h"

namespace fathom::lab::all_reduce_gpu {
namespace {

struct Receiver {
  DeviceBuffer<std::byte> memory;
  DeviceBuffer<int32_t> pass;  // not of the arena, which is overwritten between samples
  kernels::Peers peers;
};

std::shared_ptr<const Receiver> receiver_of(const Sums& p, const Rank& me) {
  std::vector<DeviceId> devices;
  for (int r = 0; r < me.size(); ++r) devices.push_back({r});
  if (const Status can = can_access_peers(devices); !can)
    throw Unavailable("needs_feature", can.error().message);
  if (me.rank() == 0) enable_peer_access(devices);
  me.barrier();
  const auto made    = std::make_shared<Receiver>();
  made->peers.rank   = me.rank();
  made->peers.layout = {.ranks = me.size(), .max_rows = p.in.extent(0) + 1, .width = kWidth};
  made->memory       = {*me.device(), made->peers.layout.bytes()};
  made->pass         = {*me.device(), 1};
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

Call all_reduce_by(kernels::AllReduceProtocol protocol, const Sums& p, Context& context) {
  return captured(
      p, context,
      [protocol, receiver = receiver_of(p, *context.rank)](View<const float, 2> part, View<float, 2> x,
                                                           int index, StreamRef stream) {
        if (index == 0) count(receiver->pass.view(), stream);
        kernels::all_reduce_add(
            View<const float, 3>(part.data(), {part.extent(0), 1, part.extent(1)}),
            View<const int32_t, 2>(nullptr, {0, 0}), receiver->peers,
            {.pass = View<const int32_t, 1>(receiver->pass.view()), .index = index, .count = kSums + 2}, x,
            protocol, stream);
      });
}

}  // namespace fathom::lab::all_reduce_gpu
