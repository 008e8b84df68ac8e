// Verifies draft tokens: samples a token from each row of a sequence and accepts drafts up to the first that
// differs from the sampled token.
#pragma once

#include <cstdint>
#include <span>

#include "core/thread_pool.h"
#include "engine/model_runner.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"

namespace fathom::engine {

// Each row's token is sampled as if there were no drafts, with the random number that it would have without
// them. A draft is accepted where it equals that token. This is rejection sampling for a draft without a
// distribution (accept with the token's probability, else sample among the other tokens), and gives exactly
// the tokens of plain decoding.

// The logits [1 + drafts, V] of a scheduled sequence, and where its tokens go.
struct SequenceLogits {
  const ScheduledSequence* scheduled;
  const float* logits;
  SequenceOutput* output;
};

// Whether sampling changes a sequence's logits first, or reports them, so that all of them are needed.
// (Top-k, top-p and min-p need them too.)
bool needs_raw_logits(const ScheduledSequence& scheduled);

// Samples on all threads; one sampler for each.
void sample_and_verify(std::span<const SequenceLogits> batch, int64_t vocab_size, ThreadPool& threads,
                       std::span<Sampler> samplers);

// Verifies drafts against tokens sampled on the GPU: one a row, -1 where the logits were no distribution.
void verify_sampled(const ScheduledSequence& scheduled, std::span<const model::TokenId> sampled,
                    SequenceOutput& output);

}  // namespace fathom::engine
