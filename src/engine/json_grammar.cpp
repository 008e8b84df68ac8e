#include "engine/json_grammar.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/expect.h"
#include "engine/string_pattern.h"

namespace fathom::engine {
namespace {

constexpr int kNoHeight = kMaxJsonDepth + 1;

// What an object or array waits for. A way within a name has the name's state in the bits above.
enum Phase : uint32_t {
  kOpen,
  kFirst,  // the closing bracket at once; names and values that may come instead are ways of their own
  kNext,   // a comma or the closing bracket
  kComma,  // the space after one, likewise
  kName,
  kColon,
  kValue,  // the space before it
};
constexpr int kPhaseBits = 3;

// A string before its quote; its states after are StringState.
constexpr auto kUnquoted = static_cast<uint32_t>(StringState::closed);

using Choice = JsonGrammar::Choice;
using Object = JsonGrammar::Object;
using Array  = JsonGrammar::Array;

// Alternatives that are choices themselves are replaced by theirs, so that no circle of choices is left.
bool flatten_choices(JsonGrammar& grammar, CompileBudget& budget) {
  std::vector<NodeId> seen_by(grammar.nodes.size(), kNever), open;
  std::vector<std::pair<NodeId, std::vector<NodeId>>> flat;
  for (NodeId node = 0; node < grammar.nodes.size(); ++node) {
    const auto* choice = std::get_if<Choice>(&grammar.nodes[node]);
    if (choice == nullptr) continue;
    std::vector<NodeId> alternatives;
    open.assign(choice->alternatives.rbegin(), choice->alternatives.rend());
    while (!open.empty()) {
      const NodeId next = open.back();
      open.pop_back();
      if (!budget.spend(1)) return false;
      if (next == kNever || std::exchange(seen_by[next], node) == node) continue;
      if (const auto* inner = std::get_if<Choice>(&grammar.nodes[next]))
        open.insert(open.end(), inner->alternatives.rbegin(), inner->alternatives.rend());
      else
        alternatives.push_back(next);
    }
    flat.emplace_back(node, std::move(alternatives));
  }
  for (auto& [node, alternatives] : flat)
    std::get<Choice>(grammar.nodes[node]).alternatives = std::move(alternatives);
  return true;
}

// From those of its parts, as far as they are known.
int height_of(const JsonGrammar& grammar, const JsonGrammar::Node& node) {
  if (const auto* regular = std::get_if<JsonGrammar::Regular>(&node))
    return regular->dfa.empty() ? kNoHeight : 0;
  if (const auto* string = std::get_if<JsonGrammar::String>(&node))
    return string->max && *string->max < string->min ? kNoHeight : 0;
  if (const auto* choice = std::get_if<Choice>(&node)) {
    int height = kNoHeight;
    for (const NodeId alternative : choice->alternatives)
      height = std::min(height, grammar.height(alternative));
    return height;
  }
  int inner = 0;
  if (const auto* object = std::get_if<Object>(&node)) {
    for (const auto& property : object->properties)
      if (property.required) inner = std::max(inner, grammar.height(property.value));
  } else {
    const auto& array = std::get<Array>(node);
    if (array.max && *array.max < array.min) return kNoHeight;
    for (size_t i = 0; i < array.first.size() && static_cast<int64_t>(i) < array.min; ++i)
      inner = std::max(inner, grammar.height(array.first[i]));
    if (array.min > static_cast<int64_t>(array.first.size()))
      inner = std::max(inner, grammar.height(array.rest));
  }
  return std::min(inner + 1, kNoHeight);
}

bool find_heights(JsonGrammar& grammar, CompileBudget& budget) {
  grammar.heights.assign(grammar.nodes.size(), kNoHeight);
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = 0; i < grammar.nodes.size(); ++i) {
      const int height = height_of(grammar, grammar.nodes[i]);
      changed |= height != grammar.heights[i];
      grammar.heights[i] = height;
    }
    if (!budget.spend(static_cast<int64_t>(grammar.nodes.size()))) return false;
  }
  return true;
}

// Canonical strings but `names`.
std::optional<ByteDfa> strings_without(const ByteDfa& names, CompileBudget& budget) {
  const auto strings = compile_string_pattern("", {}, budget);
  if (!strings) return std::nullopt;
  struct Both {
    ByteDfa::State string;
    std::optional<ByteDfa::State> name;  // while it may still become one
    auto operator<=>(const Both&) const = default;
  };
  const auto edges_of = [&](const Both& at) {
    std::vector<std::tuple<uint8_t, uint8_t, Both>> out;
    for (const ByteDfa::Edge& edge : strings->edges(at.string)) {
      int next = edge.first;
      if (at.name)
        for (const ByteDfa::Edge& name : names.edges(*at.name)) {  // each of one byte
          if (name.first < edge.first || name.first > edge.last) continue;
          if (next < name.first)
            out.push_back({static_cast<uint8_t>(next), static_cast<uint8_t>(name.first - 1), {edge.to, {}}});
          out.push_back({name.first, name.first, {edge.to, name.to}});
          next = name.first + 1;
        }
      if (next <= edge.last) out.push_back({static_cast<uint8_t>(next), edge.last, {edge.to, {}}});
    }
    return out;
  };
  const auto accepts = [&](const Both& at) {
    return strings->accepts(at.string) && !(at.name && names.accepts(*at.name));
  };
  const auto start = names.empty() ? std::nullopt : std::optional<ByteDfa::State>(0);
  return ByteDfa::explore(Both{0, start}, edges_of, accepts, budget);
}

}  // namespace

Status JsonGrammar::finish(CompileBudget& budget) {
  const Error over_budget{"the schema is too large to enforce: shorten it, its repeats and its enumerations"};
  if (!flatten_choices(*this, budget) || !find_heights(*this, budget)) return over_budget;
  if (height(root) > kMaxJsonDepth)
    return Error{"no JSON value matches the schema, or none that is nested less than " +
                 std::to_string(kMaxJsonDepth) + " deep: its constraints contradict each other"};
  for (const Node& node : nodes)
    if (const auto* choice = std::get_if<Choice>(&node);
        choice && choice->alternatives.size() > JsonMatcher::kMaxWays)
      return Error{"the schema has a choice of more than " + std::to_string(JsonMatcher::kMaxWays) +
                   " alternatives: put constants into one enum"};
  for (size_t i = 0, count = nodes.size(); i < count; ++i) {
    auto* object = std::get_if<Object>(&nodes[i]);
    if (object == nullptr || heights[i] > kMaxJsonDepth) continue;
    const auto properties = static_cast<uint32_t>(object->properties.size());
    object->required_from.assign(properties + 1, properties);
    std::vector<std::string> names;
    for (uint32_t p = properties; p-- > 0;) {
      object->required_from[p] = object->properties[p].required ? p : object->required_from[p + 1];
      if (height(object->properties[p].value) <= kMaxJsonDepth)
        names.push_back(canonical_json_string(object->properties[p].name));
    }
    if (!names.empty()) {
      auto dfa = dfa_of_literals(names, budget);
      if (!dfa) return over_budget;
      object->names = std::move(*dfa);
      object->candidates.resize(object->names.size());
      for (uint32_t p = 0; p < properties; ++p) {
        if (height(object->properties[p].value) > kMaxJsonDepth) continue;
        ByteDfa::State state = 0;
        object->candidates[state].push_back(p);
        for (const char c : canonical_json_string(object->properties[p].name)) {
          state = *object->names.step(state, static_cast<uint8_t>(c));
          object->candidates[state].push_back(p);
        }
      }
    }
    if (height(object->others) > kMaxJsonDepth) continue;
    // Those that can have no value must not come as others either.
    names.clear();
    for (const Property& property : object->properties) names.push_back(canonical_json_string(property.name));
    Node other_name = String{};
    if (!names.empty()) {
      const auto dfa = dfa_of_literals(names, budget);
      auto others    = dfa ? strings_without(*dfa, budget) : std::nullopt;
      if (!others) return over_budget;
      other_name = Regular{std::move(*others)};
    }
    object->other_name = static_cast<NodeId>(nodes.size());
    nodes.push_back(std::move(other_name));  // `object` is not valid from here on
    heights.push_back(0);
  }
  return Ok{};
}

JsonMatcher::JsonMatcher(std::shared_ptr<const JsonGrammar> grammar) : grammar_(std::move(grammar)) {
  begin_step();
  begin_value(grammar_->root, kNone);
  FATHOM_EXPECT(!ways_.empty(), "a grammar without a value: finish() refuses it");
}

bool JsonMatcher::push(uint8_t byte) {
  const size_t begin = steps_.back().ways_begin, end = ways_.size();
  begin_step();
  work_ += static_cast<int64_t>(end - begin);
  for (size_t i = begin; i < end; ++i) advance(Way(ways_[i]), byte);
  return end_step();
}

bool JsonMatcher::end_step() {
  if (steps_.back().complete || ways_.size() > steps_.back().ways_begin) return true;
  pop();
  return false;
}

void JsonMatcher::pop() {
  FATHOM_EXPECT(steps_.size() > 1, "no step to take back");
  ways_.resize(steps_.back().ways_begin);
  frames_.resize(steps_.back().frames_begin);
  steps_.pop_back();
}

void JsonMatcher::commit() {
  ways_.erase(ways_.begin(), ways_.begin() + static_cast<std::ptrdiff_t>(steps_.back().ways_begin));
  steps_ = {{0, 0, steps_.back().complete}};
  // Frames that no way needs any more go. A parent comes before its children.
  std::vector<uint32_t> renamed(frames_.size(), kNone);
  for (const Way& way : ways_)
    for (uint32_t at = way.parent; at != kNone && renamed[at] == kNone; at = frames_[at].parent)
      renamed[at] = 0;
  uint32_t kept = 0;
  for (uint32_t i = 0; i < frames_.size(); ++i) {
    if (renamed[i] == kNone) continue;
    renamed[i]    = kept;
    frames_[kept] = frames_[i];
    if (frames_[kept].parent != kNone) frames_[kept].parent = renamed[frames_[kept].parent];
    ++kept;
  }
  frames_.resize(kept);
  for (Way& way : ways_)
    if (way.parent != kNone) way.parent = renamed[way.parent];
}

std::vector<JsonMatcher::OpenString> JsonMatcher::open_strings() const {
  std::vector<OpenString> open;
  for (size_t i = steps_.back().ways_begin; i < ways_.size(); ++i) {
    const Way& way     = ways_[i];
    const auto* string = std::get_if<JsonGrammar::String>(&grammar_->nodes[way.node]);
    if (string == nullptr || way.at != static_cast<uint32_t>(StringState::body)) continue;
    open.push_back({i, string->min - way.count,
                    string->max ? *string->max - way.count : std::numeric_limits<int64_t>::max()});
  }
  return open;
}

void JsonMatcher::push_closed(size_t way) {
  const uint32_t parent = ways_[way].parent;
  begin_step();
  whole(parent);
}

bool JsonMatcher::push_others() {
  const size_t begin = steps_.back().ways_begin, end = ways_.size();
  begin_step();
  for (size_t i = begin; i < end; ++i) {
    const Way way = ways_[i];
    if (!std::holds_alternative<JsonGrammar::String>(grammar_->nodes[way.node]) ||
        way.at != static_cast<uint32_t>(StringState::body))
      ways_.push_back(way);
  }
  return end_step();
}

void JsonMatcher::add(const Way& way) {
  const auto begin = ways_.begin() + static_cast<std::ptrdiff_t>(steps_.back().ways_begin);
  const auto count = static_cast<size_t>(ways_.end() - begin);
  work_ += static_cast<int64_t>(count / 16);  // looked through
  if (count < kMaxWays && std::find(begin, ways_.end(), way) == ways_.end()) ways_.push_back(way);
}

uint32_t JsonMatcher::new_frame(const Way& way, uint32_t phase, uint32_t count) {
  frames_.push_back({way.node, phase, count, way.parent, depth(way.parent) + 1});
  return static_cast<uint32_t>(frames_.size() - 1);
}

void JsonMatcher::whole(uint32_t parent) {
  if (parent == kNone) {
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
  static_assert(kOpen == 0, "an automaton's first state, and an object's or array's");
  if (std::holds_alternative<JsonGrammar::String>(grammar_->nodes[node]))
    add({node, kUnquoted, 0, parent});
  else
    add({node, 0, 0, parent});
}

void JsonMatcher::advance(const Way& way, uint8_t byte) {
  const JsonGrammar::Node& node = grammar_->nodes[way.node];
  if (const auto* string = std::get_if<JsonGrammar::String>(&node))
    advance_string(*string, way, byte);
  else if (const auto* regular = std::get_if<JsonGrammar::Regular>(&node))
    advance_regular(*regular, way, byte);
  else if (const auto* object = std::get_if<Object>(&node))
    advance_object(*object, way, byte);
  else
    advance_array(std::get<Array>(node), way, byte);
}

void JsonMatcher::advance_regular(const JsonGrammar::Regular& regular, Way way, uint8_t byte) {
  const auto next = regular.dfa.step(way.at, byte);
  if (!next) return;
  if (regular.dfa.accepts(*next)) whole(way.parent);
  way.at = *next;
  if (!regular.dfa.ends(*next)) add(way);
}

void JsonMatcher::advance_string(const JsonGrammar::String& string, Way way, uint8_t byte) {
  constexpr auto kBody = static_cast<uint32_t>(StringState::body);
  if (way.at == kUnquoted) {
    way.at = kBody;
    if (byte == '"') add(way);
    return;
  }
  const StringState next = kStringTable[way.at][byte];
  if (next == StringState::invalid) return;
  if (next == StringState::closed) {
    if (way.count >= string.min) whole(way.parent);
    return;
  }
  if (way.at == kBody) {  // a character begins
    if (string.max && way.count == *string.max) return;
    if (string.max || way.count < string.min) ++way.count;
  }
  way.at = static_cast<uint32_t>(next);
  add(way);
}

// A name of a property that is still to come: those before are past, a required one is not passed over, and
// its value must find room.
bool JsonMatcher::may_become(const Object& object, const Way& way, ByteDfa::State name) const {
  const std::vector<uint32_t>& candidates = object.candidates[name];
  const uint32_t last                     = object.required_from[way.count];
  for (auto p = std::lower_bound(candidates.begin(), candidates.end(), way.count);
       p != candidates.end() && *p <= last; ++p)
    if (fits(object.properties[*p].value, depth(way.parent) + 1)) return true;
  return false;
}

// Whether there is any that may come.
bool JsonMatcher::begin_name(const Object& object, const Way& way) {
  bool any = false;
  if (!object.names.empty() && may_become(object, way, 0)) {
    add({way.node, kName, way.count, way.parent});
    any = true;
  }
  const auto properties = static_cast<uint32_t>(object.properties.size());
  if (object.required_from[way.count] == properties && fits(object.others, depth(way.parent) + 1)) {
    begin_value(object.other_name, new_frame(way, kColon, properties));
    any = true;
  }
  return any;
}

void JsonMatcher::begin_property(const Object& object, const Way& way) {
  const auto properties = static_cast<uint32_t>(object.properties.size());
  const bool other      = way.count == properties;
  begin_value(other ? object.others : object.properties[way.count].value,
              new_frame(way, kNext, other ? properties : way.count + 1));
}

void JsonMatcher::advance_object(const Object& object, const Way& way, uint8_t byte) {
  const bool may_close = object.required_from[way.count] == object.properties.size();
  switch (way.at & ((1 << kPhaseBits) - 1)) {
    case kOpen:
      if (byte != '{') break;
      if (may_close) add({way.node, kFirst, 0, way.parent});
      begin_name(object, way);
      break;
    case kFirst:
      if (byte == '}') whole(way.parent);
      break;
    case kNext:
      if (byte == '}' && may_close) whole(way.parent);
      if (byte == ',' && begin_name(object, way)) add({way.node, kComma, way.count, way.parent});
      break;
    case kComma:
      if (byte == ' ') begin_name(object, way);
      break;
    case kName: {
      const auto name = object.names.step(way.at >> kPhaseBits, byte);
      if (!name || !may_become(object, way, *name)) break;
      if (object.names.accepts(*name))
        add({way.node, kColon, object.candidates[*name].front(), way.parent});
      else
        add({way.node, kName | *name << kPhaseBits, way.count, way.parent});
      break;
    }
    case kColon:
      if (byte != ':') break;
      add({way.node, kValue, way.count, way.parent});
      begin_property(object, way);
      break;
    case kValue:
      if (byte == ' ') begin_property(object, way);
      break;
  }
}

// Whether one may come.
bool JsonMatcher::begin_item(const Array& array, const Way& way) {
  const NodeId item = grammar_->item(array, way.count);
  if ((array.max && way.count >= *array.max) || !fits(item, depth(way.parent) + 1)) return false;
  // Without a maximum it stops counting where the count no longer matters.
  const auto counted = std::max<int64_t>(array.min, static_cast<int64_t>(array.first.size()));
  const bool counts  = array.max || way.count < counted;
  begin_value(item, new_frame(way, kNext, way.count + counts));
  return true;
}

void JsonMatcher::advance_array(const Array& array, const Way& way, uint8_t byte) {
  switch (way.at) {
    case kOpen:
      if (byte != '[') break;
      if (array.min == 0) add({way.node, kFirst, 0, way.parent});
      begin_item(array, way);
      break;
    case kFirst:
      if (byte == ']') whole(way.parent);
      break;
    case kNext:
      if (byte == ']' && way.count >= array.min) whole(way.parent);
      if (byte == ',' && begin_item(array, way)) add({way.node, kComma, way.count, way.parent});
      break;
    case kComma:
      if (byte == ' ') begin_item(array, way);
      break;
  }
}

}  // namespace fathom::engine
