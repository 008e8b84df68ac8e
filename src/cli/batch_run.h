// One batch of prompts, given to an engine at once and answered to the end: what `fathom bench latency`
// times.
#pragma once

#include <cstdint>

#include "engine/engine.h"

namespace fathom::cli {

struct BatchShape {
  int64_t batch = 1, input_len = 1, output_len = 0;  // tokens of each: read, and decoded after the first
};

// When it came how far.
struct BatchRun {
  engine::TimePoint start;  // the prompts were submitted, all before a step
  engine::TimePoint begun;  // every sequence had its first token
  engine::TimePoint last;   // the last token that all of them were still there for
  int64_t steps = 0;        // from `begun` to `last`, each of which brought every sequence a token

  double ttft_s() const;
  double tpot_s() const;  // only where steps > 0
};

// Tokens at random: a fixed or repeated one would visit the same experts again and again. The answers are
// drawn from the model's distribution, for the same reason. Throws UsageError where the engine refuses, or
// where the first sequence ends before the last begins.
BatchRun run_batch(engine::Engine& engine, const BatchShape& shape, uint64_t seed);

}  // namespace fathom::cli
