#include "serve/structured_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "core/expect.h"
#include "core/strict_json.h"
#include "grammar/grammar_constraint.h"
#include "grammar/json_schema.h"
#include "serve/thinking_budget.h"

namespace fathom::serve {
namespace {

using model::TokenId;
using Grammar = std::shared_ptr<const grammar::JsonGrammar>;

constexpr std::string_view kAnyObject = R"({"type": "object"})";

// A message header, up to its <|message|>, and the grammar of the message's content.
struct Header {
  std::vector<TokenId> ids;
  Grammar content;     // null: free text up to <|end|>
  TokenId end_id = 0;  // ends content that has a grammar
};

// Constrains the answer after <|start|>assistant: first, if allowed, reasoning messages of free text; then
// one message whose content follows the grammar. Headers have the one spelling that the model was trained on.
class HarmonyConstraint : public engine::Constraint {
 public:
  // If reasoning is allowed, its header is the first.
  HarmonyConstraint(std::shared_ptr<const grammar::VocabularyTrie> trie, const model::HarmonyTokens& tokens,
                    std::vector<TokenId> next_message, std::vector<Header> headers,
                    std::optional<int64_t> max_reasoning)
      : trie_(std::move(trie)),
        tokens_(tokens),
        next_message_(std::move(next_message)),
        headers_(std::move(headers)),
        reasoning_left_(max_reasoning) {
    begin_header();
  }

  std::unique_ptr<engine::Constraint> clone() const override {
    return std::make_unique<HarmonyConstraint>(*this);
  }

  void mask_logits(std::span<float> logits) override {
    if (answer_) return answer_->mask_logits(logits);
    token_mask_.assign(logits.size(), 0);
    const auto allow = [&](TokenId id) { token_mask_[static_cast<size_t>(id)] = 1; };
    if (state_ == State::reasoning) {
      if (reasoning_left_ != 0) std::copy(trie_->is_text.begin(), trie_->is_text.end(), token_mask_.begin());
      allow(tokens_.end);
    } else if (state_ == State::between) {
      allow(next_message_[read_]);
    } else {
      for (const size_t header : candidates_) allow(headers_[header].ids[read_]);
    }
    grammar::apply_token_mask(token_mask_, logits);
  }

  void accept_token(TokenId id) override {
    if (answer_) return answer_->accept_token(id);
    const bool counts = thought_ || (state_ == State::reasoning && id != tokens_.end);
    if (counts && reasoning_left_.value_or(0) > 0) --*reasoning_left_;
    if (state_ == State::reasoning) {
      if (id == tokens_.end) {
        state_   = State::between;
        read_    = 0;
        thought_ = true;
      }
      return;
    }
    if (state_ == State::between) {
      FATHOM_EXPECT(id == next_message_[read_], "a token that may not come between messages");
      if (++read_ == next_message_.size()) begin_header();
      return;
    }
    std::erase_if(candidates_, [&](size_t header) { return headers_[header].ids[read_] != id; });
    FATHOM_EXPECT(!candidates_.empty(), "a token that is in no header");
    ++read_;
    if (id == tokens_.message) begin_content(headers_[candidates_.front()]);
  }

 private:
  enum class State { header, reasoning, between };

  void begin_header() {
    state_ = State::header;
    read_  = 0;
    candidates_.clear();
    for (size_t i = 0; i < headers_.size(); ++i)
      if (headers_[i].content || reasoning_left_ != 0) candidates_.push_back(i);
  }

  void begin_content(const Header& header) {
    if (header.content)
      answer_.emplace(trie_, header.content, std::vector{header.end_id});
    else
      state_ = State::reasoning;
  }

  std::shared_ptr<const grammar::VocabularyTrie> trie_;
  model::HarmonyTokens tokens_;
  std::vector<TokenId> next_message_;  // the tokens between the end of a message and the next header
  std::vector<Header> headers_;
  std::optional<int64_t> reasoning_left_;  // tokens
  State state_  = State::header;
  bool thought_ = false;            // a message of reasoning has ended
  size_t read_  = 0;                // tokens read of the header, or between messages
  std::vector<size_t> candidates_;  // headers that match the tokens read so far
  std::optional<grammar::GrammarConstraint> answer_;
  std::vector<uint8_t> token_mask_;  // [V], scratch
};

std::string schema_of(const ToolSchema& tool) {
  return tool.parameters.empty() ? std::string(kAnyObject) : tool.parameters;
}

std::string schema_of(const ConstraintRequest& request) {
  return request.kind == ConstraintRequest::Kind::json_object ? std::string(kAnyObject) : request.schema;
}

void append_text(const model::Tokenizer& tokenizer, std::string_view text, std::vector<TokenId>& ids) {
  const auto encoded = tokenizer.encode(text);
  FATHOM_EXPECT(encoded.has_value(), "a header's text is short: its encoding cannot fail");
  ids.insert(ids.end(), encoded->begin(), encoded->end());
}

}  // namespace

OutputConstraints::OutputConstraints(const model::Tokenizer& tokenizer,
                                     std::optional<model::HarmonyTokens> harmony,
                                     std::vector<TokenId> end_ids, int64_t vocab_size)
    : tokenizer_(&tokenizer),
      harmony_(harmony),
      end_ids_(std::move(end_ids)),
      trie_(std::make_shared<const grammar::VocabularyTrie>(tokenizer, vocab_size)) {
  FATHOM_EXPECT(harmony_ || !end_ids_.empty(), "a token that ends the answer is needed");
}

Result<std::unique_ptr<engine::Constraint>> OutputConstraints::make(const ConstraintRequest& request) const {
  if (request.kind == ConstraintRequest::Kind::tool_call && request.tools.empty())
    return Error{"a tool must be called, but there is none: give 'tools'"};
  if (request.kind == ConstraintRequest::Kind::text) {
    if (!harmony_ || !request.max_reasoning_tokens) return std::unique_ptr<engine::Constraint>();
    return std::unique_ptr<engine::Constraint>(std::make_unique<ThinkingBudget>(
        *tokenizer_, *harmony_, next_message(), *request.max_reasoning_tokens));
  }
  return harmony_ ? make_harmony(request) : make_plain(request);
}

Result<std::unique_ptr<engine::Constraint>> OutputConstraints::make_plain(
    const ConstraintRequest& request) const {
  std::vector<grammar::NamedSchema> calls;
  for (const ToolSchema& tool : request.tools) calls.push_back({tool.name, schema_of(tool)});
  auto grammar = request.kind == ConstraintRequest::Kind::tool_call
                     ? grammar::compile_named_schemas(calls)
                     : grammar::compile_json_schema(schema_of(request));
  if (!grammar) return grammar.error();
  return std::unique_ptr<engine::Constraint>(
      std::make_unique<grammar::GrammarConstraint>(trie_, *std::move(grammar), end_ids_));
}

Result<std::unique_ptr<engine::Constraint>> OutputConstraints::make_harmony(
    const ConstraintRequest& request) const {
  const model::HarmonyTokens& tokens = *harmony_;
  const auto header                  = [&](std::string_view text, bool json) {
    std::vector<TokenId> ids = {tokens.channel};
    append_text(*tokenizer_, text, ids);
    if (json) {
      append_text(*tokenizer_, " ", ids);
      ids.push_back(tokens.constrain);
      append_text(*tokenizer_, "json", ids);
    }
    ids.push_back(tokens.message);
    return ids;
  };

  std::vector<Header> headers;
  if (request.allow_reasoning) headers.push_back({header("analysis", false)});
  if (request.kind == ConstraintRequest::Kind::tool_call) {
    for (const ToolSchema& tool : request.tools) {
      auto grammar = grammar::compile_json_schema(schema_of(tool));
      if (!grammar) return Error{fmt::format("tool {}: {}", in_quotes(tool.name), grammar.error().message)};
      headers.push_back(
          {header("commentary to=functions." + tool.name, true), *std::move(grammar), tokens.call});
    }
  } else {
    auto grammar = grammar::compile_json_schema(schema_of(request));
    if (!grammar) return grammar.error();
    for (const bool json : {false, true})
      headers.push_back({header("final", json), *grammar, tokens.return_});
  }
  std::vector<TokenId> between         = next_message();
  std::optional<int64_t> max_reasoning = request.max_reasoning_tokens;
  if (request.allow_reasoning && !max_reasoning && request.max_tokens) {
    // Beside the text of reasoning and answer: two headers, what ends the two, and what is between them.
    size_t longest = 0;
    for (const Header& header : headers) longest = std::max(longest, header.ids.size());
    const auto frame = static_cast<int64_t>(headers.front().ids.size() + longest + between.size() + 2);
    max_reasoning    = std::max<int64_t>(0, *request.max_tokens / 2 - frame);
  }
  return std::unique_ptr<engine::Constraint>(std::make_unique<HarmonyConstraint>(
      trie_, tokens, std::move(between), std::move(headers), max_reasoning));
}

std::vector<TokenId> OutputConstraints::next_message() const {
  std::vector<TokenId> ids = {harmony_->start};
  append_text(*tokenizer_, "assistant", ids);
  return ids;
}

}  // namespace fathom::serve
