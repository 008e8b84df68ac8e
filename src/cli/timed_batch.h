// One batch of prompts, submitted at once and decoded to the end, for `fathom bench latency`.
#pragma once

#include <cstdint>

#include "engine/engine.h"

namespace fathom::cli {

struct BatchShape {
  // Tokens of each sequence; output_len counts those after the first.
  int64_t batch = 1, input_len = 1, output_len = 0;
};

// Time stamps of a batch.
struct BatchTimes {
  engine::TimePoint start;  // all prompts submitted, before the first step
  engine::TimePoint begun;  // every sequence has its first token
  engine::TimePoint last;   // the last step in which every sequence got a token
  int64_t steps = 0;        // from `begun` to `last`

  double ttft_s() const;
  double tpot_s() const;  // only where steps > 0
};

// Prompts are random tokens: repeated tokens would be routed to the same experts. Answers are sampled at
// temperature 1 for the same reason. Throws UsageError if the engine rejects a request, or if the first
// sequence ends before the last one starts.
BatchTimes time_batch(engine::Engine& engine, const BatchShape& shape, uint64_t seed);

}  // namespace fathom::cli
