// What a worker's connection to a KV cache pool counts, for /metrics.
#pragma once

#include <cstdint>

namespace fathom::serve {

struct KvConnectorStats {
  bool up = false;  // the pool answers
  // Counters since the start.
  // Lookups, by how they ended: blocks were taken from the pool; it had none; it had none that this worker
  // lacks, or too few; it did not answer in time, or there was no room.
  int64_t loads = 0, misses = 0, unneeded = 0, failures = 0;
  int64_t loaded_blocks = 0, loaded_bytes = 0;
  int64_t stored_prompts = 0, stored_blocks = 0, stored_bytes = 0;  // prompts: also where the pool had all
  int64_t dropped = 0;  // prompts whose blocks were not written, because too many waited or the pool was away
  int64_t outages = 0;  // times that the pool did not answer, or restarted
};

}  // namespace fathom::serve
