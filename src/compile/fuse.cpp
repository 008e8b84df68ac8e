#include "compile/fuse.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/expect.h"

namespace fathom::compile {
namespace {

class Fuser {
 public:
  Fuser(const Graph& graph, int end) : graph_(graph), end_(end), typical_(graph.typical_symbols()) {
    plan_.roles = roles_of(graph);
    plan_.stored.resize(graph.nodes.size());
    readers_.resize(graph.nodes.size());
    group_of_.assign(graph.nodes.size(), -1);
    for (int id = 0; id < graph.size(); ++id)
      if (plan_.roles[static_cast<size_t>(id)] != Role::view)
        for (const int operand : graph[id].operands) readers_[kernel_or_alias(operand)].insert(id);
    for (const Output& output : graph.outputs) readers_[static_cast<size_t>(output.node)].insert(kCaller);
    for (int id = 0; id < graph.size(); ++id) {
      if (plan_.roles[static_cast<size_t>(id)] != Role::kernel) continue;
      group_of_[static_cast<size_t>(id)] = static_cast<int>(groups_.size());
      std::string reason;
      auto group = grouped({id}, reason);
      FATHOM_EXPECT(group, fmt::format("{} is no kernel: {}", describe(graph, id), reason));
      groups_.push_back(std::move(*group));
    }
  }

  // A fusion may make another one possible that was refused before it. Most often that is one of the same
  // group, so these are tried again at once; the others in another pass. There are few passes, so that the
  // time for a stack of layers grows about as their number.
  void grow() {
    for (bool grown = true; grown;) {
      grown = false;
      plan_.refusals.clear();
      const std::vector<Pair> all = pairs();
      for (size_t i = 0; i < all.size();) {
        if (is_one_group(all[i]) || !fused(all[i])) {
          ++i;
          continue;
        }
        grown               = true;
        const int group     = group_of(all[i].reader);
        const auto fused_in = all.begin() + static_cast<int64_t>(i);
        const auto again    = std::find_if(all.begin(), fused_in, [&](const Pair& pair) {
          return !is_one_group(pair) && (group_of(pair.producer) == group ||
                                         (is_kernel(pair.reader) && group_of(pair.reader) == group));
        });
        i                   = static_cast<size_t>(again - all.begin());
      }
    }
  }

  Plan plan() {
    const std::vector<int> ordered = order();
    const auto left =
        std::count_if(groups_.begin(), groups_.end(), [](const Group& g) { return !g.nodes.empty(); });
    FATHOM_EXPECT(std::ssize(ordered) == left, "fusion made launches that wait for each other");
    for (const int id : ordered) plan_.groups.push_back(std::move(groups_[static_cast<size_t>(id)]));
    for (const Group& group : plan_.groups)
      for (const int id : group.nodes)
        if (is_stored(id, group.nodes)) plan_.stored[static_cast<size_t>(id)] = true;
    return std::move(plan_);
  }

 private:
  static constexpr int kCaller = -1;
  struct Pair {
    double bytes;
    int producer, reader;
  };

  size_t kernel_or_alias(int id) const {
    while (plan_.roles[static_cast<size_t>(id)] == Role::view) id = graph_[id].operands[0];
    return static_cast<size_t>(id);
  }
  bool is_kernel(int id) const {
    return id != kCaller && plan_.roles[static_cast<size_t>(id)] == Role::kernel;
  }
  const std::set<int>& readers(int id) const { return readers_[static_cast<size_t>(id)]; }
  bool is_one_group(const Pair& pair) const {
    return is_kernel(pair.reader) && group_of(pair.producer) == group_of(pair.reader);
  }
  int group_of(int id) const { return group_of_[static_cast<size_t>(id)]; }

  bool is_stored(int id, const std::vector<int>& nodes) const {
    return readers(id).empty() || std::any_of(readers(id).begin(), readers(id).end(), [&](int reader) {
             return !std::binary_search(nodes.begin(), nodes.end(), reader);
           });
  }

  // Kernels and those that read them from other launches or under another shape, the greatest saving first.
  std::vector<Pair> pairs() const {
    std::vector<Pair> pairs;
    for (int id = 0; id < end_; ++id) {
      if (!is_kernel(id)) continue;
      const double bytes = bytes_of(graph_[id].type, typical_);
      for (const int reader : readers(id))
        if (reader != kCaller && reader < end_ && (!is_kernel(reader) || group_of(reader) != group_of(id)))
          pairs.push_back({readers(id).size() == 1 ? 2 * bytes : bytes, id, reader});
    }
    std::stable_sort(pairs.begin(), pairs.end(),
                     [](const Pair& a, const Pair& b) { return a.bytes > b.bytes; });
    return pairs;
  }

  std::optional<Group> grouped(std::vector<int> nodes, std::string& reason) const {
    Group group{.nodes = std::move(nodes)};
    std::vector<int> in_tape;
    std::vector<bool> stored(graph_.nodes.size());
    for (const int id : group.nodes) {
      stored[static_cast<size_t>(id)] = is_stored(id, group.nodes);
      if (graph_[id].op == Op::matmul) {
        group.matmul       = id;
        group.keeps_matmul = stored[static_cast<size_t>(id)];
      } else if (graph_[id].op != Op::iota && graph_[id].op != Op::pad)
        in_tape.push_back(id);
    }
    if (in_tape.empty()) return group;
    Result<Tape> tape = make_tape(graph_, plan_.roles, in_tape, stored);
    if (!tape) {
      reason = tape.error().message;
      return std::nullopt;
    }
    if (group.matmul >= 0 && !follows_rows(*tape, group.matmul)) {
      reason = "a matmul's rows are finished a few at a time, and not in this order";
      return std::nullopt;
    }
    group.tape = std::move(*tape);
    return group;
  }

  // Row i of the space needs row i of the matmul and no other.
  bool follows_rows(const Tape& tape, int matmul) const {
    if (tape.outer.empty() || tape.outer[0] != graph_[matmul].type.shape[0]) return false;
    return std::all_of(tape.leaves.begin(), tape.leaves.end(), [&](const Leaf& leaf) {
      const auto along_row = [](const AxisMap& axis) { return axis.axis != 0 || axis.step == 0; };
      return leaf.node != matmul || (leaf.map[0] == AxisMap{0, 0, 1} && along_row(leaf.map[1]));
    });
  }

  bool fused(const Pair& pair) {
    std::string reason;
    if (const auto group = fusion_of(pair, reason)) {
      take(*group, pair);
      return true;
    }
    plan_.refusals.push_back({pair.producer, pair.reader, pair.bytes, std::move(reason)});
    return false;
  }

  std::optional<Group> fusion_of(const Pair& pair, std::string& reason) const {
    if (!is_kernel(pair.reader)) {
      reason = "the reshape shows it under another shape, so it stays in memory";
      return std::nullopt;
    }
    const int producer = group_of(pair.producer), reader = group_of(pair.reader);
    const Group &from = groups_[static_cast<size_t>(producer)], &into = groups_[static_cast<size_t>(reader)];
    if (graph_[pair.producer].op == Op::iota)
      reason = "an iota is written once";
    else if (graph_[pair.producer].op == Op::pad || graph_[pair.reader].op == Op::pad)
      reason = "a pad goes from memory to memory";
    else if (from.matmul >= 0 && into.matmul >= 0)
      reason = "a launch has one matmul";
    else if (into.matmul >= 0 && flows_into(from, into.matmul))
      reason = "a matmul takes its operands from memory (R4, a prologue, is not built)";
    else if (passes_outside(producer, reader))
      reason = "another launch stands between them";
    if (!reason.empty()) return std::nullopt;
    std::vector<int> nodes;
    std::merge(from.nodes.begin(), from.nodes.end(), into.nodes.begin(), into.nodes.end(),
               std::back_inserter(nodes));
    return grouped(std::move(nodes), reason);
  }

  void take(Group group, const Pair& pair) {
    const int producer = group_of(pair.producer), reader = group_of(pair.reader);
    group.rule = group.matmul >= 0 ? "R3" : group.tape->reduces ? "R2" : "R1";
    for (const int id : group.nodes) group_of_[static_cast<size_t>(id)] = reader;
    groups_[static_cast<size_t>(reader)]   = std::move(group);
    groups_[static_cast<size_t>(producer)] = {};
  }

  bool flows_into(const Group& from, int matmul) const {
    const std::vector<int>& operands = graph_[matmul].operands;
    return std::any_of(operands.begin(), operands.end(), [&](int operand) {
      return std::binary_search(from.nodes.begin(), from.nodes.end(), base_of(graph_, plan_.roles, operand));
    });
  }

  std::set<int> groups_after(int group) const {
    std::set<int> after;
    for (const int id : groups_[static_cast<size_t>(group)].nodes) add_groups_after(id, after);
    after.erase(group);
    return after;
  }
  void add_groups_after(int id, std::set<int>& after) const {
    for (const int reader : readers(id))
      if (is_kernel(reader))
        after.insert(group_of(reader));
      else if (reader != kCaller)
        add_groups_after(reader, after);  // an alias
  }

  // The first node from which on every group has all of its nodes: no way leads from there to `group`,
  // because operands come first.
  int end_of_ways_to(int group) const {
    int end = groups_[static_cast<size_t>(group)].nodes.back() + 1;
    for (bool crossed = true; crossed;) {
      crossed = false;
      for (const Group& other : groups_)
        if (!other.nodes.empty() && other.nodes.front() < end && other.nodes.back() >= end) {
          end     = other.nodes.back() + 1;
          crossed = true;
        }
    }
    return end;
  }

  // Whether a third group must run after one and before the other.
  bool passes_outside(int producer, int reader) const {
    const auto nodes = [&](int group) -> const auto& { return groups_[static_cast<size_t>(group)].nodes; };
    const int end    = end_of_ways_to(reader);
    std::vector<int> open;
    std::set<int> seen;
    for (const int group : groups_after(producer))
      if (group != reader) open.push_back(group);
    while (!open.empty()) {
      const int group = open.back();
      open.pop_back();
      if (group == reader) return true;
      if (nodes(group).front() >= end || !seen.insert(group).second) continue;
      for (const int next : groups_after(group)) open.push_back(next);
    }
    return false;
  }

  // Groups so that each comes after those it reads.
  std::vector<int> order() const {
    std::vector<int> order, waits(groups_.size());
    std::set<int> ready;
    for (size_t group = 0; group < groups_.size(); ++group)
      for (const int after : groups_after(static_cast<int>(group))) ++waits[static_cast<size_t>(after)];
    for (size_t group = 0; group < groups_.size(); ++group)
      if (waits[group] == 0 && !groups_[group].nodes.empty()) ready.insert(static_cast<int>(group));
    while (!ready.empty()) {
      order.push_back(*ready.begin());
      ready.erase(ready.begin());
      for (const int after : groups_after(order.back()))
        if (--waits[static_cast<size_t>(after)] == 0) ready.insert(after);
    }
    return order;
  }

  const Graph& graph_;
  const int end_;  // only nodes before it are fused
  const std::vector<int64_t> typical_;
  Plan plan_;
  std::vector<std::set<int>> readers_;  // of each node, through views: kernels, aliases, kCaller
  std::vector<Group> groups_;           // empty once fused into another
  std::vector<int> group_of_;
};

}  // namespace

double Group::bytes(const Graph& graph, std::span<const int64_t> symbols) const {
  double bytes = 0;
  if (tape) {
    Tape memory = *tape;
    // A matmul's rows are read while they are in a cache.
    std::erase_if(memory.leaves, [&](const Leaf& leaf) { return leaf.node == matmul; });
    bytes += bytes_of(graph, memory, symbols);
  }
  if (!tape || keeps_matmul) bytes += bytes_of(graph[matmul < 0 ? nodes[0] : matmul].type, symbols);
  if (direct() >= 0)
    for (const int operand : graph[direct()].operands) bytes += bytes_of(graph[operand].type, symbols);
  return bytes;
}

int base_of(const Graph& graph, const std::vector<Role>& roles, int id) {
  while (roles[static_cast<size_t>(id)] == Role::view || roles[static_cast<size_t>(id)] == Role::alias)
    id = graph[id].operands[0];
  return id;
}

Plan fuse(const Graph& graph) { return fuse_before(graph, graph.size()); }

Plan fuse_before(const Graph& graph, int end) {
  Fuser fuser(graph, end);
  fuser.grow();
  return fuser.plan();
}

Plan unfused(const Graph& graph) { return Fuser(graph, 0).plan(); }

}  // namespace fathom::compile
