// Chunks go to the streams in turn, each with its three steps.
#pragma once

#include <memory>

#include "chunk.cuh"
#include "experiments/ch11_streams/side_streams.h"

namespace fathom::lab::copy_compute_overlap {

// Three for the chunks that are copied in, computed and copied out at one time, and one more, so that a copy
// in need not wait for its stream's copy out.
inline constexpr int kStreams = 4;

inline Call round_robin(View<const float, 1> Offload::*in) {
  return [in, streams = std::make_shared<const SideStreams>(kStreams)](const Offload& p, StreamRef stream) {
    streams->fork(stream);
    for (int64_t c = 0; c < chunks(p); ++c) {
      const StreamRef side = (*streams)[c % kStreams];
      chunk(p, c).copy_in(p, p.*in, side);
      chunk(p, c).compute(p, side);
      chunk(p, c).copy_out(p, side);
    }
    streams->join(stream);
  };
}

}  // namespace fathom::lab::copy_compute_overlap
