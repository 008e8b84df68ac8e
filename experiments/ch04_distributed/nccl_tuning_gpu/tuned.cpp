#include <cuda_runtime.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>

#include "all_reduces.h"
#include "core/expect.h"
#include "cuda/check.h"
#include "cuda/graph.h"
#include "cuda/nccl.h"

namespace fathom::lab::nccl_tuning_gpu {
namespace {

// A variable of the environment, for as long as this lives. Null: as it is.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name), set_(value != nullptr) {
    if (!set_) return;
    if (const char* before = std::getenv(name)) before_ = before;
    (void)setenv(name, value, 1);
  }
  ~Variable() {
    if (!set_) return;
    if (before_)
      (void)setenv(name_, before_->c_str(), 1);
    else
      (void)unsetenv(name_);
  }
  Variable(const Variable&)            = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  bool set_;
  std::optional<std::string> before_;
};

using Communicator = std::shared_ptr<const NcclCommunicator>;

// NCCL reads NCCL_ALGO and NCCL_PROTO when it makes a communicator (its table of times for each size is made
// there), so one process has communicators of several settings. Rank 0 sets them, and the ranks' barriers
// keep every other rank from reading the environment meanwhile. They take a second to make and serve all
// points: a rank's thread ends with a point, so they are the process's.
Communicator communicator_of(const Rank& me, const Tuning& t) {
  using Key = std::tuple<int, std::string, std::string, int, int>;
  static std::mutex mutex;
  static auto& made  = *new std::map<Key, Communicator>;  // at exit CUDA may be gone before them
  const auto text    = [](const char* of) { return std::string(of ? of : ""); };
  Communicator& mine = [&]() -> Communicator& {
    const std::lock_guard lock(mutex);
    return made[{me.rank(), text(t.algorithm), text(t.protocol), t.cga_cluster, t.max_ctas}];
  }();
  if (mine) return mine;
  if (!nccl()) throw Unavailable("needs_library", why_no_nccl());
  auto* id = reinterpret_cast<NcclId*>(me.shared().data());
  std::optional<Variable> algorithm, protocol;
  if (me.rank() == 0) {
    *id = make_nccl_id();  // which all join by
    algorithm.emplace("NCCL_ALGO", t.algorithm);
    protocol.emplace("NCCL_PROTO", t.protocol);
  }
  me.barrier();
  mine = std::make_shared<const NcclCommunicator>(
      *id, me.rank(), me.size(), NcclSettings{.cga_cluster = t.cga_cluster, .max_ctas = t.max_ctas});
  me.barrier();  // all have read the environment
  return mine;
}

}  // namespace

Call tuned(const AllReduces& p, Context& context, const Tuning& tuning) {
  // What the graph uses outlives it.
  struct Captured {
    Communicator communicator;
    std::optional<CudaGraph> graph;
  };
  const auto kept = std::make_shared<Captured>(
      Captured{.communicator = communicator_of(*context.rank, tuning), .graph = {}});
  const auto sum = [&] {
    kept->communicator->all_reduce(p.message.data(), p.sums.data(), p.message.size(), context.stream);
  };
  // A kernel that waits for the other rank keeps that rank from freeing or allocating, where GPUs map each
  // other's memory: all are past that.
  context.rank->barrier();
  sum();  // NCCL makes its connections, which is not allowed during capture
  FATHOM_CUDA(cudaStreamSynchronize(context.stream));
  context.rank->barrier();  // the other ranks have done so too
  kept->graph.emplace(context.stream, [&] {
    for (int i = 0; i < kSums; ++i) sum();
  });
  return [kept, of = p.sums.data()](const AllReduces& q, Context& c) {
    FATHOM_EXPECT(q.sums.data() == of, "a graph is launched on the memory that it was captured with");
    kept->graph->launch(c.stream);
  };
}

void copy_behind_nonce(const AllReduces& p, StreamRef stream) {
  if (p.in.size() == 0) return;
  FATHOM_CUDA(cudaMemcpyAsync(p.message.data() + kNonce, p.in.data(), static_cast<size_t>(p.in.bytes()),
                              cudaMemcpyDeviceToDevice, stream));
}

}  // namespace fathom::lab::nccl_tuning_gpu
