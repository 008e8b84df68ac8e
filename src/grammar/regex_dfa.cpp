#include "grammar/regex_dfa.h"

#include <array>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "grammar/json_string.h"
#include "grammar/regex_parser.h"

namespace fathom::grammar {
namespace {

using Kind = RegexNode::Kind;

struct OverBudget {};

// An NFA over the bytes of canonical JSON, built by Thompson's construction.
class Nfa {
 public:
  using State = uint32_t;

  struct Edge {
    uint8_t first, last;
    State to;
    bool begins_character;
  };

  explicit Nfa(CompileBudget& budget) : budget_(budget) {}

  State state() {
    spend(1);
    states_.emplace_back();
    return static_cast<State>(states_.size() - 1);
  }
  void edge(State from, const Edge& edge) {
    spend(1);
    states_[from].edges.push_back(edge);
  }
  void epsilon_edge(State from, State to) {
    spend(1);
    states_[from].epsilon.push_back(to);
  }

  // Adds `expression` starting at `from`. Returns its end state.
  State add(const RegexNode& expression, State from) {
    switch (expression.kind) {
      case Kind::characters: {
        const State to = state();
        for (const CodePoints& range : expression.characters) add_characters(range, from, to);
        return to;
      }
      case Kind::sequence:
        for (const RegexNode& part : expression.parts) from = add(part, from);
        return from;
      case Kind::alternatives: {
        const State to = state();
        for (const RegexNode& part : expression.parts) {
          const State own = state();  // so that a loop at a part's start cannot enter the other parts
          epsilon_edge(from, own);
          epsilon_edge(add(part, own), to);
        }
        return to;
      }
      case Kind::repeat:
        break;
    }
    const RegexNode& part = expression.parts[0];
    for (int64_t i = 0; i < expression.min; ++i) from = add(part, from);
    if (!expression.max) {
      const State loop = state(), to = state();
      epsilon_edge(from, loop);
      epsilon_edge(add(part, loop), loop);
      epsilon_edge(loop, to);
      return to;
    }
    const State to = state();
    for (int64_t i = expression.min; i < *expression.max; ++i) {
      epsilon_edge(from, to);
      from = add(part, from);
    }
    epsilon_edge(from, to);
    return to;
  }

  // The epsilon closure of `open`, sorted, without states that have epsilon edges only.
  std::vector<State> closure(std::vector<State> open) const {
    std::vector<State> closed;
    marks_.resize(states_.size());
    ++mark_;
    while (!open.empty()) {
      const State state = open.back();
      open.pop_back();
      if (std::exchange(marks_[state], mark_) == mark_) continue;
      budget_.spend(1);
      if (!states_[state].edges.empty() || states_[state].epsilon.empty()) closed.push_back(state);
      open.insert(open.end(), states_[state].epsilon.begin(), states_[state].epsilon.end());
    }
    std::sort(closed.begin(), closed.end());
    return closed;
  }

  const std::vector<Edge>& edges(State state) const { return states_[state].edges; }

 private:
  struct Edges {
    std::vector<Edge> edges;
    std::vector<State> epsilon;
  };

  void spend(int64_t steps) const {
    if (!budget_.spend(steps)) throw OverBudget{};
  }

  void add_bytes(const std::vector<std::pair<uint8_t, uint8_t>>& bytes, State from, State to) {
    for (size_t i = 0; i < bytes.size(); ++i) {
      const State next = i + 1 == bytes.size() ? to : state();
      edge(from, {bytes[i].first, bytes[i].second, next, i == 0});
      from = next;
    }
  }

  // Splits the range where the number of bytes changes and at surrogates, then until the bytes of each
  // position can be combined freely.
  void add_utf8(uint32_t first, uint32_t last, State from, State to) {
    for (const uint32_t cut : {0x7Fu, 0x7FFu, 0xD7FFu, 0xDFFFu, 0xFFFFu})
      if (first <= cut && last > cut) {
        add_utf8(first, cut, from, to);
        return add_utf8(cut + 1, last, from, to);
      }
    if (first >= 0xD800 && last <= 0xDFFF) return;
    const int more = last < 0x80 ? 0 : last < 0x800 ? 1 : last < 0x10000 ? 2 : 3;
    for (int i = 1; i <= more; ++i) {
      const uint32_t tail = (1u << (6 * i)) - 1;
      if ((first & ~tail) == (last & ~tail)) continue;
      if ((first & tail) != 0) {
        add_utf8(first, first | tail, from, to);
        return add_utf8((first | tail) + 1, last, from, to);
      }
      if ((last & tail) != tail) {
        add_utf8(first, (last & ~tail) - 1, from, to);
        return add_utf8(last & ~tail, last, from, to);
      }
    }
    constexpr std::array<uint8_t, 4> kLead = {0, 0xC0, 0xE0, 0xF0};
    std::vector<std::pair<uint8_t, uint8_t>> bytes;
    for (int i = 0; i <= more; ++i) {
      const int shift     = 6 * (more - i);
      const uint8_t mark  = i == 0 ? kLead[static_cast<size_t>(more)] : 0x80;
      const uint32_t mask = i == 0 ? 0xFF : 0x3F;
      bytes.push_back({static_cast<uint8_t>(mark | (first >> shift & mask)),
                       static_cast<uint8_t>(mark | (last >> shift & mask))});
    }
    add_bytes(bytes, from, to);
  }

  void add_characters(CodePoints range, State from, State to) {
    while (range.first <= range.last) {
      uint32_t last = range.first;  // end of a run with one kind of spelling
      if (const std::string escape = escape_of(range.first); !escape.empty()) {
        std::vector<std::pair<uint8_t, uint8_t>> bytes;
        for (const char c : escape) bytes.push_back({static_cast<uint8_t>(c), static_cast<uint8_t>(c)});
        for (std::string next = escape; last < range.last; ++last) {  // \u0000 to \u0007 at once
          ++next.back();
          if (escape_of(last + 1) != next) break;
          ++bytes.back().second;
        }
        add_bytes(bytes, from, to);
      } else {
        for (const uint32_t end : {uint32_t{'"'} - 1, uint32_t{'\\'} - 1, kLastCodePoint})
          if (last = std::min(end, range.last); range.first <= end) break;
        add_utf8(range.first, last, from, to);
      }
      range.first = last + 1;
    }
  }

  static std::string escape_of(uint32_t character) {
    return character <= '\\' ? canonical_json_escape(static_cast<uint8_t>(character)) : "";
  }

  CompileBudget& budget_;
  std::vector<Edges> states_;
  mutable std::vector<uint32_t> marks_;  // scratch of closure()
  mutable uint32_t mark_ = 0;
};

// A DFA state: the set of NFA states, and the number of characters read, as far as the length bounds need it.
struct Subset {
  std::vector<Nfa::State> states;
  int64_t characters                    = 0;
  auto operator<=>(const Subset&) const = default;
};

Result<ByteDfa> determinise(const Nfa& nfa, Nfa::State start, Nfa::State end, const StringLength& length,
                            CompileBudget& budget) {
  const auto edges_of = [&](const Subset& from) {
    std::array<bool, 257> cuts{};  // bytes at which an edge begins, or before which one ends
    for (const Nfa::State state : from.states)
      for (const Nfa::Edge& edge : nfa.edges(state)) cuts[edge.first] = cuts[edge.last + 1] = true;
    struct Stretch {
      std::vector<Nfa::State> to;
      bool begins_character = false;  // equal for all edges: the byte determines it
    };
    std::array<Stretch, 256> stretches;  // between cuts, by first byte
    for (const Nfa::State state : from.states)
      for (const Nfa::Edge& edge : nfa.edges(state))
        for (size_t byte = edge.first; byte <= edge.last; ++byte) {
          if (!cuts[byte]) continue;
          budget.spend(1);
          stretches[byte].to.push_back(edge.to);
          stretches[byte].begins_character = edge.begins_character;
        }
    std::vector<std::tuple<uint8_t, uint8_t, Subset>> out;
    for (size_t first = 0; first < 256 && budget.left >= 0; ++first) {
      auto& [to, begins_character] = stretches[first];
      if (to.empty()) continue;
      size_t last = first;
      while (last < 255 && !cuts[last + 1]) ++last;
      int64_t characters = from.characters + (begins_character ? 1 : 0);
      if (length.max && characters > *length.max) continue;
      if (!length.max) characters = std::min(characters, length.min);
      out.push_back({static_cast<uint8_t>(first),
                     static_cast<uint8_t>(last),
                     {nfa.closure(std::move(to)), characters}});
    }
    return out;
  };
  const auto accepts = [&](const Subset& subset) {
    return subset.characters >= length.min &&
           std::binary_search(subset.states.begin(), subset.states.end(), end);
  };
  auto dfa = ByteDfa::explore(Subset{nfa.closure({start})}, edges_of, accepts, budget);
  if (!dfa) throw OverBudget{};
  return std::move(*dfa);
}

Result<ByteDfa> compile(std::string_view pattern, bool quoted, const StringLength& length,
                        CompileBudget& budget) {
  const auto expression = parse_regex(pattern);
  if (!expression) return expression.error();
  try {
    Nfa nfa(budget);
    const auto quote = [&](Nfa::State from) {
      if (!quoted) return from;
      const Nfa::State to = nfa.state();
      nfa.edge(from, {'"', '"', to, false});
      return to;
    };
    const Nfa::State start = nfa.state();
    const Nfa::State end   = quote(nfa.add(*expression, quote(start)));
    return determinise(nfa, start, end, length, budget);
  } catch (const OverBudget&) {
    return Error{"it needs too large an automaton: shorten repeats and lengths"};
  }
}

}  // namespace

Result<ByteDfa> compile_string_regex(std::string_view pattern, const StringLength& length,
                                     CompileBudget& budget) {
  return compile(pattern, true, length, budget);
}

Result<ByteDfa> compile_text_regex(std::string_view pattern, CompileBudget& budget) {
  return compile(pattern, false, {}, budget);
}

}  // namespace fathom::grammar
