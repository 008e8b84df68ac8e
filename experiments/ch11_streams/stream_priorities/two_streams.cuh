// The chain in a stream of its own.
#pragma once

#include <memory>

#include "enqueue.cuh"
#include "experiments/ch11_streams/side_streams.h"

namespace fathom::lab::stream_priorities {

inline Call two_streams(SideStreams::Priority of_chain) {
  return [side = std::make_shared<const SideStreams>(1, of_chain)](const Flood& p, StreamRef stream) {
    side->fork(stream);
    enqueue_flood(p, stream);
    enqueue_chain(p, (*side)[0]);
    side->join(stream);
  };
}

}  // namespace fathom::lab::stream_priorities
