#include "grammar/json_matcher.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/expect.h"

namespace fathom::grammar {
namespace {

// What an object or array expects next. In kName the bits above the phase hold the state of the name's DFA.
enum Phase : uint32_t {
  kOpen,
  kFirst,  // the closing bracket of an empty one; the first name or item has a state of its own
  kNext,   // a comma or the closing bracket
  kComma,  // the space after a comma; the next name or item has a state of its own
  kName,
  kColon,
  kValue,  // the space after a colon; the value has a state of its own
};
constexpr int kPhaseBits = 3;

// Position of a string before its opening quote; after it the position is a StringState.
constexpr auto kUnquoted = static_cast<uint32_t>(StringState::closed);

using Choice = JsonGrammar::Choice;
using Object = JsonGrammar::Object;
using Array  = JsonGrammar::Array;

}  // namespace

JsonMatcher::JsonMatcher(std::shared_ptr<const JsonGrammar> grammar) : grammar_(std::move(grammar)) {
  begin_step();
  begin_value(grammar_->root, kNoFrame);
  FATHOM_EXPECT(!states_.empty(), "a grammar without a value: compile() refuses it");
}

bool JsonMatcher::push(uint8_t byte) {
  const size_t begin = steps_.back().states_begin, end = states_.size();
  begin_step();
  work_ += static_cast<int64_t>(end - begin);
  for (size_t i = begin; i < end; ++i) advance(State(states_[i]), byte);
  return end_step();
}

bool JsonMatcher::end_step() {
  if (steps_.back().complete || states_.size() > steps_.back().states_begin) return true;
  pop();
  return false;
}

void JsonMatcher::pop() {
  FATHOM_EXPECT(steps_.size() > 1, "no step to take back");
  states_.resize(steps_.back().states_begin);
  frames_.resize(steps_.back().frames_begin);
  steps_.pop_back();
}

void JsonMatcher::commit() {
  states_.erase(states_.begin(), states_.begin() + static_cast<std::ptrdiff_t>(steps_.back().states_begin));
  steps_ = {{0, 0, steps_.back().complete}};
  // Drops frames that no state refers to. A parent comes before its children.
  std::vector<uint32_t> renamed(frames_.size(), kNoFrame);
  for (const State& state : states_)
    for (uint32_t at = state.parent; at != kNoFrame && renamed[at] == kNoFrame; at = frames_[at].parent)
      renamed[at] = 0;
  uint32_t kept = 0;
  for (uint32_t i = 0; i < frames_.size(); ++i) {
    if (renamed[i] == kNoFrame) continue;
    renamed[i]    = kept;
    frames_[kept] = frames_[i];
    if (frames_[kept].parent != kNoFrame) frames_[kept].parent = renamed[frames_[kept].parent];
    ++kept;
  }
  frames_.resize(kept);
  for (State& state : states_)
    if (state.parent != kNoFrame) state.parent = renamed[state.parent];
}

std::vector<JsonMatcher::OpenString> JsonMatcher::open_strings() const {
  std::vector<OpenString> open;
  for (size_t i = steps_.back().states_begin; i < states_.size(); ++i) {
    const State& state = states_[i];
    const auto* string = std::get_if<JsonGrammar::String>(&grammar_->nodes[state.node]);
    if (string == nullptr || state.position != static_cast<uint32_t>(StringState::body)) continue;
    open.push_back({i, string->min - state.count,
                    string->max ? *string->max - state.count : std::numeric_limits<int64_t>::max()});
  }
  return open;
}

void JsonMatcher::push_closing_quote(size_t state) {
  const uint32_t parent = states_[state].parent;
  begin_step();
  end_value(parent);
}

bool JsonMatcher::push_without_open_strings() {
  const size_t begin = steps_.back().states_begin, end = states_.size();
  begin_step();
  for (size_t i = begin; i < end; ++i) {
    const State state = states_[i];
    if (!std::holds_alternative<JsonGrammar::String>(grammar_->nodes[state.node]) ||
        state.position != static_cast<uint32_t>(StringState::body))
      states_.push_back(state);
  }
  return end_step();
}

void JsonMatcher::add(const State& state) {
  const auto begin = states_.begin() + static_cast<std::ptrdiff_t>(steps_.back().states_begin);
  const auto count = static_cast<size_t>(states_.end() - begin);
  work_ += static_cast<int64_t>(count / 16);  // the cost of the search below
  if (count < kMaxParserStates && std::find(begin, states_.end(), state) == states_.end())
    states_.push_back(state);
}

uint32_t JsonMatcher::new_frame(const State& state, uint32_t phase, uint32_t count) {
  frames_.push_back({state.node, phase, count, state.parent, depth(state.parent) + 1});
  return static_cast<uint32_t>(frames_.size() - 1);
}

void JsonMatcher::end_value(uint32_t parent) {
  if (parent == kNoFrame) {
    steps_.back().complete = true;
    return;
  }
  const Frame& frame = frames_[parent];
  add({frame.node, frame.phase, frame.count, frame.parent});
}

void JsonMatcher::begin_value(NodeId node, uint32_t parent) {
  if (!fits(node, depth(parent))) return;
  if (const auto* choice = std::get_if<Choice>(&grammar_->nodes[node])) {
    for (const NodeId alternative : choice->alternatives) begin_value(alternative, parent);
    return;
  }
  static_assert(kOpen == 0, "position 0 is a DFA's start state and kOpen");
  if (std::holds_alternative<JsonGrammar::String>(grammar_->nodes[node]))
    add({node, kUnquoted, 0, parent});
  else
    add({node, 0, 0, parent});
}

void JsonMatcher::advance(const State& state, uint8_t byte) {
  const JsonGrammar::Node& node = grammar_->nodes[state.node];
  if (const auto* string = std::get_if<JsonGrammar::String>(&node))
    advance_string(*string, state, byte);
  else if (const auto* regular = std::get_if<JsonGrammar::Regular>(&node))
    advance_regular(*regular, state, byte);
  else if (const auto* object = std::get_if<Object>(&node))
    advance_object(*object, state, byte);
  else
    advance_array(std::get<Array>(node), state, byte);
}

void JsonMatcher::advance_regular(const JsonGrammar::Regular& regular, State state, uint8_t byte) {
  const auto next = regular.dfa.step(state.position, byte);
  if (!next) return;
  if (regular.dfa.accepts(*next)) end_value(state.parent);
  state.position = *next;
  if (!regular.dfa.ends(*next)) add(state);
}

void JsonMatcher::advance_string(const JsonGrammar::String& string, State state, uint8_t byte) {
  constexpr auto kBody = static_cast<uint32_t>(StringState::body);
  if (state.position == kUnquoted) {
    state.position = kBody;
    if (byte == '"') add(state);
    return;
  }
  const StringState next = kStringTable[state.position][byte];
  if (next == StringState::invalid) return;
  if (next == StringState::closed) {
    if (state.count >= string.min) end_value(state.parent);
    return;
  }
  if (state.position == kBody) {  // the byte begins a character
    if (string.max && state.count == *string.max) return;
    if (string.max || state.count < string.min) ++state.count;
  }
  state.position = static_cast<uint32_t>(next);
  add(state);
}

// Whether a name in this DFA state may become a property that is still to come: properties before state.count
// are past, a required one must not be skipped, and the value must fit in the depth.
bool JsonMatcher::may_become(const Object& object, const State& state, ByteDfa::State name) const {
  const std::vector<uint32_t>& candidates = object.candidates[name];
  const uint32_t last                     = object.required_from[state.count];
  for (auto p = std::lower_bound(candidates.begin(), candidates.end(), state.count);
       p != candidates.end() && *p <= last; ++p)
    if (fits(object.properties[*p].value, depth(state.parent) + 1)) return true;
  return false;
}

// Adds the states that may begin a property's name. Returns whether there is any.
bool JsonMatcher::begin_name(const Object& object, const State& state) {
  bool any = false;
  if (!object.names.empty() && may_become(object, state, 0)) {
    add({state.node, kName, state.count, state.parent});
    any = true;
  }
  const auto properties = static_cast<uint32_t>(object.properties.size());
  if (object.required_from[state.count] == properties && fits(object.additional, depth(state.parent) + 1)) {
    begin_value(object.additional_name, new_frame(state, kColon, properties));
    any = true;
  }
  return any;
}

void JsonMatcher::begin_property(const Object& object, const State& state) {
  const auto properties = static_cast<uint32_t>(object.properties.size());
  const bool other      = state.count == properties;
  begin_value(other ? object.additional : object.properties[state.count].value,
              new_frame(state, kNext, other ? properties : state.count + 1));
}

void JsonMatcher::advance_object(const Object& object, const State& state, uint8_t byte) {
  const bool may_close = object.required_from[state.count] == object.properties.size();
  switch (state.position & ((1 << kPhaseBits) - 1)) {
    case kOpen:
      if (byte != '{') break;
      if (may_close) add({state.node, kFirst, 0, state.parent});
      begin_name(object, state);
      break;
    case kFirst:
      if (byte == '}') end_value(state.parent);
      break;
    case kNext:
      if (byte == '}' && may_close) end_value(state.parent);
      if (byte == ',' && begin_name(object, state)) add({state.node, kComma, state.count, state.parent});
      break;
    case kComma:
      if (byte == ' ') begin_name(object, state);
      break;
    case kName: {
      const auto name = object.names.step(state.position >> kPhaseBits, byte);
      if (!name || !may_become(object, state, *name)) break;
      if (object.names.accepts(*name))
        add({state.node, kColon, object.candidates[*name].front(), state.parent});
      else
        add({state.node, kName | *name << kPhaseBits, state.count, state.parent});
      break;
    }
    case kColon:
      if (byte != ':') break;
      add({state.node, kValue, state.count, state.parent});
      begin_property(object, state);
      break;
    case kValue:
      if (byte == ' ') begin_property(object, state);
      break;
  }
}

// Adds the states that may begin the next item. Returns whether there is any.
bool JsonMatcher::begin_item(const Array& array, const State& state) {
  const NodeId item = grammar_->item(array, state.count);
  if ((array.max && state.count >= *array.max) || !fits(item, depth(state.parent) + 1)) return false;
  // Without a maximum, counting stops where the count no longer matters.
  const auto counted = std::max<int64_t>(array.min, static_cast<int64_t>(array.prefix.size()));
  const bool counts  = array.max || state.count < counted;
  begin_value(item, new_frame(state, kNext, state.count + counts));
  return true;
}

void JsonMatcher::advance_array(const Array& array, const State& state, uint8_t byte) {
  switch (state.position) {
    case kOpen:
      if (byte != '[') break;
      if (array.min == 0) add({state.node, kFirst, 0, state.parent});
      begin_item(array, state);
      break;
    case kFirst:
      if (byte == ']') end_value(state.parent);
      break;
    case kNext:
      if (byte == ']' && state.count >= array.min) end_value(state.parent);
      if (byte == ',' && begin_item(array, state)) add({state.node, kComma, state.count, state.parent});
      break;
    case kComma:
      if (byte == ' ') begin_item(array, state);
      break;
  }
}

}  // namespace fathom::grammar
