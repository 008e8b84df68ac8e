// A rank's backward pass, and its sums over ranks by NCCL.
#pragma once

#include <memory>
#include <optional>

#include "cuda/cublaslt_matmul.h"
#include "cuda/nccl.h"
#include "gradients.h"

namespace fathom::lab::gradient_buckets_gpu {

class Backward {
 public:
  // By all ranks at the same time. Throws Unavailable where a library is missing.
  Backward(const Gradients& p, const Rank& me);

  // Enqueues the gradient of layer l.
  void layer(const Gradients& p, int64_t l, StreamRef stream) const;
  // Enqueues the sum of the gradients of layers [begin, end), in place.
  void sum(const Gradients& p, int64_t begin, int64_t end, StreamRef stream) const;
  void sum_nonces(const Gradients& p, StreamRef stream) const;

 private:
  std::shared_ptr<const NcclCommunicator> communicator_;
  std::optional<LtMatmul> matmul_;  // none where nothing is to be multiplied
};

// The backward pass, and on a second stream the sums of pieces of at least so many bytes, each as soon as its
// layers are done. The last piece takes what is left.
Call overlapped(const Gradients& p, Context& context, int64_t least_bytes);

}  // namespace fathom::lab::gradient_buckets_gpu
