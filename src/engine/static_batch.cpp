#include "engine/static_batch.h"

#include <algorithm>
#include <cstddef>

#include "core/expect.h"
#include "model/ops.h"

namespace fathom::engine {
namespace {

using model::TokenId;

constexpr int64_t kPageSize = 64;   // positions
constexpr int64_t kRows     = 512;  // of a step, where there are prompts to read

}  // namespace

StaticBatch::StaticBatch(const model::Checkpoint& checkpoint, int64_t sequences, int64_t context,
                         ThreadPool& threads)
    : checkpoint_(checkpoint),
      sequences_(sequences),
      context_(context),
      pages_((context + kPageSize - 1) / kPageSize),
      rows_(std::max(kRows, sequences)),
      model_(checkpoint.config, checkpoint.weights, model::cpu_ops(), rows_, sequences, threads),
      kv_(checkpoint.config, sequences * pages_, sequences * pages_, kPageSize),
      logits_(sequences * checkpoint.config.vocab_size) {}

std::vector<std::vector<TokenId>> StaticBatch::greedy(std::span<const std::vector<TokenId>> prompts) {
  FATHOM_EXPECT(static_cast<int64_t>(prompts.size()) <= sequences_, "more prompts than sequences");
  struct Sequence {
    std::vector<TokenId> tokens;  // prompt and answer
    size_t done = 0;              // of them are in the cache
    bool ended  = false;
  };
  std::vector<Sequence> sequences;
  for (const auto& prompt : prompts) {
    FATHOM_EXPECT(!prompt.empty() && static_cast<int64_t>(prompt.size()) < context_,
                  "a prompt is empty or fills the context");
    sequences.push_back({.tokens = prompt});
  }
  const auto& eos = checkpoint_.eos_ids;
  const int64_t V = checkpoint_.config.vocab_size;
  std::vector<int32_t> tokens, positions, first, pages, last_rows;
  std::vector<Sequence*> asking;  // whose next token this step yields
  for (;;) {
    tokens.clear(), positions.clear(), pages.clear(), last_rows.clear(), asking.clear();
    first = {0};
    for (size_t s = 0; s < sequences.size(); ++s) {
      Sequence& sequence = sequences[s];
      const size_t room  = static_cast<size_t>(rows_) - tokens.size();
      if (sequence.ended || room == 0) continue;
      const size_t end = std::min(sequence.tokens.size(), sequence.done + room);
      for (; sequence.done < end; ++sequence.done) {
        tokens.push_back(sequence.tokens[sequence.done]);
        positions.push_back(static_cast<int32_t>(sequence.done));
      }
      first.push_back(static_cast<int32_t>(tokens.size()));
      for (int64_t p = 0; p < pages_; ++p)
        pages.push_back(static_cast<int32_t>(static_cast<int64_t>(s) * pages_ + p));
      if (sequence.done < sequence.tokens.size()) continue;
      last_rows.push_back(static_cast<int32_t>(tokens.size()) - 1);
      asking.push_back(&sequence);
    }
    const auto T = static_cast<int64_t>(tokens.size()), S = static_cast<int64_t>(first.size()) - 1;
    if (T == 0) break;
    const View<const int32_t, 2> table(pages.data(), {S, pages_});
    model_.forward({.tokens       = View<const int32_t, 1>(tokens.data(), {T}),
                    .rows         = {.first_row = View<const int32_t, 1>(first.data(), {S + 1}),
                                     .positions = View<const int32_t, 1>(positions.data(), {T}),
                                     .pages     = table},
                    .window_pages = table},
                   kv_);
    const auto R = static_cast<int64_t>(asking.size());
    model_.logits(View<const int32_t, 1>(last_rows.data(), {R}), logits_.as({R, V}));
    for (int64_t r = 0; r < R; ++r) {
      const float* logits = logits_.data() + r * V;
      const auto best     = static_cast<TokenId>(std::max_element(logits, logits + V) - logits);
      Sequence& sequence  = *asking[static_cast<size_t>(r)];
      sequence.tokens.push_back(best);
      sequence.ended = std::find(eos.begin(), eos.end(), best) != eos.end() ||
                       static_cast<int64_t>(sequence.tokens.size()) == context_;
    }
  }
  std::vector<std::vector<TokenId>> answers;
  for (size_t s = 0; s < sequences.size(); ++s)
    answers.emplace_back(sequences[s].tokens.begin() + static_cast<std::ptrdiff_t>(prompts[s].size()),
                         sequences[s].tokens.end());
  return answers;
}

}  // namespace fathom::engine
