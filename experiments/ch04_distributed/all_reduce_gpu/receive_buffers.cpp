#include "receive_buffers.h"

#include <vector>

#include "cuda/peer_access.h"

namespace fathom::lab::all_reduce_gpu {

std::shared_ptr<const ReceiveBuffers> receive_buffers(const Rank& me, int64_t bytes) {
  std::vector<DeviceId> devices;
  for (int r = 0; r < me.size(); ++r) devices.push_back({r});
  if (const Status can = can_access_peers(devices); !can)
    throw Unavailable("needs_feature", can.error().message);
  if (me.rank() == 0) enable_peer_access(devices);
  me.barrier();
  const auto made = std::make_shared<ReceiveBuffers>();
  made->own       = {*me.device(), bytes};
  made->pass      = {*me.device(), 1};
  me.device()->set_words(made->own.data(), made->own.bytes(), 0);
  me.device()->set_words(made->pass.data(), made->pass.bytes(), 0);
  auto* addresses      = reinterpret_cast<std::byte**>(me.shared().data());
  addresses[me.rank()] = made->own.data();
  me.barrier();  // all have said where
  for (int r = 0; r < me.size(); ++r) made->of_ranks[static_cast<size_t>(r)] = addresses[r];
  me.barrier();  // all have read it
  return made;
}

}  // namespace fathom::lab::all_reduce_gpu
