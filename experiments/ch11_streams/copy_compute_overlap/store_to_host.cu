// out = leaky integrator of in        n numbers from the host and back, fp32
//
// link    4 n to the device and 4 n back, which the link carries at the same time
// flops   2 n steps
// limit   the link, one way. H200: PCIe, some 55 GB/s; 128 MiB take 2.44 ms, the 1792 steps on them 2.1 ms
// idea    an engine copies in, and the kernel stores its results in the host's memory itself: the way back
//         needs no copy, whose start would wait for a kernel's end
#include <memory>
#include <vector>

#include "chunk.cuh"
#include "experiments/ch11_streams/side_streams.h"

namespace fathom::lab::copy_compute_overlap {
namespace {

struct Engines {
  SideStreams streams{2};
  std::vector<Event> arrived;  // of each chunk

  explicit Engines(int64_t chunks) {
    for (int64_t c = 0; c < chunks; ++c) arrived.emplace_back(Event::Timing::off);
  }
};

}  // namespace

Call store_to_host(const Offload& of, StreamRef) {
  return [engines = std::make_shared<const Engines>(chunks(of))](const Offload& p, StreamRef stream) {
    const auto& [streams, arrived] = *engines;
    const StreamRef in = streams[0], compute = streams[1];
    streams.fork(stream);
    for (int64_t c = 0; c < chunks(p); ++c) {
      const auto at    = static_cast<size_t>(c);
      const Chunk part = chunk(p, c);
      part.copy_in(p, p.pinned_in, in);
      arrived[at].record(in);
      arrived[at].wait_on(compute);
      leaky_integrator::integrate(p.device_in.data() + part.first, p.out.data() + part.first, part.count,
                                  p.steps, compute);
    }
    streams.join(stream);
  };
}

}  // namespace fathom::lab::copy_compute_overlap
