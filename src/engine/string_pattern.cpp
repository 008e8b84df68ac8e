#include "engine/string_pattern.h"

#include <array>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/json_string.h"
#include "engine/regular_expression.h"

namespace fathom::engine {
namespace {

using Kind = Expression::Kind;

struct OverBudget {};

// Thompson's automaton, over the bytes of canonical JSON.
class Nfa {
 public:
  using State = uint32_t;

  struct Edge {
    uint8_t first, last;
    State to;
    bool begins;  // a character
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
  void free_edge(State from, State to) {
    spend(1);
    states_[from].free.push_back(to);
  }

  // The state after `expression` that begins at `from`.
  State add(const Expression& expression, State from) {
    switch (expression.kind) {
      case Kind::characters: {
        const State to = state();
        for (const CodePoints& range : expression.characters) add_characters(range, from, to);
        return to;
      }
      case Kind::sequence:
        for (const Expression& part : expression.parts) from = add(part, from);
        return from;
      case Kind::alternatives: {
        const State to = state();
        for (const Expression& part : expression.parts) {
          const State own = state();  // so that a loop at a part's begin stays that part's
          free_edge(from, own);
          free_edge(add(part, own), to);
        }
        return to;
      }
      case Kind::repeat:
        break;
    }
    const Expression& part = expression.parts[0];
    for (int64_t i = 0; i < expression.min; ++i) from = add(part, from);
    if (!expression.max) {
      const State loop = state(), to = state();
      free_edge(from, loop);
      free_edge(add(part, loop), loop);
      free_edge(loop, to);
      return to;
    }
    const State to = state();
    for (int64_t i = expression.min; i < *expression.max; ++i) {
      free_edge(from, to);
      from = add(part, from);
    }
    free_edge(from, to);
    return to;
  }

  // Those of `states` and all that lie behind free edges, sorted; only those that matter later.
  std::vector<State> closure(std::vector<State> open) const {
    std::vector<State> closed;
    marks_.resize(states_.size());
    ++mark_;
    while (!open.empty()) {
      const State state = open.back();
      open.pop_back();
      if (std::exchange(marks_[state], mark_) == mark_) continue;
      budget_.spend(1);
      if (!states_[state].edges.empty() || states_[state].free.empty()) closed.push_back(state);
      open.insert(open.end(), states_[state].free.begin(), states_[state].free.end());
    }
    std::sort(closed.begin(), closed.end());
    return closed;
  }

  const std::vector<Edge>& edges(State state) const { return states_[state].edges; }

 private:
  struct Edges {
    std::vector<Edge> edges;
    std::vector<State> free;
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

  // Cut where the number of bytes changes, at surrogates, and until in each position any byte of its range
  // goes with any of the others.
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
      uint32_t last = range.first;  // of a run that is spelt alike
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

// Where all paths that read the same bytes are, and how many characters these were, as far as it matters.
struct Subset {
  std::vector<Nfa::State> states;
  int64_t characters                    = 0;
  auto operator<=>(const Subset&) const = default;
};

Result<ByteDfa> determinise(const Nfa& nfa, Nfa::State start, Nfa::State end, const StringLength& length,
                            CompileBudget& budget) {
  const auto edges_of = [&](const Subset& from) {
    std::array<bool, 257> cuts{};  // before these bytes some edge begins or has ended
    for (const Nfa::State state : from.states)
      for (const Nfa::Edge& edge : nfa.edges(state)) cuts[edge.first] = cuts[edge.last + 1] = true;
    struct Stretch {
      std::vector<Nfa::State> to;
      bool begins = false;  // the same for all edges: bytes say where characters begin
    };
    std::array<Stretch, 256> stretches;  // between cuts, by their first byte
    for (const Nfa::State state : from.states)
      for (const Nfa::Edge& edge : nfa.edges(state))
        for (size_t byte = edge.first; byte <= edge.last; ++byte) {
          if (!cuts[byte]) continue;
          budget.spend(1);
          stretches[byte].to.push_back(edge.to);
          stretches[byte].begins = edge.begins;
        }
    std::vector<std::tuple<uint8_t, uint8_t, Subset>> out;
    for (size_t first = 0; first < 256 && budget.left >= 0; ++first) {
      auto& [to, begins] = stretches[first];
      if (to.empty()) continue;
      size_t last = first;
      while (last < 255 && !cuts[last + 1]) ++last;
      int64_t characters = from.characters + (begins ? 1 : 0);
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
  const auto expression = parse_expression(pattern);
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

Result<ByteDfa> compile_string_pattern(std::string_view pattern, const StringLength& length,
                                       CompileBudget& budget) {
  return compile(pattern, true, length, budget);
}

Result<ByteDfa> compile_text_pattern(std::string_view pattern, CompileBudget& budget) {
  return compile(pattern, false, {}, budget);
}

std::string_view pattern_of_format(std::string_view format) {
  // RFC 3339, with the Gregorian calendar's lengths of months and leap years.
#define FATHOM_DATE                                                                                          \
  "((\\d{4}-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)|02-(0[1-9]|1\\d|2[0-8]" \
  ")))"                                                                                                      \
  "|(\\d\\d(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29)"
#define FATHOM_TIME "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,9})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)"
#define FATHOM_LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define FATHOM_BYTE "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
  constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kPatterns = {{
      {"date", "^" FATHOM_DATE "$"},
      {"time", "^" FATHOM_TIME "$"},
      {"date-time", "^" FATHOM_DATE "T" FATHOM_TIME "$"},
      // ISO 8601 as RFC 3339's appendix A has it.
      {"duration",
       "^P(\\d{1,9}W|(\\d{1,9}Y(\\d{1,9}M(\\d{1,9}D)?)?|\\d{1,9}M(\\d{1,9}D)?|\\d{1,9}D)(T(\\d{1,9}H(\\d{1,9}"
       "M(\\d{1,9}S)?)?"
       "|\\d{1,9}M(\\d{1,9}S)?|\\d{1,9}S))?|T(\\d{1,9}H(\\d{1,9}M(\\d{1,9}S)?)?|\\d{1,9}M(\\d{1,9}S)?|\\d{1,"
       "9}S))$"},
      {"uuid", "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"},
      // Of RFC 5321's addresses those without quotes, comments and literal hosts.
      {"email", "^[A-Za-z0-9_+-]+(\\.[A-Za-z0-9_+-]+)*@([A-Za-z0-9]+(-[A-Za-z0-9]+)*\\.)+[A-Za-z]{2,24}$"},
      {"hostname", "^" FATHOM_LABEL "(\\." FATHOM_LABEL "){0,3}$"},
      {"ipv4", "^(" FATHOM_BYTE "\\.){3}" FATHOM_BYTE "$"},
      {"ipv6", "^([0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}$"},
  }};
#undef FATHOM_DATE
#undef FATHOM_TIME
#undef FATHOM_LABEL
#undef FATHOM_BYTE
  for (const auto& [name, pattern] : kPatterns)
    if (name == format) return pattern;
  return "";
}

}  // namespace fathom::engine
