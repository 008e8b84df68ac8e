// NCCL, opened at the first use: nothing links it, and its header is not needed. Only builds with CUDA have
// this.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "cuda/stream.h"

struct ncclComm;

namespace fathom {

// What all ranks of a communicator share (ncclUniqueId).
struct NcclId {
  std::array<char, 128> bytes;
};

// Settings of a communicator (ncclConfig_t). -1: NCCL chooses, or its environment does.
struct NcclSettings {
  int cga_cluster = -1;  // thread blocks of a cluster, 0 to 8
  int max_ctas    = -1;  // thread blocks of a collective's kernel, each a channel
};

// The settings as NCCL takes them. NCCL reads `size` bytes of it and has defaults for what later versions
// added.
struct NcclConfig {
  size_t size                     = sizeof(NcclConfig);
  unsigned magic                  = 0xcafebeef;
  unsigned version                = 21700;  // 2.17.0, the first with all of these
  int blocking                    = kUndefined;
  int cga_cluster                 = kUndefined;
  int min_ctas                    = kUndefined;
  int max_ctas                    = kUndefined;
  const char* network             = nullptr;
  static constexpr int kUndefined = -2147483647 - 1;
};

struct Nccl {
  std::string path;  // where the library was found

  int (*get_unique_id)(NcclId*)                                                               = nullptr;
  int (*comm_init_rank)(ncclComm**, int ranks, NcclId id, int rank)                           = nullptr;
  int (*comm_init_rank_config)(ncclComm**, int ranks, NcclId id, int rank, NcclConfig*)       = nullptr;
  int (*comm_destroy)(ncclComm*)                                                              = nullptr;
  int (*all_reduce)(const void* from, void* to, size_t count, int type, int op, ncclComm*,
                    StreamRef)                                                                = nullptr;
  int (*all_gather)(const void* from, void* to, size_t count, int type, ncclComm*, StreamRef) = nullptr;
  int (*group_start)()                                                                        = nullptr;
  int (*group_end)()                                                                          = nullptr;
  const char* (*get_error_string)(int)                                                        = nullptr;
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
  NcclCommunicator(const NcclId& id, int rank, int ranks, const NcclSettings& settings = {});
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&)            = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  // to(i) = the sum of all ranks' from(i), fp32.
  void all_reduce(const float* from, float* to, int64_t count, StreamRef stream) const;
  // `to` has the bytes of rank 0, then those of rank 1, and so on. In place: `from` lies where they go.
  void all_gather(const void* from, void* to, int64_t bytes, StreamRef stream) const;

 private:
  ncclComm* communicator_ = nullptr;
};

// What `collectives` enqueues on one stream becomes one launch.
void nccl_group(const std::function<void()>& collectives);

}  // namespace fathom
