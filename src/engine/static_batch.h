// The plain way to answer many prompts: all of them at once, greedily, until the last one ends. Nobody joins
// on the way; who is finished is left out of the steps that follow.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/buffer.h"
#include "core/thread_pool.h"
#include "model/checkpoint.h"
#include "model/gpt_oss.h"
#include "model/kv_cache.h"

namespace fathom::engine {

class StaticBatch {
 public:
  // For so many sequences of so many tokens each, prompt and answer. `checkpoint` and `threads` must outlive
  // it.
  StaticBatch(const model::Checkpoint& checkpoint, int64_t sequences, int64_t context, ThreadPool& threads);

  // The answer to each prompt, the token that ended it included; an answer that runs out of context ends
  // there. Prompts have at least one token, and fewer than `context`.
  std::vector<std::vector<model::TokenId>> greedy(std::span<const std::vector<model::TokenId>> prompts);

  // How many tokens each expert has had so far, [layers, E].
  View<const int64_t, 2> expert_load() const { return model_.expert_load(); }

 private:
  const model::Checkpoint& checkpoint_;
  int64_t sequences_, context_, pages_, rows_;  // pages of a sequence, rows of a step
  model::GptOss model_;
  model::KvCache kv_;
  Buffer<float> logits_;
};

}  // namespace fathom::engine
