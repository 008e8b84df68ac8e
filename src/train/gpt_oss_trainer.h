// The loss of a gpt-oss model over a batch of sequences and its gradients, in fp32 on a CPU. The forward pass
// is model/gpt_oss.h's, without a cache and with what the backward pass needs kept, for each token and layer:
// 4 H + 2 (heads + kv heads) Dh + top_k (2I + H) numbers.
//
// Attention is computed a block of queries at a time and keeps the log-sum of its exponentials alone
// (FlashAttention's backward pass); experts are computed by groups of rows. The router learns through the
// weights of the experts that it chose; there is no balancing loss.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "core/thread_pool.h"
#include "model/config.h"
#include "train/lora.h"
#include "train/parameters.h"
#include "train/precision.h"

namespace fathom::train {

// Sequences one after another, without padding.
struct TokenBatch {
  std::span<const int32_t> tokens;     // [T]
  std::span<const int32_t> targets;    // [T]: the token that is to follow, or -1 where none counts
  std::span<const int64_t> first_row;  // [S + 1]: sequence s has rows first_row[s] .. first_row[s + 1]

  int64_t counted() const;  // targets
};

class GptOssTrainer {
 public:
  GptOssTrainer(const model::Config& config, const Recipe& recipe, uint64_t seed, ThreadPool& threads);
  ~GptOssTrainer();

  // What a step over so many tokens keeps for its backward pass, in all layers.
  static int64_t kept_bytes(const model::Config& config, int64_t tokens);

  // The mean loss of the batch's targets in nats, of one that has any.
  double loss(const Parameters& parameters, const TokenBatch& batch, const Lora* lora = nullptr);

  // The same, and adds the gradients of that mean. Null: they are frozen. With adapters, `parameters` are
  // usually frozen.
  double loss_and_gradients(const Parameters& parameters, const TokenBatch& batch, Parameters* gradients,
                            const Lora* lora = nullptr, Lora* lora_gradients = nullptr);

  // The next call draws what it would have drawn after so many more calls.
  void skip_steps(int64_t steps);

 private:
  class Pass;
  std::unique_ptr<Pass> pass_;
};

}  // namespace fathom::train
