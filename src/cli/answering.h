// Answers of a model, token by token: what `generate` and `chat` have in common.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/engine_flags.h"
#include "cli/model_roof.h"
#include "cli/progress.h"
#include "engine/engine.h"
#include "model/checkpoint.h"
#include "model/harmony.h"

namespace fathom::cli {

struct AnsweringFlags {
  std::string model;  // "": the bundled one
  EngineFlags engine;
  int64_t max_tokens = 512;
  bool ignore_eos    = false;
  std::string effort = "medium";
  std::string date;  // "": the model is not told
  engine::SamplingParameters sampling{.temperature = 0};
};

void add_answering_flags(CLI::App& verb, AnsweringFlags& flags);

// Throws UsageError.
model::Checkpoint open_checkpoint(const AnsweringFlags& flags);

// The checkpoint's own system message, or gpt-oss's.
model::HarmonyMessage system_message(const model::Checkpoint& checkpoint, const AnsweringFlags& flags);

// Throw UsageError with the way round, where the folder has no tokenizer, or none with harmony's tokens.
const model::Tokenizer& tokenizer_of(const model::Checkpoint& checkpoint);
const model::HarmonyTokens& harmony_of(const model::Checkpoint& checkpoint);

struct Answer {
  std::vector<model::TokenId> ids;  // the token that ended it among them
  engine::FinishReason finish = {};
  int64_t prompt_tokens       = 0;  // that were read for it: not those that an earlier answer left behind
  engine::RequestTimes times;

  double ttft_s() const;
  double prompt_s() const;                            // the same without the wait before
  double decode_s() const;                            // from the first token to the last
  std::optional<double> prompt_tokens_per_s() const;  // none where there is no first token
  std::optional<double> decode_tokens_per_s() const;  // none below two tokens
};

// One conversation with a model, by an engine of its own. What a prompt has in common with what went before
// is not read again.
class Answerer {
 public:
  // `checkpoint` must outlive it. Throws UsageError.
  Answerer(const AnsweringFlags& flags, const model::Checkpoint& checkpoint);

  // `token` is called on the engine's thread, which has nobody else to serve meanwhile. `interrupted` is
  // asked on this one, some 50 times a second: once it is true, no more comes than what the step in flight
  // brings. Throws UsageError where the prompt is empty, has ids beyond the vocabulary, or is too long for
  // the context.
  Answer answer(std::vector<model::TokenId> prompt, const std::function<void(model::TokenId)>& token,
                const std::function<bool()>& interrupted = {});

  const model::Checkpoint& checkpoint() const { return engine_->checkpoint(); }
  const std::optional<ModelRoof>& roof() const { return roof_; }
  // "5 tokens read at 812/s; 24 written at 95.3/s, 71 % of what the 33.1 GB/s that doctor read from DRAM
  // allow"
  std::string speed_text(const Answer& answer) const;

 private:
  engine::SamplingParameters sampling_;
  int64_t max_tokens_;
  std::vector<model::TokenId> stops_;
  ProgressDisplay display_;  // of the engine's start
  std::unique_ptr<engine::Engine> engine_;
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
