// Prefill in the harness's stream, decode in one beside it.
#pragma once

#include <memory>

#include "experiments/ch11_streams/side_streams.h"
#include "prefill.h"

namespace fathom::lab::prefill_beside_decode {

// Decode is enqueued first: both begin at the fork, and work that came first gets the first places.
inline Call beside(const Phases& p, SideStreams::Priority of_decode, int decode_blocks) {
  return [prefill = planned_prefill(p), side = std::make_shared<const SideStreams>(1, of_decode),
          decode_blocks](const Phases& q, StreamRef stream) {
    side->fork(stream);
    decode_rows(q, decode_blocks, (*side)[0]);
    prefill(q, stream);
    side->join(stream);
  };
}

}  // namespace fathom::lab::prefill_beside_decode
