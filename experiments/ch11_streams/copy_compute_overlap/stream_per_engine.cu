// out = leaky integrator of in        n numbers from the host and back, fp32
//
// link    4 n to the device and 4 n back, which the link carries at the same time
// flops   2 n steps
// limit   the link, one way. H200: PCIe, some 55 GB/s; 128 MiB take 2.44 ms, the 1792 steps on them 2.1 ms
// idea    a stream for each engine: one copies in, one computes, one copies out. Each gets its work in
//         order, and an event hands a chunk from one to the next, so no engine waits for a stream that
//         does more
#include <memory>
#include <vector>

#include "chunk.cuh"
#include "experiments/ch11_streams/side_streams.h"

namespace fathom::lab::copy_compute_overlap {
namespace {

struct Engines {
  SideStreams streams{3};
  std::vector<Event> arrived, computed;  // of each chunk

  explicit Engines(int64_t chunks) {
    for (int64_t c = 0; c < chunks; ++c) {
      arrived.emplace_back(Event::Timing::off);
      computed.emplace_back(Event::Timing::off);
    }
  }
};

}  // namespace

Call stream_per_engine(const Offload& of, StreamRef) {
  return [engines = std::make_shared<const Engines>(chunks(of))](const Offload& p, StreamRef stream) {
    const auto& [streams, arrived, computed] = *engines;
    const StreamRef in = streams[0], compute = streams[1], out = streams[2];
    streams.fork(stream);
    for (int64_t c = 0; c < chunks(p); ++c) {
      const auto at = static_cast<size_t>(c);
      chunk(p, c).copy_in(p, p.pinned_in, in);
      arrived[at].record(in);
      arrived[at].wait_on(compute);
      chunk(p, c).compute(p, compute);
      computed[at].record(compute);
      computed[at].wait_on(out);
      chunk(p, c).copy_out(p, out);
    }
    streams.join(stream);
  };
}

}  // namespace fathom::lab::copy_compute_overlap
