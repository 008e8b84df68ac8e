// Independent tasks, each too small for the GPU: n numbers come from the host, go through the leaky
// integrator and return to the host.
#pragma once

#include <functional>

#include "core/view.h"
#include "cuda/stream.h"
#include "lab/problem_fwd.h"

namespace fathom::lab::concurrent_kernels {

struct Tasks {
  int64_t steps;
  View<const float, 2> in;               // page-locked, [tasks, n]
  View<float, 2> out;                    // page-locked
  View<float, 2> device_in, device_out;  // workspace

  Tasks(const Point& at, Arena& arena);
  int64_t count() const { return in.extent(0); }
  int64_t n() const { return in.extent(1); }
  Cost cost() const;
  Sum expected(int64_t task, int64_t i) const;
};

FATHOM_CUDA_LAUNCHER void one_stream(const Tasks& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void batched(const Tasks& p, StreamRef stream);

// Make that many streams; the returned call is timed.
using Call = std::function<void(const Tasks&, StreamRef)>;
FATHOM_CUDA_LAUNCHER Call streams_2(const Tasks&, StreamRef);
FATHOM_CUDA_LAUNCHER Call streams_4(const Tasks&, StreamRef);
FATHOM_CUDA_LAUNCHER Call streams_8(const Tasks&, StreamRef);
FATHOM_CUDA_LAUNCHER Call streams_16(const Tasks&, StreamRef);

}  // namespace fathom::lab::concurrent_kernels
