// Training texts: a file of JSON lines, in the forms that fine-tuning files have.
//
//   {"messages": [{"role": "user", "content": "..."}, ..., {"role": "assistant", "content": "...",
//                 "thinking": "..."}]}       the last message is learnt; "thinking" is its analysis channel
//   {"prompt": "...", "answer": "...", "thought": "..."}    the same with one question: `fathom model tasks`
//   writes it
//   {"prompt": "...", "completion": "..."}   plain text; the completion is learnt
//   {"text": "..."}                          plain text; all of it is learnt
//   {"input_ids": [...], "labels": [...]}    tokens; a label of -100 is not learnt (labels may be left out)
//
// Chats are rendered by harmony, after the checkpoint's system prompt.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "model/checkpoint.h"
#include "train/gpt_oss_trainer.h"

namespace fathom::train {

struct Example {
  std::vector<int32_t> tokens, targets;  // as in TokenBatch

  int64_t counted() const;
};

// Errors name the file, the line and the remedy. Examples longer than max_tokens are cut; those without
// anything to learn then are an error.
Result<std::vector<Example>> read_examples(const std::filesystem::path& file,
                                           const model::Checkpoint& checkpoint, int64_t max_tokens);
// A hash of all tokens and targets, in their order.
uint64_t fingerprint(const std::vector<Example>& examples);
Result<Example> parse_example(std::string_view line, const model::Checkpoint& checkpoint, int64_t max_tokens);

// Batches of whole examples: at most `tokens`, or one example with more; none has an example twice, since a
// batch ends with its epoch. Every epoch has another order, which follows from the seed.
class Batches {
 public:
  // The examples must outlive it; there is at least one.
  Batches(const std::vector<Example>& examples, int64_t tokens, uint64_t seed);

  TokenBatch next();      // valid until the next call
  double epochs() const;  // passes over the examples so far

 private:
  const std::vector<Example>& examples_;
  const int64_t tokens_;
  const uint64_t seed_;
  int64_t taken_ = 0;
  std::vector<int64_t> order_;
  std::vector<int32_t> batch_tokens_, batch_targets_;
  std::vector<int64_t> first_row_;
};

}  // namespace fathom::train
