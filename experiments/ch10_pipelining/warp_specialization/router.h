// The router of a Mixture-of-Experts layer: logits(t, e) = x(t) w(e), a skinny product in bf16 with sums in
// fp32. x is long and read once; w is small and read by every CTA. 128 experts. A CTA takes 64 tokens for
// each of num_consumer_groups warpgroups, and walks over the width in steps of 64 through num_buffers stages.
#pragma once

#include <functional>

#include "core/dtype.h"
#include "core/view.h"
#include "cuda/stream.h"
#include "lab/problem_fwd.h"

namespace fathom::lab::warp_specialization {

struct Router {
  static constexpr int kExperts = 128, kMaxGroups = 3, kMaxBuffers = 6;

  int64_t num_consumer_groups, num_buffers;
  View<const bf16, 2> x;       // tokens x width
  View<const bf16, 2> w;       // kExperts x width
  View<bf16, 2> out;           // tokens x kExperts
  View<uint8_t, 1> workspace;  // of the library

  Router(const Point& at, Arena& arena);
  Cost cost() const;
  Sum expected(int64_t t, int64_t e) const;
};

FATHOM_CUDA_LAUNCHER void single_buffer(const Router& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void multi_buffer(const Router& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void producer_consumer(const Router& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void loader_compute_storer(const Router& p, StreamRef stream);

// Plans the product; the returned call is timed.
using Call = std::function<void(const Router&, StreamRef)>;
FATHOM_CUDA_LAUNCHER Call library(const Router& p, StreamRef stream);

}  // namespace fathom::lab::warp_specialization
