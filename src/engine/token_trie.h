// A vocabulary's byte strings as a trie, so that the tokens which may come next are found by one walk that
// leaves a branch at the first byte that may not.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/tokenizer.h"

namespace fathom::engine {

// In preorder: a branch is nodes [i, nodes[i].after).
struct ByteTrie {
  struct Entry {
    model::TokenId id;
    uint8_t characters;  // of a closing token: those before the quote
  };
  struct Node {
    uint32_t after;    // node after this one's branch
    uint32_t entries;  // first of entries that end here; the next node's first is behind the last
    uint16_t depth;    // the root's is 0
    uint8_t byte;      // that leads here
  };
  std::vector<Node> nodes;  // and one behind the last, with `entries` only
  std::vector<Entry> entries;

  // Several entries may have the same bytes.
  static ByteTrie build(std::vector<std::pair<std::string, Entry>> strings);

  size_t size() const { return nodes.size() - 1; }
  std::span<const Entry> at(size_t node) const {
    return std::span(entries).subspan(nodes[node].entries, nodes[node + 1].entries - nodes[node].entries);
  }
};

// Immutable; shared by all requests. Control tokens and ids without bytes are in none of it. 200,000 tokens
// take some 20 MB.
struct TokenTrie {
  // Preconditions: vocab_size, of the logits, is at least the tokenizer's; the tokenizer outlives the trie.
  TokenTrie(const model::Tokenizer& tokenizer, int64_t vocab_size);

  const model::Tokenizer* tokenizer;
  int64_t vocab_size;
  ByteTrie tokens;
  // By id. Where a JSON string goes on between two characters: how many the token begins when it stays in the
  // string, else kLeavesString.
  static constexpr uint8_t kLeavesString = 255;
  std::vector<uint8_t> characters_in_string;
  // Tokens that close such a string, by their bytes after the quote.
  ByteTrie closings;
  std::vector<uint8_t> is_text;  // by id: 1 where it has bytes and is no control token
};

}  // namespace fathom::engine
