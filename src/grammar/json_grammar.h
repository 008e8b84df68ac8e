// JSON grammars: what a JSON Schema compiles to, and what JsonMatcher (json_matcher.h) runs.
//
// The text is compact except that one space may follow a comma or a colon. Properties come in the grammar's
// order. Properties that are not required may be left out. Additional properties, where allowed, come last.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/result.h"
#include "grammar/byte_dfa.h"

namespace fathom::grammar {

using NodeId                   = uint32_t;
inline constexpr NodeId kNever = ~NodeId{0};  // matches no value

inline constexpr int kMaxJsonDepth = 64;  // nested objects and arrays

// Parser states that JsonMatcher keeps at once, and alternatives of one choice.
inline constexpr size_t kMaxParserStates = 1024;

// Nodes refer to each other by id; cycles are allowed.
struct JsonGrammar {
  struct Regular {  // number, literal, enumeration, string with a pattern
    ByteDfa dfa;
  };
  struct String {
    int64_t min                = 0;  // code points
    std::optional<int64_t> max = {};
  };
  struct Choice {
    std::vector<NodeId> alternatives;
  };
  struct Property {
    std::string name;
    NodeId value  = kNever;
    bool required = false;
  };
  struct Object {
    std::vector<Property> properties;
    NodeId additional = kNever;  // value of properties under other names

    // Filled by compile().
    // Quoted names of the properties that can have a value.
    ByteDfa names;
    // By state of `names`: indices of the properties that the name may still become, ascending.
    std::vector<std::vector<uint32_t>> candidates;
    // By property, and one past the last: the first required property at or after it.
    std::vector<uint32_t> required_from;
    // A string that is none of the names.
    NodeId additional_name = kNever;
  };
  struct Array {
    std::vector<NodeId> prefix;           // items 0 .. prefix.size()
    NodeId rest                = kNever;  // items after the prefix
    int64_t min                = 0;
    std::optional<int64_t> max = {};
  };
  using Node = std::variant<Regular, String, Choice, Object, Array>;

  std::vector<Node> nodes;
  NodeId root = kNever;
  // By node, filled by compile(): nesting depth of its flattest value. Above kMaxJsonDepth: no value fits.
  std::vector<int> heights;

  NodeId item(const Array& array, uint32_t index) const {
    return index < array.prefix.size() ? array.prefix[index] : array.rest;
  }
  int height(NodeId node) const { return node == kNever ? kMaxJsonDepth + 1 : heights[node]; }

  // Derives the fields that JsonMatcher needs. Fails where the root matches no value or the budget is spent.
  Status compile(CompileBudget& budget);
};

}  // namespace fathom::grammar
