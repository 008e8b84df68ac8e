// Turns the output that a client asked for (response_format, a forced tool call) into a constraint on the
// engine's sampler. Harmony models are also held to harmony's headers: free reasoning goes to the analysis
// channel, and only the requested JSON goes to the channel that the client reads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "engine/generator.h"
#include "grammar/vocabulary_trie.h"
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
    // A call of one of `tools`. With harmony: a message to functions.NAME whose content is the arguments,
    // ended by <|call|>. Without: {"name": NAME, "arguments": {...}}.
    tool_call,
    text,  // anything: only the reasoning is limited
  };
  Kind kind = Kind::json_object;
  std::string schema;  // JSON text; properties are generated in its order, so keep the client's order
  std::vector<ToolSchema> tools;  // at least one for tool_call
  bool allow_reasoning = true;    // analysis messages before the answer; harmony only
  // Of the analysis messages together, and of what separates them; then the answer begins.
  std::optional<int64_t> max_reasoning_tokens = {};
  // Of reasoning and answer together. Where there is no max_reasoning_tokens, an answer in a format has at
  // least half of them: cut short, it would be no JSON.
  std::optional<int64_t> max_tokens = {};
};

// Immutable and safe to use from many threads. Make one for each model: the constructor builds the token
// trie.
class OutputConstraints {
 public:
  // `end_ids`, at least one, end the answer of a model without harmony. Harmony answers end with <|return|>
  // (final content) or <|call|> (tool call). `vocab_size` is that of the logits, at least the tokenizer's.
  // The tokenizer must outlive all constraints.
  OutputConstraints(const model::Tokenizer& tokenizer, std::optional<model::HarmonyTokens> harmony,
                    std::vector<model::TokenId> end_ids, int64_t vocab_size);

  // A constraint for the answer to a prompt that ends with <|start|>assistant; for models without harmony, to
  // any prompt. Null where nothing is asked for that could be held to. An error is the client's fault; it
  // names the place in the schema and what cannot be enforced.
  Result<std::unique_ptr<engine::Constraint>> make(const ConstraintRequest& request) const;

 private:
  Result<std::unique_ptr<engine::Constraint>> make_plain(const ConstraintRequest& request) const;
  Result<std::unique_ptr<engine::Constraint>> make_harmony(const ConstraintRequest& request) const;
  std::vector<model::TokenId> next_message() const;  // harmony's <|start|>assistant

  const model::Tokenizer* tokenizer_;
  std::optional<model::HarmonyTokens> harmony_;
  std::vector<model::TokenId> end_ids_;
  std::shared_ptr<const grammar::VocabularyTrie> trie_;
};

}  // namespace fathom::serve
