// Some of a group's ranks as a group of their own (MPI_Comm_split, ncclCommSplit).
#pragma once

#include <vector>

#include "comm/group.h"

namespace fathom::comm {

// Its messages travel through the whole group's connections; nothing travels when one is made. Ranks of a
// sub-group are counted from 0, but a GroupError names a rank by its number in the whole group, which is
// broken from then on with all of its sub-groups.
class SubGroup final : public Group {
 public:
  // `ranks` of `whole`, this rank among them: ranks[r] is rank r of the sub-group, in the same order on all
  // of them. `whole` is used by the same thread and outlives the sub-group.
  SubGroup(Group& whole, std::vector<int> ranks);

  const std::vector<int>& ranks() const { return ranks_; }
  // What this rank has sent to the others so far, without headers.
  int64_t sent_bytes() const { return sent_bytes_; }

 private:
  void exchange(const Call& call, std::span<const Outgoing> outgoing,
                std::span<const Incoming> incoming) override;

  Group& whole_;
  std::vector<int> ranks_;
  int64_t sent_bytes_ = 0;
  std::vector<Outgoing> outgoing_;
  std::vector<Incoming> incoming_;
};

}  // namespace fathom::comm
