#include "peer_memory.h"

#include "cuda/peer_access.h"

namespace fathom::lab::all_reduce_rmsnorm_gpu {

PeerMemory peer_memory(const Rank& me, int64_t bytes) {
  std::vector<DeviceId> devices;
  for (int r = 0; r < me.size(); ++r) devices.push_back({r});
  if (const Status can = can_access_peers(devices); !can)
    throw Unavailable("needs_feature", can.error().message);
  if (me.rank() == 0) enable_peer_access(devices);
  me.barrier();
  PeerMemory memory{.own = {*me.device(), bytes}, .of = {}};
  me.device()->set_words(memory.own.data(), memory.own.bytes(), 0);
  auto* addresses      = reinterpret_cast<std::byte**>(me.shared().data());
  addresses[me.rank()] = memory.own.data();
  me.barrier();  // all have said where
  memory.of.assign(addresses, addresses + me.size());
  me.barrier();  // all have read it
  return memory;
}

}  // namespace fathom::lab::all_reduce_rmsnorm_gpu
