// JSON held to a grammar: a pushdown automaton over bytes that says what may come next.
//
// The text is compact but for one space that may follow a comma or a colon. Properties come in their order;
// those that are not required may be left out; others, where allowed, come after them. Every prefix that is
// accepted can be completed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/result.h"
#include "engine/byte_dfa.h"
#include "engine/json_string.h"

namespace fathom::engine {

using NodeId                   = uint32_t;
inline constexpr NodeId kNever = ~NodeId{0};  // no value at all

inline constexpr int kMaxJsonDepth = 64;  // of objects and arrays in each other

// What a value may be. Nodes refer to each other by id, in circles too.
struct JsonGrammar {
  struct Regular {  // number, literal, enumeration, string by a pattern
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
    NodeId others = kNever;  // values under other names

    // Made by finish().
    ByteDfa names;                                  // of the properties that can have a value, in quotes
    std::vector<std::vector<uint32_t>> candidates;  // by state of `names`: properties it may become, in order
    std::vector<uint32_t> required_from;  // by property and once more: the first required one from there on
    NodeId other_name = kNever;           // a string that is none of the names
  };
  struct Array {
    std::vector<NodeId> first;            // of the first items
    NodeId rest                = kNever;  // of those after
    int64_t min                = 0;
    std::optional<int64_t> max = {};
  };
  using Node = std::variant<Regular, String, Choice, Object, Array>;

  std::vector<Node> nodes;
  NodeId root = kNever;
  std::vector<int>
      heights;  // of the flattest value of each node; beyond kMaxJsonDepth: none fits. By finish()

  NodeId item(const Array& array, uint32_t index) const {
    return index < array.first.size() ? array.first[index] : array.rest;
  }
  int height(NodeId node) const { return node == kNever ? kMaxJsonDepth + 1 : heights[node]; }

  // Derives what the automaton needs; an error where the root has no value, or the budget is spent.
  Status finish(CompileBudget& budget);
};

// Where a text stands in a grammar: every way to read it so far. Copies are independent. Ways are dropped
// beyond kMaxWays (only schemas whose alternatives stay alike for long have so many); what is left still
// matches and can still be completed.
class JsonMatcher {
 public:
  static constexpr size_t kMaxWays = 1024;

  explicit JsonMatcher(std::shared_ptr<const JsonGrammar> grammar);

  bool complete() const { return steps_.back().complete; }  // a whole value: the text may end here

  // A step forward; pop() takes it back. False, and no step, where the byte cannot come next.
  bool push(uint8_t byte);
  void pop();
  // Steps so far can no longer be taken back.
  void commit();
  // Of all steps so far, those taken back too; one is some 20 ns.
  int64_t work() const { return work_; }

  // Ways that stand between two characters of a string without pattern. Most tokens are the same for all of
  // them, so that one need not try each.
  struct OpenString {
    size_t way;
    int64_t min, max;  // characters still to come
  };
  std::vector<OpenString> open_strings() const;
  void push_closed(size_t way);  // a step: only that way goes on, as if its string's quote had been read
  bool push_others();            // a step: the ways that open_strings() leaves out; false, and no step: none

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};

  // What is left to do once a value is whole.
  struct Frame {
    NodeId node;     // object or array
    uint32_t phase;  // it goes on with
    uint32_t count;
    uint32_t parent;  // frame, or kNone: the text is complete
    int depth;
  };
  // One way to have read the text. `at`: an automaton's state, a StringState, or a phase.
  struct Way {
    NodeId node;
    uint32_t at;
    uint32_t count;  // characters of a string; index of the next property or item
    uint32_t parent;
    bool operator==(const Way&) const = default;
  };
  struct Step {
    size_t ways_begin, frames_begin;  // where its own begin; ways end with those of the last step
    bool complete;
  };

  void advance(const Way& way, uint8_t byte);
  void advance_regular(const JsonGrammar::Regular& regular, Way way, uint8_t byte);
  void advance_string(const JsonGrammar::String& string, Way way, uint8_t byte);
  void advance_object(const JsonGrammar::Object& object, const Way& way, uint8_t byte);
  void advance_array(const JsonGrammar::Array& array, const Way& way, uint8_t byte);
  bool begin_name(const JsonGrammar::Object& object, const Way& way);
  bool may_become(const JsonGrammar::Object& object, const Way& way, ByteDfa::State name) const;
  void begin_property(const JsonGrammar::Object& object, const Way& way);
  bool begin_item(const JsonGrammar::Array& array, const Way& way);
  void begin_value(NodeId node, uint32_t parent);
  void whole(uint32_t parent);
  void add(const Way& way);
  uint32_t new_frame(const Way& way, uint32_t phase, uint32_t count);
  int depth(uint32_t frame) const { return frame == kNone ? 0 : frames_[frame].depth; }
  bool fits(NodeId node, int depth) const { return depth + grammar_->height(node) <= kMaxJsonDepth; }
  void begin_step() { steps_.push_back({ways_.size(), frames_.size(), false}); }
  bool end_step();

  std::shared_ptr<const JsonGrammar> grammar_;
  std::vector<Way> ways_;      // of all steps
  std::vector<Frame> frames_;  // likewise
  std::vector<Step> steps_;
  int64_t work_ = 0;
};

}  // namespace fathom::engine
