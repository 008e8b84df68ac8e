// What the variants share: the products, and the two ways to gather beside them.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>

#include "cuda/cublaslt_matmul.h"
#include "cuda/nccl.h"
#include "sharded_layers.h"

namespace fathom::lab::copy_engine_collectives_gpu {

class Products {
 public:
  // Throws Unavailable where cuBLASLt is missing.
  explicit Products(const ShardedLayers& p);
  void layer(const ShardedLayers& p, int64_t l, StreamRef stream) const;

 private:
  std::optional<LtMatmul> matmul_;  // none without tokens
};

// A communicator of all ranks with at most so many thread blocks in a kernel; -1: NCCL chooses. By all ranks
// at the same time.
std::shared_ptr<const NcclCommunicator> communicator_of(const Rank& me, int max_ctas);

// Enqueues NCCL's all-gather of a layer, and of the nonces with the last one.
void gather_by_nccl(const NcclCommunicator& communicator, const ShardedLayers& p, int64_t l,
                    StreamRef stream);

// All gathers by NCCL on a second stream, and each product when its weights are there.
Call beside_nccl(const ShardedLayers& p, Context& context, int max_ctas);

// Enqueues a copy into another GPU's memory. Addresses and bytes are multiples of 16.
using Push = std::function<void(const std::byte* from, int from_device, std::byte* to, int to_device,
                                int64_t bytes, StreamRef stream)>;

// All ranks push their rows into the others' memory on a second stream, and signal each layer; each product
// waits for its signals. Only `push` decides what moves the bytes.
Call beside_pushes(const ShardedLayers& p, Context& context, Push push);

}  // namespace fathom::lab::copy_engine_collectives_gpu
