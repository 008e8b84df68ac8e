// A vocabulary's byte strings as a trie. One walk finds the allowed tokens; it skips a subtree at the first
// byte that the matcher rejects.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/tokenizer.h"

namespace fathom::grammar {

// Nodes in preorder: a subtree is nodes [i, nodes[i].subtree_end).
struct ByteTrie {
  struct Entry {
    model::TokenId id;
    uint8_t characters;  // for closing tokens: characters before the quote
  };
  struct Node {
    uint32_t subtree_end;
    uint32_t entries;  // its entries are [entries, next node's entries)
    uint16_t depth;    // 0 for the root
    uint8_t byte;      // on the edge to this node
  };
  std::vector<Node> nodes;  // and a sentinel that has only `entries`
  std::vector<Entry> entries;

  // Entries may have equal bytes.
  static ByteTrie build(std::vector<std::pair<std::string, Entry>> strings);

  size_t size() const { return nodes.size() - 1; }
  std::span<const Entry> at(size_t node) const {
    return std::span(entries).subspan(nodes[node].entries, nodes[node + 1].entries - nodes[node].entries);
  }
};

// Immutable; shared by all requests. Leaves out control tokens and ids without bytes. 200,000 tokens take
// some 20 MB.
struct VocabularyTrie {
  // `vocab_size`: number of logits, at least the tokenizer's. The tokenizer must outlive the trie.
  VocabularyTrie(const model::Tokenizer& tokenizer, int64_t vocab_size);

  const model::Tokenizer* tokenizer;
  int64_t vocab_size;
  ByteTrie tokens;
  // By id, for a position between two characters of a JSON string: the number of characters that the token
  // begins if the string stays open, else kLeavesString.
  static constexpr uint8_t kLeavesString = 255;
  std::vector<uint8_t> characters_in_string;
  // The tokens that close such a string, by their bytes after the quote.
  ByteTrie closings;
  std::vector<uint8_t> is_text;  // by id: 1 for tokens with bytes that are no control tokens
};

}  // namespace fathom::grammar
