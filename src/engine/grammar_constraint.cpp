#include "engine/grammar_constraint.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/expect.h"

namespace fathom::engine {
namespace {

// Visits the nodes whose bytes the matcher takes, with the matcher there; it ends where it began.
template <class Visit>
void walk(const ByteTrie& trie, JsonMatcher& matcher, Visit visit) {
  visit(0);
  size_t depth = 0;  // steps that the matcher is ahead
  for (size_t i = 1; i < trie.size();) {
    const ByteTrie::Node& node = trie.nodes[i];
    for (; depth >= node.depth; --depth) matcher.pop();
    if (!matcher.push(node.byte)) {
      i = node.after;
      continue;
    }
    ++depth;
    visit(i++);
  }
  for (; depth > 0; --depth) matcher.pop();
}

}  // namespace

void keep_allowed(std::span<const uint8_t> allowed, std::span<float> logits) {
  for (size_t i = 0; i < logits.size(); ++i)
    logits[i] = allowed[i] != 0 ? logits[i] : -std::numeric_limits<float>::infinity();
}

GrammarConstraint::GrammarConstraint(std::shared_ptr<const TokenTrie> trie,
                                     std::shared_ptr<const JsonGrammar> grammar,
                                     std::vector<model::TokenId> end_ids)
    : trie_(std::move(trie)), end_ids_(std::move(end_ids)), matcher_(std::move(grammar)) {
  FATHOM_EXPECT(!end_ids_.empty(), "an end of the value is needed: without one nothing may follow it");
  for (const model::TokenId id : end_ids_)
    FATHOM_EXPECT(id >= 0 && id < trie_->vocab_size, "an end id beyond the vocabulary");
}

void GrammarConstraint::restrict(std::span<float> logits) {
  FATHOM_EXPECT(static_cast<int64_t>(logits.size()) == trie_->vocab_size, "logits of another vocabulary");
  allowed_.assign(logits.size(), 0);
  if (!ended_) allow_tokens();
  if (ended_ || matcher_.complete())
    for (const model::TokenId id : end_ids_) allowed_[static_cast<size_t>(id)] = 1;
  FATHOM_EXPECT(std::find(allowed_.begin(), allowed_.end(), 1) != allowed_.end(),
                "a grammar with a dead end");
  keep_allowed(allowed_, logits);
}

void GrammarConstraint::allow_tokens() {
  const auto strings = matcher_.open_strings();
  if (!strings.empty()) allow_in_strings(strings);
  if (!matcher_.push_others()) return;
  walk(trie_->tokens, matcher_, [&](size_t node) {
    for (const auto& entry : trie_->tokens.at(node)) allowed_[static_cast<size_t>(entry.id)] = 1;
  });
  matcher_.pop();
}

void GrammarConstraint::allow_in_strings(std::span<const JsonMatcher::OpenString> strings) {
  int64_t room = 0;
  for (const auto& string : strings) room = std::max(room, string.max);
  const auto most = static_cast<uint8_t>(std::min<int64_t>(room, TokenTrie::kLeavesString - 1));
  for (size_t i = 0; i < allowed_.size(); ++i) allowed_[i] = trie_->characters_in_string[i] <= most;
  for (const auto& string : strings) {
    matcher_.push_closed(string.way);
    walk(trie_->closings, matcher_, [&](size_t node) {
      for (const auto& entry : trie_->closings.at(node))
        if (entry.characters >= string.min && entry.characters <= string.max)
          allowed_[static_cast<size_t>(entry.id)] = 1;
    });
    matcher_.pop();
  }
}

void GrammarConstraint::accept(model::TokenId id) {
  if (std::find(end_ids_.begin(), end_ids_.end(), id) != end_ids_.end()) {
    FATHOM_EXPECT(ended_ || matcher_.complete(), "the text ends before its value is whole");
    ended_ = true;
    return;
  }
  FATHOM_EXPECT(!ended_, "text after the end");
  FATHOM_EXPECT(id >= 0 && id < trie_->vocab_size && trie_->is_text[static_cast<size_t>(id)] != 0,
                "a token without text within a JSON value");
  for (const char c : trie_->tokenizer->bytes(id))
    FATHOM_EXPECT(matcher_.push(static_cast<uint8_t>(c)), "a token that the grammar does not allow");
  matcher_.commit();
}

}  // namespace fathom::engine
