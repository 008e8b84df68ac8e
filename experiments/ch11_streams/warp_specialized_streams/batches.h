// RMSNorm of several small batches of rows, each a launch of its own, as of requests that arrive one by one:
//   out(b, r, i) = in(b, r, i) / sqrt(mean_i in(b, r, .)^2 + epsilon)        fp32
// A row belongs to a cluster of two CTAs, half to each; a cluster takes kRowsOfCluster rows of a batch, one
// after the other.
#pragma once

#include <functional>

#include "core/view.h"
#include "cuda/stream.h"
#include "lab/problem_fwd.h"

namespace fathom::lab::warp_specialized_streams {

inline constexpr float kEpsilon     = 1e-5f;
inline constexpr int kRowsOfCluster = 8;
inline constexpr int64_t kMaxWidth  = 16384;  // four stages of half a row take 128 KiB of shared memory
inline constexpr int kStreams       = 4;

struct Batches {
  View<const float, 3> in;  // [batches, rows, width], the width a multiple of 8
  View<float, 3> out;

  Batches(const Point& at, Arena& arena);
  int64_t batches() const { return in.extent(0); }
  int64_t rows() const { return in.extent(1); }
  int64_t width() const { return in.extent(2); }
  Cost cost() const;
  void check(Checker& checker) const;
};

FATHOM_CUDA_LAUNCHER void two_pipelines(const Batches& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void warp_roles(const Batches& p, StreamRef stream);

// Make the streams; the returned call is timed.
using Call = std::function<void(const Batches&, StreamRef)>;
FATHOM_CUDA_LAUNCHER Call two_pipelines_streams(const Batches&, StreamRef);
FATHOM_CUDA_LAUNCHER Call warp_roles_streams(const Batches&, StreamRef);

}  // namespace fathom::lab::warp_specialized_streams
