#include "grammar/byte_dfa.h"

namespace fathom::grammar {

ByteDfa::ByteDfa(const std::vector<std::vector<Edge>>& edges, const std::vector<bool>& accepts) {
  // States that can reach an accepting one, found backwards.
  std::vector<std::vector<State>> before(edges.size());
  for (size_t state = 0; state < edges.size(); ++state)
    for (const Edge& edge : edges[state]) before[edge.to].push_back(static_cast<State>(state));
  std::vector<bool> alive(edges.size());
  std::vector<State> open;
  for (size_t state = 0; state < edges.size(); ++state)
    if (accepts[state]) open.push_back(static_cast<State>(state));
  while (!open.empty()) {
    const State state = open.back();
    open.pop_back();
    if (alive[state]) continue;
    alive[state] = true;
    open.insert(open.end(), before[state].begin(), before[state].end());
  }
  if (edges.empty() || !alive[0]) return;

  std::vector<State> renamed(edges.size());
  State count = 0;
  for (size_t state = 0; state < edges.size(); ++state)
    if (alive[state]) renamed[state] = count++;
  for (size_t state = 0; state < edges.size(); ++state) {
    if (!alive[state]) continue;
    const auto begin = static_cast<uint32_t>(edges_.size());
    for (const Edge& edge : edges[state])
      if (alive[edge.to]) edges_.push_back({edge.first, edge.last, renamed[edge.to]});
    states_.push_back({begin, static_cast<uint32_t>(edges_.size()) - begin, accepts[state]});
  }
}

std::optional<ByteDfa> compile_literals(std::vector<std::string> literals, CompileBudget& budget) {
  std::sort(literals.begin(), literals.end());
  // A state is the range of sorted literals that share their first `bytes` bytes.
  struct Range {
    size_t begin, end, bytes;
    auto operator<=>(const Range&) const = default;
  };
  const auto edges_of = [&](const Range& range) {
    std::vector<std::tuple<uint8_t, uint8_t, Range>> edges;
    for (size_t i = range.begin; i < range.end; ++i) {
      if (literals[i].size() == range.bytes) continue;
      const auto byte = static_cast<uint8_t>(literals[i][range.bytes]);
      if (edges.empty() || std::get<0>(edges.back()) != byte)
        edges.push_back({byte, byte, {i, i, range.bytes + 1}});
      std::get<2>(edges.back()).end = i + 1;
    }
    return edges;
  };
  const auto accepts = [&](const Range& range) {
    return range.begin < range.end && literals[range.begin].size() == range.bytes;
  };
  return ByteDfa::explore(Range{0, literals.size(), 0}, edges_of, accepts, budget);
}

}  // namespace fathom::grammar
