// Deterministic finite automata over bytes, for the regular parts of JSON: literals, numbers, strings with a
// pattern.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace fathom::grammar {

// Steps left for compiling a client's schema. One costs some 100 ns and some 100 bytes.
struct CompileBudget {
  int64_t left;

  bool spend(int64_t steps) { return (left -= steps) >= 0; }
};

// State 0 is the start. Every state can reach an accepting one; an automaton that accepts nothing has no
// states.
class ByteDfa {
 public:
  using State = uint32_t;

  struct Edge {
    uint8_t first, last;  // bytes
    State to;
  };

  ByteDfa() = default;
  // edges[s]: the edges of state s, disjoint and in order of their bytes. Drops states that cannot reach an
  // accepting one.
  ByteDfa(const std::vector<std::vector<Edge>>& edges, const std::vector<bool>& accepts);

  // Builds the automaton of the states reachable from `start`. edges_of(state) returns disjoint
  // (first byte, last byte, next state) in order. std::nullopt when the budget is spent.
  template <class S, class EdgesOf, class Accepts>
  static std::optional<ByteDfa> explore(S start, EdgesOf edges_of, Accepts accepts, CompileBudget& budget);

  bool empty() const { return states_.empty(); }
  size_t size() const { return states_.size(); }
  bool accepts(State state) const { return states_[state].accepts; }
  bool ends(State state) const { return edges(state).empty(); }
  std::span<const Edge> edges(State state) const {
    return std::span(edges_).subspan(states_[state].begin, states_[state].count);
  }

  std::optional<State> step(State state, uint8_t byte) const {
    for (const Edge& edge : edges(state))
      if (byte <= edge.last) return byte >= edge.first ? std::optional(edge.to) : std::nullopt;
    return std::nullopt;
  }

 private:
  struct StateEdges {
    uint32_t begin = 0, count = 0;
    bool accepts = false;
  };
  std::vector<StateEdges> states_;
  std::vector<Edge> edges_;
};

// Accepts exactly these literals. None may be empty.
std::optional<ByteDfa> compile_literals(std::vector<std::string> literals, CompileBudget& budget);

template <class S, class EdgesOf, class Accepts>
std::optional<ByteDfa> ByteDfa::explore(S start, EdgesOf edges_of, Accepts accepts, CompileBudget& budget) {
  std::map<S, State> ids;
  std::vector<const S*> order;  // by id; the map never moves its keys
  const auto id_of = [&](S state) {
    const auto [place, is_new] = ids.try_emplace(std::move(state), static_cast<State>(order.size()));
    if (is_new) order.push_back(&place->first);
    return place->second;
  };
  id_of(std::move(start));
  std::vector<std::vector<Edge>> edges;
  std::vector<bool> accepting;
  for (size_t at = 0; at < order.size(); ++at) {
    accepting.push_back(accepts(*order[at]));
    std::vector<Edge>& out = edges.emplace_back();
    for (auto& [first, last, to] : edges_of(*order[at])) {
      const State id = id_of(std::move(to));
      if (!out.empty() && out.back().to == id && out.back().last + 1 == first)
        out.back().last = last;
      else
        out.push_back({first, last, id});
    }
    if (!budget.spend(1 + static_cast<int64_t>(out.size()))) return std::nullopt;
  }
  return ByteDfa(edges, accepting);
}

}  // namespace fathom::grammar
