// From the rows of an entry that sample to its tokens: which drafts were right, and what comes after them.
#pragma once

#include <cstdint>
#include <span>

#include "core/thread_pool.h"
#include "engine/model_runner.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"

namespace fathom::engine {

// Each row's token is chosen as if there were no drafts, from what it would be chosen from without them: a
// draft is right where it is that token. That is rejection sampling for a draft without a distribution
// (accept with the token's probability, else choose among the others), and gives the very tokens of plain
// decoding.

// An entry, the logits [1 + drafts, V] of its rows, and where its tokens go.
struct RowsToChoose {
  const StepEntry* entry;
  const float* logits;
  StepOutput* output;
};

// By as many samplers as there are threads.
void choose_from_rows(std::span<const RowsToChoose> asking, int64_t vocab_size, ThreadPool& threads,
                      std::span<Sampler> samplers);

// Those that were chosen elsewhere: one a row, -1 where there was no distribution.
void take_chosen(const StepEntry& entry, std::span<const model::TokenId> chosen, StepOutput& output);

}  // namespace fathom::engine
