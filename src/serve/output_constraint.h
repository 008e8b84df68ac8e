// Which output a client asked for (response_format, a forced tool call), as what the engine's sampler may
// choose from. Models that speak harmony are held to its headers too: free thought goes to the analysis
// channel, and nothing but the promised JSON to where the client reads it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "engine/generator.h"
#include "engine/token_trie.h"
#include "model/harmony.h"
#include "model/tokenizer.h"

namespace fathom::serve {

struct ToolSchema {
  std::string name;        // without "functions."
  std::string parameters;  // JSON Schema; "" for any object
};

struct ConstraintRequest {
  enum class Kind {
    json_object,  // any JSON object
    json_schema,  // a JSON value that matches `schema`
    // A call of one of `tools`. With harmony: a message to functions.NAME, of its arguments, ended by
    // <|call|>. Without: {"name": NAME, "arguments": {...}}.
    tool_call,
  };
  Kind kind = Kind::json_object;
  std::string schema;             // JSON text: properties are written in its order, so keep the client's
  std::vector<ToolSchema> tools;  // at least one for tool_call
  bool allow_reasoning = true;    // messages in the analysis channel before; of harmony models only
  std::optional<int64_t> max_reasoning_tokens = {};  // of all analysis together; then the answer begins
};

// Immutable; safe to use from many threads. One for each model: the tokens' trie is built once, here.
class OutputConstraints {
 public:
  // `end_ids` end an answer of a model without harmony: at least one. Harmony ends its own: <|return|> after
  // final content, <|call|> after a call. `vocab_size` is that of the logits, at least the tokenizer's.
  // Preconditions: those, and a tokenizer that outlives the constraints made.
  OutputConstraints(const model::Tokenizer& tokenizer, std::optional<model::HarmonyTokens> harmony,
                    std::vector<model::TokenId> end_ids, int64_t vocab_size);

  // For an answer after a prompt that ends with <|start|>assistant, or anywhere for other models. An error
  // names the place in the schema and what cannot be enforced; it is the client's.
  Result<std::unique_ptr<engine::Constraint>> make(const ConstraintRequest& request) const;

 private:
  Result<std::unique_ptr<engine::Constraint>> make_plain(const ConstraintRequest& request) const;
  Result<std::unique_ptr<engine::Constraint>> make_harmony(const ConstraintRequest& request) const;

  const model::Tokenizer* tokenizer_;
  std::optional<model::HarmonyTokens> harmony_;
  std::vector<model::TokenId> end_ids_;
  std::shared_ptr<const engine::TokenTrie> trie_;
};

}  // namespace fathom::serve
