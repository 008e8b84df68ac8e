// NCCL, opened at the first use: nothing links it, and its header is not needed. Only builds with CUDA have
// this.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "cuda/stream.h"

struct ncclComm;

namespace fathom {

// What all ranks of a communicator share (ncclUniqueId).
struct NcclId {
  std::array<char, 128> bytes;
};

struct Nccl {
  std::string path;  // where the library was found

  int (*get_unique_id)(NcclId*)                                     = nullptr;
  int (*comm_init_rank)(ncclComm**, int ranks, NcclId id, int rank) = nullptr;
  int (*comm_destroy)(ncclComm*)                                    = nullptr;
  int (*all_reduce)(const void* from, void* to, size_t count, int type, int op, ncclComm*,
                    StreamRef)                                      = nullptr;
  const char* (*get_error_string)(int)                              = nullptr;
};

// Opened at the first call. Null where the library is missing or lacks one of these functions; why_no_nccl()
// then says why in a sentence.
const Nccl* nccl();
std::string why_no_nccl();

NcclId make_nccl_id();

// Of the current GPU. Ranks make theirs at the same time, each in a thread or process of its own. All throw
// SystemError with NCCL's text.
class NcclCommunicator {
 public:
  NcclCommunicator(const NcclId& id, int rank, int ranks);
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&)            = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  // to(i) = the sum of all ranks' from(i), fp32.
  void all_reduce(const float* from, float* to, int64_t count, StreamRef stream) const;

 private:
  ncclComm* communicator_ = nullptr;
};

}  // namespace fathom
