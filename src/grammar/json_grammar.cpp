#include "grammar/json_grammar.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/expect.h"
#include "grammar/json_string.h"
#include "grammar/regex_dfa.h"

namespace fathom::grammar {
namespace {

constexpr int kNoHeight = kMaxJsonDepth + 1;

using Choice = JsonGrammar::Choice;
using Object = JsonGrammar::Object;
using Array  = JsonGrammar::Array;

// Replaces alternatives that are choices by their alternatives, so that no cycle of choices is left.
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

// The height of a node, from the heights of its children known so far.
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
    for (size_t i = 0; i < array.prefix.size() && static_cast<int64_t>(i) < array.min; ++i)
      inner = std::max(inner, grammar.height(array.prefix[i]));
    if (array.min > static_cast<int64_t>(array.prefix.size()))
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

// All canonical strings except `names`: the product of the two automata.
std::optional<ByteDfa> strings_without(const ByteDfa& names, CompileBudget& budget) {
  const auto strings = compile_string_regex("", {}, budget);
  if (!strings) return std::nullopt;
  struct Both {
    ByteDfa::State string;
    std::optional<ByteDfa::State> name;  // empty once the string cannot become a name
    auto operator<=>(const Both&) const = default;
  };
  const auto edges_of = [&](const Both& at) {
    std::vector<std::tuple<uint8_t, uint8_t, Both>> out;
    for (const ByteDfa::Edge& edge : strings->edges(at.string)) {
      int next = edge.first;
      if (at.name)
        for (const ByteDfa::Edge& name : names.edges(*at.name)) {  // one byte each
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

Status JsonGrammar::compile(CompileBudget& budget) {
  const Error over_budget{"the schema is too large to enforce: shorten it, its repeats and its enumerations"};
  if (!flatten_choices(*this, budget) || !find_heights(*this, budget)) return over_budget;
  if (height(root) > kMaxJsonDepth)
    return Error{"no JSON value matches the schema, or none that is nested less than " +
                 std::to_string(kMaxJsonDepth) + " deep: its constraints contradict each other"};
  for (const Node& node : nodes)
    if (const auto* choice = std::get_if<Choice>(&node);
        choice && choice->alternatives.size() > kMaxParserStates)
      return Error{"the schema has a choice of more than " + std::to_string(kMaxParserStates) +
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
      auto dfa = compile_literals(names, budget);
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
    if (height(object->additional) > kMaxJsonDepth) continue;
    // Properties that can have no value must not come as additional ones either.
    names.clear();
    for (const Property& property : object->properties) names.push_back(canonical_json_string(property.name));
    Node additional_name = String{};
    if (!names.empty()) {
      const auto dfa = compile_literals(names, budget);
      auto others    = dfa ? strings_without(*dfa, budget) : std::nullopt;
      if (!others) return over_budget;
      additional_name = Regular{std::move(*others)};
    }
    object->additional_name = static_cast<NodeId>(nodes.size());
    nodes.push_back(std::move(additional_name));  // invalidates `object`
    heights.push_back(0);
  }
  return Ok{};
}

}  // namespace fathom::grammar
