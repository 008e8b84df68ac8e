// Answers of a model, token by token: what `generate` and `chat` have in common.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/model_roof.h"
#include "engine/sampler.h"
#include "engine/text_model.h"
#include "model/checkpoint.h"
#include "model/harmony.h"

namespace fathom::cli {

struct AnsweringFlags {
  std::string model;  // "": the bundled one
  int threads        = 0;
  int64_t context    = 4096;
  int64_t max_tokens = 512;
  bool ignore_eos    = false;
  std::string effort = "medium";
  std::string date;  // "": the model is not told
  engine::SamplingParameters sampling{.temperature = 0};
};

void add_answering_flags(CLI::App& verb, AnsweringFlags& flags);

// The checkpoint's own system message, or gpt-oss's.
model::HarmonyMessage system_message(const model::Checkpoint& checkpoint, const AnsweringFlags& flags);

// Throw UsageError with the way round, where the folder has no tokenizer, or none with harmony's tokens.
const model::Tokenizer& tokenizer_of(const model::Checkpoint& checkpoint);
const model::HarmonyTokens& harmony_of(const model::Checkpoint& checkpoint);

struct Answer {
  std::vector<model::TokenId> ids;  // the token that ended it among them
  std::string finish_reason;        // "stop", "length", "interrupted"
  int64_t prompt_tokens = 0;        // that were read for it: not those that an earlier answer left behind
  double prompt_s       = 0;        // reading them
  double ttft_s         = 0;        // the same, and choosing the first token
  double decode_s       = 0;        // from the first token to the last

  std::optional<double> prompt_tokens_per_s() const;
  std::optional<double> decode_tokens_per_s() const;  // none below two tokens
};

// One conversation with a model. What a prompt has in common with what went before is not read again.
class Answerer {
 public:
  // Throws UsageError.
  Answerer(const AnsweringFlags& flags, engine::TextModel model);

  struct Listener {
    std::function<void(model::TokenId)> token               = {};
    std::function<void(std::span<const float>)> each_logits = {};  // of every position of the prompt
    std::function<bool()> interrupted                       = {};
  };

  // Throws UsageError where the prompt is empty, has ids beyond the vocabulary, or is too long for the
  // context.
  Answer answer(std::span<const model::TokenId> prompt, const Listener& listener);

  const model::Checkpoint& checkpoint() const { return model_.checkpoint(); }
  const std::optional<ModelRoof>& roof() const { return roof_; }
  // "5 tokens read at 812/s; 24 written at 95.3/s, 71 % of the 33.1 GB/s that doctor read from DRAM"
  std::string speed_text(const Answer& answer) const;

 private:
  void expect_prompt(std::span<const model::TokenId> prompt) const;
  // Logits of the last token; none where it was interrupted.
  std::optional<std::span<const float>> read(std::span<const model::TokenId> prompt, const Listener& listener,
                                             Answer& answer);
  std::span<const float> append(std::span<const model::TokenId> tokens,
                                const std::function<void(std::span<const float>)>& each = {});

  engine::TextModel model_;
  engine::Sampler sampler_;
  engine::SamplingParameters sampling_;
  int64_t max_tokens_, context_;
  std::vector<model::TokenId> stops_;
  std::vector<model::TokenId> cached_;  // the tokens in the model's cache
  std::optional<ModelRoof> roof_;
};

// Text of an answer while its tokens come: of harmony's messages, or of the tokens as they are.
class AnswerReader {
 public:
  // The checkpoint must outlive it.
  AnswerReader(const model::Checkpoint& checkpoint, bool harmony);

  struct Piece {
    std::string channel;  // "final" where there is no harmony
    std::string text;
  };
  Piece add(model::TokenId id);
  Piece finish();

  // With harmony.
  const std::vector<model::HarmonyMessage>& messages() const { return parser_->messages(); }
  std::string final_text() const { return final_text_; }

 private:
  Piece piece(std::string text);

  std::optional<model::HarmonyParser> parser_;
  std::optional<model::Detokenizer> detokenizer_;
  std::string final_text_;
};

}  // namespace fathom::cli
