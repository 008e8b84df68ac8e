#include "grammar/grammar_constraint.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "core/expect.h"

namespace fathom::grammar {
namespace {

// Bounds the trie walk, so that a schema with many indistinguishable alternatives does not stall all
// requests. A mask cut short is still correct and has every allowed single-byte token, so every text of the
// grammar can still be generated.
constexpr int64_t kMaxWork = 1'000'000;

// Visits the trie nodes whose bytes the matcher accepts, with the matcher advanced to them, and restores the
// matcher. Visits the whole first level, then the levels below until `max_work` is done.
template <class Visit>
void walk(const ByteTrie& trie, JsonMatcher& matcher, int64_t max_work, Visit visit) {
  visit(0);
  for (size_t i = 1; i < trie.size(); i = trie.nodes[i].subtree_end)
    if (matcher.push(trie.nodes[i].byte)) {
      visit(i);
      matcher.pop();
    }
  max_work += matcher.work();
  size_t depth = 0;  // steps pushed here
  for (size_t i = 1; i < trie.size() && matcher.work() < max_work;) {
    const ByteTrie::Node& node = trie.nodes[i];
    for (; depth >= node.depth; --depth) matcher.pop();
    if (!matcher.push(node.byte)) {
      i = node.subtree_end;
      continue;
    }
    ++depth;
    visit(i++);
  }
  for (; depth > 0; --depth) matcher.pop();
}

}  // namespace

void apply_token_mask(std::span<const uint8_t> mask, std::span<float> logits) {
  // Branch-free: often half the tokens are disallowed, and the branches would be mispredicted.
  constexpr auto kForbidden = std::bit_cast<uint32_t>(-std::numeric_limits<float>::infinity());
  std::transform(
      logits.begin(), logits.end(), mask.begin(), logits.begin(), [](float logit, uint8_t is_allowed) {
        const uint32_t bits = is_allowed - 1u;
        return std::bit_cast<float>((std::bit_cast<uint32_t>(logit) & ~bits) | (kForbidden & bits));
      });
}

GrammarConstraint::GrammarConstraint(std::shared_ptr<const VocabularyTrie> trie,
                                     std::shared_ptr<const JsonGrammar> grammar,
                                     std::vector<model::TokenId> end_ids)
    : trie_(std::move(trie)), end_ids_(std::move(end_ids)), matcher_(std::move(grammar)) {
  FATHOM_EXPECT(!end_ids_.empty(), "an end of the value is needed: without one nothing may follow it");
  for (const model::TokenId id : end_ids_)
    FATHOM_EXPECT(id >= 0 && id < trie_->vocab_size, "an end id beyond the vocabulary");
}

void GrammarConstraint::mask_logits(std::span<float> logits) {
  FATHOM_EXPECT(static_cast<int64_t>(logits.size()) == trie_->vocab_size, "logits of another vocabulary");
  token_mask_.assign(logits.size(), 0);
  if (!ended_) fill_token_mask();
  if (ended_ || matcher_.complete())
    for (const model::TokenId id : end_ids_) token_mask_[static_cast<size_t>(id)] = 1;
  FATHOM_EXPECT(std::find(token_mask_.begin(), token_mask_.end(), 1) != token_mask_.end(),
                "a grammar with a dead end");
  apply_token_mask(token_mask_, logits);
}

void GrammarConstraint::fill_token_mask() {
  const auto strings = matcher_.open_strings();
  if (!strings.empty()) fill_in_strings(strings);
  if (!matcher_.push_without_open_strings()) return;
  walk(trie_->tokens, matcher_, kMaxWork, [&](size_t node) {
    for (const auto& entry : trie_->tokens.at(node)) token_mask_[static_cast<size_t>(entry.id)] = 1;
  });
  matcher_.pop();
}

void GrammarConstraint::fill_in_strings(std::span<const JsonMatcher::OpenString> strings) {
  int64_t room = 0;
  for (const auto& string : strings) room = std::max(room, string.max);
  const auto max_characters =
      static_cast<uint8_t>(std::min<int64_t>(room, VocabularyTrie::kLeavesString - 1));
  std::transform(
      trie_->characters_in_string.begin(), trie_->characters_in_string.end(), token_mask_.begin(),
      [max_characters](uint8_t characters) { return static_cast<uint8_t>(characters <= max_characters); });
  const auto states = static_cast<int64_t>(strings.size());
  for (const auto& string : strings) {
    matcher_.push_closing_quote(string.state);
    walk(trie_->closings, matcher_, kMaxWork / states, [&](size_t node) {
      for (const auto& entry : trie_->closings.at(node))
        if (entry.characters >= string.min && entry.characters <= string.max)
          token_mask_[static_cast<size_t>(entry.id)] = 1;
    });
    matcher_.pop();
  }
}

void GrammarConstraint::accept_token(model::TokenId id) {
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

}  // namespace fathom::grammar
