#include "lab/peer_ranks.h"

#include "core/expect.h"
#include "cuda/peer_access.h"
#include "cuda/stream_signal.h"
#include "lab/problem.h"

namespace fathom::lab {

PeerRanks::PeerRanks(const Rank& me, const std::vector<void*>& memory, int signals)
    : rank_(me.rank()), signals_(signals) {
  std::vector<DeviceId> devices;
  for (int r = 0; r < me.size(); ++r) devices.push_back({r});
  if (const Status can = can_access_peers(devices); !can)
    throw Unavailable("needs_feature", can.error().message);
  if (me.rank() == 0) enable_peer_access(devices);
  me.barrier();
  own_ = {*me.device(), int64_t{me.size()} * signals};
  me.device()->set_words(own_.data(), own_.bytes(), 0);
  const size_t count = memory.size() + 1;  // and the signals' address
  FATHOM_EXPECT(me.shared().size() >= static_cast<size_t>(me.size()) * count * sizeof(void*),
                "the group's shared memory has no room for all ranks' addresses");
  void** const all  = reinterpret_cast<void**>(me.shared().data());
  void** const mine = all + static_cast<size_t>(me.rank()) * count;
  for (size_t i = 0; i < memory.size(); ++i) mine[i] = memory[i];
  mine[memory.size()] = own_.data();
  me.barrier();  // all have said where
  for (int r = 0; r < me.size(); ++r) {
    void** const theirs = all + static_cast<size_t>(r) * count;
    memory_.emplace_back(theirs, theirs + memory.size());
    of_.push_back(static_cast<uint32_t*>(theirs[memory.size()]));
  }
  me.barrier();  // all have read it
}

void PeerRanks::signal(int to, int i, uint32_t value, StreamRef stream) const {
  fathom::signal(stream, of_[static_cast<size_t>(to)] + rank_ * signals_ + i, value);
}
void PeerRanks::wait(int from, int i, uint32_t value, StreamRef stream) const {
  wait_for_signal(stream, own_.data() + from * signals_ + i, value);
}

}  // namespace fathom::lab
