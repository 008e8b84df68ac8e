// n numbers go from the host to the device, through the leaky integrator, and back. The host holds the same
// inputs twice, in pageable memory from malloc and in page-locked memory; each variant reads one of them.
#pragma once

#include <functional>

#include "core/view.h"
#include "cuda/stream.h"
#include "lab/problem_fwd.h"

namespace fathom::lab::copy_compute_overlap {

inline constexpr int64_t kChunk = 1 << 20;  // numbers: 4 MiB, 76 us on the link; as CTAs one wave of a H200

struct Offload {
  int64_t steps;
  View<const float, 1> pageable_in, pinned_in;
  View<float, 1> out;                    // page-locked
  View<float, 1> device_in, device_out;  // workspace

  Offload(const Point& at, Arena& arena);
  int64_t n() const { return out.size(); }
  Cost cost() const;
  Sum expected(int64_t i) const;
};

FATHOM_CUDA_LAUNCHER void blocking(const Offload& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void zero_copy(const Offload& p, StreamRef stream);

// Make the streams and events; the returned call is timed.
using Call = std::function<void(const Offload&, StreamRef)>;
FATHOM_CUDA_LAUNCHER Call pageable_streams(const Offload&, StreamRef);
FATHOM_CUDA_LAUNCHER Call stream_per_chunk(const Offload&, StreamRef);
FATHOM_CUDA_LAUNCHER Call stream_per_engine(const Offload& p, StreamRef);
FATHOM_CUDA_LAUNCHER Call store_to_host(const Offload& p, StreamRef);

}  // namespace fathom::lab::copy_compute_overlap
