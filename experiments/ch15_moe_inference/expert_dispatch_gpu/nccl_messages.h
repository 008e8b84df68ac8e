// NCCL's messages between ranks (ncclSend and ncclRecv in a group), which are its all-to-all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "cuda/nccl.h"
#include "cuda/stream.h"

namespace fathom::lab::expert_dispatch_gpu {

class NcclMessages {
 public:
  // Of the current GPU. Ranks make theirs at the same time. All throw SystemError with NCCL's text.
  // Precondition: nccl() and why_no_messages() is empty.
  NcclMessages(const NcclId& id, int rank, int ranks);
  ~NcclMessages();
  NcclMessages(const NcclMessages&)            = delete;
  NcclMessages& operator=(const NcclMessages&) = delete;

  // Rank r gets `bytes` from `from` + r from_step, and its own are put at `to` + r to_step.
  struct Piece {
    const void* from;
    int64_t from_step;
    void* to;
    int64_t to_step, bytes;
  };
  // All pieces in one group: one launch.
  void all_to_all(std::initializer_list<Piece> pieces, StreamRef stream) const;

 private:
  ncclComm* communicator_ = nullptr;
  int ranks_;
};

// Why this NCCL has no messages, in a sentence; empty where it has them.
std::string why_no_messages();

}  // namespace fathom::lab::expert_dispatch_gpu
