#include "nccl_messages.h"

#include <fmt/format.h>

#include "core/expect.h"
#include "cuda/library.h"

namespace fathom::lab::expert_dispatch_gpu {
namespace {

// Of nccl.h, version 2, whose ABI keeps them.
constexpr int kMajor = 2, kBytes = 1;  // ncclUint8

struct Messages {
  int (*group_start)()                                                                  = nullptr;
  int (*group_end)()                                                                    = nullptr;
  int (*send)(const void* from, size_t count, int type, int peer, ncclComm*, StreamRef) = nullptr;
  int (*receive)(void* to, size_t count, int type, int peer, ncclComm*, StreamRef)      = nullptr;
  bool complete() const { return group_start && group_end && send && receive; }
};

const Messages& messages() {
  static const Messages table = [] {
    Messages found;
    const auto library = open_cuda_library("nccl", kMajor);
    if (!library) return found;
    found.group_start = library->function<int (*)()>("ncclGroupStart");
    found.group_end   = library->function<int (*)()>("ncclGroupEnd");
    found.send        = library->function<decltype(found.send)>("ncclSend");
    found.receive     = library->function<decltype(found.receive)>("ncclRecv");
    return found;
  }();
  return table;
}

void check(int status, const char* call) {
  if (status != 0) throw SystemError(fmt::format("{}: {}", call, nccl()->get_error_string(status)));
}

}  // namespace

std::string why_no_messages() {
  if (!nccl()) return why_no_nccl();
  return messages().complete() ? "" : nccl()->path + " has no ncclSend, ncclRecv or groups";
}

NcclMessages::NcclMessages(const NcclId& id, int rank, int ranks) : ranks_(ranks) {
  check(nccl()->comm_init_rank(&communicator_, ranks, id, rank), "ncclCommInitRank");
}
NcclMessages::~NcclMessages() { (void)nccl()->comm_destroy(communicator_); }

void NcclMessages::all_to_all(std::initializer_list<Piece> pieces, StreamRef stream) const {
  check(messages().group_start(), "ncclGroupStart");
  for (const Piece& piece : pieces)
    for (int r = 0; r < ranks_; ++r) {
      const auto count = static_cast<size_t>(piece.bytes);
      check(messages().send(static_cast<const std::byte*>(piece.from) + r * piece.from_step, count, kBytes, r,
                            communicator_, stream),
            "ncclSend");
      check(messages().receive(static_cast<std::byte*>(piece.to) + r * piece.to_step, count, kBytes, r,
                               communicator_, stream),
            "ncclRecv");
    }
  check(messages().group_end(), "ncclGroupEnd");
}

}  // namespace fathom::lab::expert_dispatch_gpu
