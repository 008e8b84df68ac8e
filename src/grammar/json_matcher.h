// Matches JSON against a grammar byte by byte: a nondeterministic pushdown automaton with rollback. Every
// prefix that it accepts can be completed.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "grammar/json_grammar.h"
#include "grammar/json_string.h"

namespace fathom::grammar {

// The parser states of one text. Copies are independent. States beyond kMaxParserStates are dropped (only
// schemas whose alternatives stay indistinguishable for long have that many); the remaining ones still match
// and can still be completed.
class JsonMatcher {
 public:
  explicit JsonMatcher(std::shared_ptr<const JsonGrammar> grammar);

  // The text so far is a whole value and may end here.
  bool complete() const { return steps_.back().complete; }

  // Takes one step. Returns false, without a step, where the byte cannot come next.
  bool push(uint8_t byte);
  // Undoes the last step.
  void pop();
  // Makes all steps so far permanent.
  void commit();
  // Parser states advanced so far, including steps undone since. One takes some 20 ns.
  int64_t work() const { return work_; }

  // A parser state between two characters of a string without a pattern. Most tokens fit all such states, so
  // the token mask need not be computed token by token.
  struct OpenString {
    size_t state;
    int64_t min, max;  // characters still to come
  };
  std::vector<OpenString> open_strings() const;
  // A step: keeps that state only, as if the closing quote of its string had been read.
  void push_closing_quote(size_t state);
  // A step: drops the states of open_strings(). Returns false, without a step, where no state is left.
  bool push_without_open_strings();

 private:
  static constexpr uint32_t kNoFrame = ~uint32_t{0};

  // A stack frame: where an object or array goes on once the current value is complete.
  struct Frame {
    NodeId node;     // object or array
    uint32_t phase;  // the phase it goes on with
    uint32_t count;
    uint32_t parent;  // frame, or kNoFrame: the text is complete
    int depth;
  };
  // One way to parse the text so far.
  struct State {
    NodeId node;
    uint32_t position;  // DFA state, StringState or phase, by type of the node
    uint32_t count;     // characters of a string; index of the next property or item
    uint32_t parent;    // frame
    bool operator==(const State&) const = default;
  };
  struct Step {
    size_t states_begin, frames_begin;  // the step's states are states_[states_begin ..]
    bool complete;
  };

  void advance(const State& state, uint8_t byte);
  void advance_regular(const JsonGrammar::Regular& regular, State state, uint8_t byte);
  void advance_string(const JsonGrammar::String& string, State state, uint8_t byte);
  void advance_object(const JsonGrammar::Object& object, const State& state, uint8_t byte);
  void advance_array(const JsonGrammar::Array& array, const State& state, uint8_t byte);
  bool begin_name(const JsonGrammar::Object& object, const State& state);
  bool may_become(const JsonGrammar::Object& object, const State& state, ByteDfa::State name) const;
  void begin_property(const JsonGrammar::Object& object, const State& state);
  bool begin_item(const JsonGrammar::Array& array, const State& state);
  void begin_value(NodeId node, uint32_t parent);
  void end_value(uint32_t parent);
  void add(const State& state);
  uint32_t new_frame(const State& state, uint32_t phase, uint32_t count);
  int depth(uint32_t frame) const { return frame == kNoFrame ? 0 : frames_[frame].depth; }
  bool fits(NodeId node, int depth) const { return depth + grammar_->height(node) <= kMaxJsonDepth; }
  void begin_step() { steps_.push_back({states_.size(), frames_.size(), false}); }
  bool end_step();

  std::shared_ptr<const JsonGrammar> grammar_;
  std::vector<State> states_;  // of all steps
  std::vector<Frame> frames_;  // of all steps
  std::vector<Step> steps_;
  int64_t work_ = 0;
};

}  // namespace fathom::grammar
