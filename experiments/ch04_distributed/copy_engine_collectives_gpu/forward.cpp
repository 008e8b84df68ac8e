#include "forward.h"

#include <cuda_runtime.h>

#include <array>
#include <map>

#include "core/expect.h"
#include "cuda/check.h"
#include "cuda/cublas.h"
#include "cuda/event.h"
#include "cuda/side_stream.h"
#include "lab/peer_ranks.h"

namespace fathom::lab::copy_engine_collectives_gpu {
namespace {

// A second stream, whose kernels are placed before the products' thread blocks that wait: a gather that
// starts late is late for all that follows. It begins when `stream` gets there, and `stream` ends with it.
struct Side {
  SideStream stream{SideStream::Priority::first};
  Event begins{Event::Timing::off}, ends{Event::Timing::off};
  std::array<Event, kLayers> gathered = {Event(Event::Timing::off), Event(Event::Timing::off),
                                         Event(Event::Timing::off), Event(Event::Timing::off)};

  void begin(StreamRef main) const {
    begins.record(main);
    begins.wait_on(stream.get());
  }
  void end(StreamRef main) const {
    ends.record(stream.get());
    ends.wait_on(main);
  }
};

// Signals of a rank to another one: a layer's rows are there, and this one: the rank has begun its step.
constexpr int kBegun = kLayers, kSignals = kLayers + 1;

}  // namespace

Products::Products(const ShardedLayers& p) {
  if (!cublas()) throw Unavailable("needs_library", why_no_cublas());
  if (p.y.size() == 0) return;
  matmul_.emplace(DType::bf16, DType::bf16, false, p.y.extent(1), p.y.extent(2), p.x.extent(1));
  FATHOM_EXPECT(static_cast<int64_t>(matmul_->workspace_bytes()) <= p.scratch.bytes(),
                "cuBLASLt wants more than the 32 MiB it was allowed");
}

void Products::layer(const ShardedLayers& p, int64_t l, StreamRef stream) const {
  if (!matmul_) return;
  matmul_->run(p.x.data(), &p.weights(l, 0, 0), &p.y(l, 0, 0), p.scratch.data(), stream);
}

// A rank is a thread. To make a communicator takes most of a second.
std::shared_ptr<const NcclCommunicator> communicator_of(const Rank& me, int max_ctas) {
  thread_local std::map<int, std::shared_ptr<const NcclCommunicator>> made;
  std::shared_ptr<const NcclCommunicator>& mine = made[max_ctas];
  if (mine) return mine;
  if (!nccl()) throw Unavailable("needs_library", why_no_nccl());
  auto* id = reinterpret_cast<NcclId*>(me.shared().data());
  if (me.rank() == 0) *id = make_nccl_id();  // which all join by
  me.barrier();
  return mine = std::make_shared<const NcclCommunicator>(*id, me.rank(), me.size(),
                                                         NcclSettings{.max_ctas = max_ctas});
}

void gather_by_nccl(const NcclCommunicator& communicator, const ShardedLayers& p, int64_t l,
                    StreamRef stream) {
  nccl_group([&] {
    communicator.all_gather(p.rows_of(l, p.rank.rank()), p.rows_of(l, 0), p.shard_bytes(), stream);
    if (l + 1 < kLayers) return;
    communicator.all_gather(&p.nonces(p.rank.rank(), 0), p.nonces.data(), p.nonce_bytes(), stream);
  });
}

Call beside_nccl(const ShardedLayers& p, Context& context, int max_ctas) {
  const auto communicator = communicator_of(*context.rank, max_ctas);
  const auto products     = std::make_shared<Products>(p);
  const auto side         = std::make_shared<Side>();
  return [=](const ShardedLayers& q, Context& c) {
    side->begin(c.stream);
    for (int64_t l = 0; l < kLayers; ++l) {
      gather_by_nccl(*communicator, q, l, side->stream.get());
      side->gathered[static_cast<size_t>(l)].record(side->stream.get());
    }
    for (int64_t l = 0; l < kLayers; ++l) {
      side->gathered[static_cast<size_t>(l)].wait_on(c.stream);
      products->layer(q, l, c.stream);
    }
    side->end(c.stream);
  };
}

Call beside_pushes(const ShardedLayers& p, Context& context, Push push) {
  const Rank& me = *context.rank;
  struct Kept {
    PeerRanks peers;
    Products products;
    Side side;
    uint32_t step = 0;
  };
  const auto kept =
      std::shared_ptr<Kept>(new Kept{.peers    = PeerRanks(me, {p.weights.data(), p.nonces.data()}, kSignals),
                                     .products = Products(p),
                                     .side     = {}});
  // Loads the kernels: CUDA may wait for this GPU before it loads one, and so for the other rank.
  const int device = me.device()->id().ordinal;
  push(reinterpret_cast<std::byte*>(p.rows_of(0, 0)), device, reinterpret_cast<std::byte*>(p.rows_of(0, 1)),
       device, p.shard_bytes(), context.stream);
  kept->products.layer(p, 0, context.stream);
  me.device()->synchronize();
  me.barrier();
  return [kept, push = std::move(push)](const ShardedLayers& q, Context& c) {
    const int own          = c.rank->rank();
    const PeerRanks& peers = kept->peers;
    const Side& side       = kept->side;
    FATHOM_EXPECT(q.weights.data() == peers.address<bf16>(own, 0),
                  "ranks push into the memory that they were told of");
    const StreamRef stream = side.stream.get();
    const uint32_t step    = ++kept->step;
    const auto for_others  = [&](auto&& f) {
      for (int r = 1; r < kRanks; ++r) f((own + r) % kRanks);
    };
    // Nobody writes into a rank's weights while it still computes with those of the step before.
    side.begin(c.stream);
    for_others([&](int to) { peers.signal(to, kBegun, step, stream); });
    for_others([&](int from) { peers.wait(from, kBegun, step, stream); });
    const auto push_to = [&](int rank, const void* from, void* to, int64_t bytes) {
      push(static_cast<const std::byte*>(from), own, static_cast<std::byte*>(to), rank, bytes, stream);
    };
    for (int l = 0; l < kLayers; ++l)
      for_others([&](int to) {
        const bf16* const rows = q.rows_of(l, own);
        push_to(to, rows, peers.address<bf16>(to, 0) + (rows - q.weights.data()), q.shard_bytes());
        if (l + 1 == kLayers)
          push_to(to, &q.nonces(own, 0), peers.address<uint64_t>(to, 1) + 2 * own, q.nonce_bytes());
        peers.signal(to, l, step, stream);
      });
    for (int l = 0; l < kLayers; ++l) {
      for_others([&](int from) { peers.wait(from, l, step, c.stream); });
      kept->products.layer(q, l, c.stream);
    }
    side.end(c.stream);
  };
}

void place_own_rows(const ShardedLayers& p, StreamRef stream) {
  for (int64_t l = 0; l < kLayers; ++l)
    FATHOM_CUDA(cudaMemcpyAsync(p.rows_of(l, p.rank.rank()), &p.shards(l, 0, 0),
                                static_cast<size_t>(p.shard_bytes()), cudaMemcpyDeviceToDevice, stream));
}

}  // namespace fathom::lab::copy_engine_collectives_gpu
