// Greedy decoding of one sequence, whose drafts are trees: several tokens may follow one, and the target
// judges all of them in one step. The engine drafts chains (engine/proposer.h); this is a decoder of its own,
// on the same model, drafter and paged attention.
//
// No kernel knows of trees. The KV cache has pages of one position, and each row of a step is a sequence of
// its own: its block table has the pages of the committed positions, of the row's ancestors and its own. So a
// row attends to its path alone; and the pages of an accepted path become those of the sequence, without a
// copy.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/thread_pool.h"
#include "model/checkpoint.h"
#include "model/eagle.h"
#include "model/gpt_oss.h"
#include "model/kv_cache.h"

namespace fathom::lab::tree_verification {

struct Shape {
  int64_t nodes = 0;  // of a draft, at most; 0: no drafts
  int64_t depth = 0;  // of its likeliest chain, at most Eagle::kAhead
  int64_t width = 1;  // tokens that may follow one
};

// A drafted token. Parents come before their children; the root, -1, is the last token of the text.
struct Node {
  model::TokenId token;
  int64_t parent;
  double probability;  // that the target chooses its whole path, by the drafter
};

// Of the drafter's places, the `nodes` tokens whose paths are the likeliest. Only the likeliest token of a
// place has children: the drafter's state follows that one.
std::vector<Node> tree_of(const std::vector<std::vector<model::Eagle::Drafted>>& places, int64_t nodes);

class TreeDecoder {
 public:
  static constexpr int64_t kMostRows = 256, kMostPositions = 512;

  // Throws lab's Unavailable where the bundled drafter is missing.
  TreeDecoder(const model::Checkpoint& checkpoint, const Shape& shape);

  struct Counts {
    int64_t steps = 0, rows = 0, drafted = 0, accepted = 0, tokens = 0;  // prompts not counted
  };
  // At most `max_tokens` tokens, the last of which may be an end token. prompt.size() <= kMostRows.
  std::vector<int64_t> decode(std::span<const model::TokenId> prompt, int64_t max_tokens);
  const Counts& counts() const { return counts_; }

 private:
  // Computes rows whose block tables end at their own positions; row r's logits are argmax_[r].
  void step(std::span<const int32_t> tokens, std::span<const int32_t> positions,
            const std::vector<std::vector<int32_t>>& tables);
  void read_into_drafter(model::Eagle::State& state, std::span<const int64_t> rows,
                         std::span<const model::TokenId> next);
  int32_t new_page();

  const model::Checkpoint& checkpoint_;
  const Shape shape_;
  ThreadPool threads_;
  model::GptOss model_;
  model::KvCache kv_;
  std::unique_ptr<model::Eagle> drafter_;  // null without drafts
  std::vector<int32_t> free_pages_;
  std::vector<float> logits_;
  std::vector<model::TokenId> argmax_;
  Counts counts_;
};

}  // namespace fathom::lab::tree_verification
