// out(i) = the largest of q(i) k(j) over all keys j: the nearest key of each query by inner product, as in
// vector quantisation, k-means and late-interaction retrieval (MaxSim). 128 dimensions, bf16, sums in fp32.
#pragma once

#include "core/dtype.h"
#include "core/view.h"
#include "cuda/stream.h"
#include "lab/problem_fwd.h"

namespace fathom::lab::cluster_multicast {

struct Similarity {
  static constexpr int kDims = 128;

  View<const bf16, 2> queries;  // x kDims
  View<const bf16, 2> keys;     // x kDims, at least one
  View<float, 1> out;

  Similarity(const Point& at, Arena& arena);
  Cost cost() const;
  Sum expected(int64_t i) const;
};

FATHOM_CUDA_LAUNCHER void each_for_itself(const Similarity& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void larger_tile(const Similarity& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void multicast_2(const Similarity& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void multicast_4(const Similarity& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void multicast_2_larger_tile(const Similarity& p, StreamRef stream);

}  // namespace fathom::lab::cluster_multicast
