// What one rank of several holds and computes of a model.
//
// Tensor parallel (Megatron-LM, arXiv 1909.08053): of every layer a rank has some of the attention heads,
// with their key-value heads and the columns of the output projection that read them, and of each expert some
// of the intermediate columns; each layer's two sums over ranks give all ranks the same activations. Expert
// parallel: a rank has whole experts, and adds nothing for tokens that go to others'. Both: a rank has the
// logits of a part of the vocabulary. Norms, router and embedding are whole on every rank.
//
// Pipeline parallel (GPipe, arXiv 1811.06965): a stage has whole layers, which follow those of the stage
// before. Its ranks cut them as above. The first stage embeds tokens, the last one has the logits.
#pragma once

#include <cstdint>

#include "core/result.h"
#include "model/config.h"
#include "model/weights.h"

namespace fathom::model {

struct ShardOptions {
  int64_t ranks        = 1;  // of a stage
  int64_t stages       = 1;
  bool expert_parallel = false;
  // With expert_parallel: a rank has views of all experts, and a table says which ones it computes
  // (model/expert_table.h), so that experts can move between ranks.
  bool movable_experts = false;

  int64_t all_ranks() const { return stages * ranks; }
  int64_t stage_of(int64_t rank) const { return rank / ranks; }
};

struct Shard {
  Config config;    // with the rank's numbers of heads, and the width of its parts of the experts
  Weights weights;  // views into the model's, whose memory must outlive them
};

// What does not divide, with the flag and the numbers; ok for one rank. Every stage needs a layer. Query
// heads, the vocabulary and, with expert_parallel, experts must be multiples of the ranks. Key-value heads
// must be so too, or divide the ranks, which then hold a copy of one each. Else the experts' columns are
// dealt in blocks of 32, as evenly as possible, and each rank needs one.
Status can_shard(const Config& config, const ShardOptions& options);

// The config of the part of rank `rank` of all_ranks(): those of a stage follow each other. Precondition:
// can_shard().
Config shard_config(const Config& config, const ShardOptions& options, int64_t rank);

// The part of rank `rank`, the whole model where there is one rank. Precondition: can_shard().
Shard shard_of(const Config& config, const Weights& weights, const ShardOptions& options, int64_t rank);

}  // namespace fathom::model
