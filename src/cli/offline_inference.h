// Offline inference for `generate` and `chat`: one engine, one answer at a time, token by token.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/decode_roof.h"
#include "cli/engine_flags.h"
#include "cli/progress.h"
#include "engine/engine.h"
#include "model/checkpoint.h"
#include "model/harmony.h"

namespace fathom::cli {

struct OfflineInferenceFlags {
  std::string model;  // "": the bundled one
  EngineFlags engine;
  int64_t max_tokens = 512;
  bool ignore_eos    = false;
  std::string effort = "medium";
  std::string date;  // "": no date in the system message
  engine::SamplingParameters sampling{.temperature = 0};
};

void add_offline_inference_flags(CLI::App& verb, OfflineInferenceFlags& flags);

// Throws UsageError.
model::Checkpoint open_checkpoint(const OfflineInferenceFlags& flags);

// The checkpoint's own system message, or gpt-oss's.
model::HarmonyMessage system_message(const model::Checkpoint& checkpoint, const OfflineInferenceFlags& flags);

// Throw UsageError, which names a workaround, if the folder has no tokenizer or the tokenizer lacks harmony's
// tokens.
const model::Tokenizer& tokenizer_of(const model::Checkpoint& checkpoint);
const model::HarmonyTokens& harmony_of(const model::Checkpoint& checkpoint);

struct Answer {
  std::vector<model::TokenId> ids;  // includes the stop token
  engine::FinishReason finish = {};
  int64_t prompt_tokens       = 0;  // computed for this answer; cached ones do not count
  engine::RequestTimes times;

  double ttft_s() const;
  double prompt_s() const;                            // without the time in the queue
  double decode_s() const;                            // from the first token to the last
  std::optional<double> prompt_tokens_per_s() const;  // absent without a first token
  std::optional<double> decode_tokens_per_s() const;  // absent below two tokens
};

// An engine for one conversation. The prefix cache spares it a prompt's common part with earlier turns.
class OfflineEngine {
 public:
  // `checkpoint` must outlive it. Throws UsageError.
  OfflineEngine(const OfflineInferenceFlags& flags, const model::Checkpoint& checkpoint);

  // Calls `token` on the engine's thread; the engine serves no other request meanwhile. Polls `interrupted`
  // on the calling thread 50 times a second; once it is true, only tokens of the step in flight still come.
  // Throws UsageError if the prompt is empty, has ids outside the vocabulary, or is too long for the context.
  Answer answer(std::vector<model::TokenId> prompt, const std::function<void(model::TokenId)>& token,
                const std::function<bool()>& interrupted = {});

  const model::Checkpoint& checkpoint() const { return engine_->checkpoint(); }
  const std::optional<DecodeRoof>& roof() const { return roof_; }
  // "5 tokens read at 812/s; 24 written at 95.3/s, 71 % of what the 33.1 GB/s that doctor read from DRAM
  // allow"
  std::string speed_text(const Answer& answer) const;

 private:
  engine::SamplingParameters sampling_;
  int64_t max_tokens_;
  std::vector<model::TokenId> stops_;
  ProgressDisplay display_;  // for the engine's start
  std::unique_ptr<engine::Engine> engine_;
  std::optional<DecodeRoof> roof_;
};

// Decodes an answer as it streams: into harmony's messages, or into plain text.
class StreamDecoder {
 public:
  // The checkpoint must outlive it.
  StreamDecoder(const model::Checkpoint& checkpoint, bool harmony);

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
