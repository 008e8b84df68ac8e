#include "engine/expert_placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include "core/expect.h"

namespace fathom::engine {
namespace {

constexpr int kFraction     = 16;  // bits of a load after the point
constexpr int64_t kMostLoad = int64_t{1} << 46;

bool contains(const std::vector<int32_t>& of, int32_t value) {
  return std::find(of.begin(), of.end(), value) != of.end();
}

// What is packed: an expert's replica, or a group of experts.
struct Item {
  int32_t id;  // two items of one id may not share a bin
  int64_t load;
};

// The heaviest first, each into the lightest bin that has room and not its id. At most `room` items in a bin;
// an id has at most as many items as there are bins.
std::vector<std::vector<Item>> packed(std::vector<Item> items, int bins, int room) {
  std::stable_sort(items.begin(), items.end(), [](const Item& a, const Item& b) { return a.load > b.load; });
  std::vector<std::vector<Item>> bin(static_cast<size_t>(bins));
  std::vector<int64_t> load(bin.size(), 0);
  const auto holds = [&](size_t b, int32_t id) {
    return std::any_of(bin[b].begin(), bin[b].end(), [id](const Item& item) { return item.id == id; });
  };
  const auto full = [&](size_t b) { return static_cast<int>(bin[b].size()) == room; };
  const auto put  = [&](size_t b, const Item& item) {
    bin[b].push_back(item);
    load[b] += item.load;
  };
  for (const Item& item : items) {
    size_t best = bin.size();
    for (size_t b = 0; b < bin.size(); ++b)
      if (!full(b) && !holds(b, item.id) && (best == bin.size() || load[b] < load[best])) best = b;
    if (best < bin.size()) {
      put(best, item);
      continue;
    }
    // Every bin with room holds the id. A full bin without it has `room` different ids, a bin with room at
    // most room - 2 beside this one: two of the full bin's items fit there, and one of them makes room.
    std::tuple<int64_t, size_t, size_t, size_t> way{INT64_MAX, 0, 0,
                                                    0};  // the larger load after, a, b, which
    for (size_t a = 0; a < bin.size(); ++a)
      for (size_t b = 0; !holds(a, item.id) && b < bin.size(); ++b)
        for (size_t i = 0; !full(b) && i < bin[a].size(); ++i)
          if (const Item& moved = bin[a][i]; !holds(b, moved.id))
            way = std::min(way, {std::max(load[a] - moved.load + item.load, load[b] + moved.load), a, b, i});
    const auto& [after, a, b, i] = way;
    FATHOM_EXPECT(after < INT64_MAX, "an expert has more replicas than ranks");
    const Item moved = bin[a][i];
    bin[a].erase(bin[a].begin() + static_cast<std::ptrdiff_t>(i));
    load[a] -= moved.load;
    put(b, moved);
    put(a, item);
  }
  return bin;
}

// Replicas of each expert: `replicas` altogether, at most `most` of one. Ties go to the expert with fewer
// replicas, so that experts without load get none before others have one.
std::vector<int> replica_counts(std::span<const int64_t> load, int replicas, int most) {
  std::vector<int> count(load.size(), 1);
  for (int spare = replicas - static_cast<int>(load.size()); spare > 0; --spare) {
    size_t best = load.size();
    for (size_t e = 0; e < load.size(); ++e) {
      if (count[e] == most) continue;
      if (best == load.size()) {
        best = e;
        continue;
      }
      const int64_t ours = load[e] * count[best], theirs = load[best] * count[e];
      if (ours > theirs || (ours == theirs && count[e] < count[best])) best = e;
    }
    ++count[best];
  }
  return count;
}

void expect_loads(std::span<const int64_t> load) {
  int64_t left = kMostLoad;
  for (size_t e = 0; e < load.size(); ++e) {
    FATHOM_EXPECT(load[e] >= 0, fmt::format("the load of expert {} is {}, below 0", e, load[e]));
    FATHOM_EXPECT(load[e] < left,
                  "the loads of experts add up to 2^46 or more; give counts of a shorter time");
    left -= load[e];
  }
}

void expect_shape(const PlacementShape& shape, int64_t experts) {
  FATHOM_EXPECT(shape.ranks >= 1 && shape.groups >= 1 && shape.nodes >= 1,
                "a placement needs at least one rank, one group and one node");
  FATHOM_EXPECT(
      shape.replicas >= experts,
      fmt::format("{} replicas of {} experts: give at least one for each expert", shape.replicas, experts));
}

}  // namespace

ExpertPlacement round_robin_placement(int experts, int ranks) {
  FATHOM_EXPECT(experts >= 0 && ranks >= 1, "a placement needs at least one rank and no negative experts");
  ExpertPlacement placement(static_cast<size_t>(ranks));
  for (int32_t e = 0; e < experts; ++e) placement[static_cast<size_t>(e % ranks)].push_back(e);
  return placement;
}

ExpertPlacement eplb_placement(std::span<const int64_t> load, const PlacementShape& shape) {
  const auto experts = static_cast<int>(load.size());
  expect_loads(load);
  expect_shape(shape, experts);
  const bool hierarchical = shape.nodes > 1 && shape.groups % shape.nodes == 0;
  const int nodes         = hierarchical ? shape.nodes : 1;
  const int groups        = hierarchical ? shape.groups : 1;
  FATHOM_EXPECT(
      experts % groups == 0 && shape.ranks % nodes == 0 && shape.replicas % nodes == 0,
      fmt::format("{} experts in {} groups, {} ranks and {} replicas on {} nodes: experts must divide "
                  "by groups, ranks and replicas by nodes",
                  experts, groups, shape.ranks, shape.replicas, nodes));
  FATHOM_EXPECT(
      int64_t{shape.replicas} * nodes <= int64_t{experts} * shape.ranks,
      fmt::format("{} replicas of {} experts on {} ranks of {} nodes: a node has room for at most one "
                  "replica of each of its experts on each of its ranks",
                  shape.replicas, experts, shape.ranks, nodes));
  const int of_group = experts / groups;

  std::vector<Item> group_items;
  for (int32_t g = 0; g < groups; ++g) {
    const auto of = load.subspan(static_cast<size_t>(g * of_group), static_cast<size_t>(of_group));
    group_items.push_back({g, std::accumulate(of.begin(), of.end(), int64_t{0})});
  }
  ExpertPlacement placement;
  for (const std::vector<Item>& of_node : packed(group_items, nodes, groups / nodes)) {
    std::vector<int32_t> expert_of;  // of the node
    std::vector<int64_t> node_load;
    for (const Item& group : of_node)
      for (int32_t e = group.id * of_group; e < (group.id + 1) * of_group; ++e) {
        expert_of.push_back(e);
        node_load.push_back(load[static_cast<size_t>(e)]);
      }
    const int ranks = shape.ranks / nodes, replicas = shape.replicas / nodes;
    const std::vector<int> count = replica_counts(node_load, replicas, ranks);
    std::vector<Item> items;
    for (size_t i = 0; i < count.size(); ++i)
      for (int r = 0; r < count[i]; ++r)
        items.push_back({expert_of[i], (node_load[i] << kFraction) / count[i]});
    for (const std::vector<Item>& of_rank : packed(items, ranks, (replicas + ranks - 1) / ranks)) {
      placement.emplace_back();
      for (const Item& item : of_rank) placement.back().push_back(item.id);
    }
  }
  return placement;
}

std::vector<std::vector<int32_t>> ranks_of_experts(const ExpertPlacement& placement, int experts) {
  std::vector<std::vector<int32_t>> ranks(static_cast<size_t>(experts));
  for (size_t r = 0; r < placement.size(); ++r)
    for (const int32_t e : placement[r]) {
      FATHOM_EXPECT(e >= 0 && e < experts, fmt::format("rank {} holds expert {} of {}", r, e, experts));
      ranks[static_cast<size_t>(e)].push_back(static_cast<int32_t>(r));
    }
  return ranks;
}

std::vector<double> rank_loads(const ExpertPlacement& placement, std::span<const int64_t> load) {
  const auto ranks = ranks_of_experts(placement, static_cast<int>(load.size()));
  std::vector<double> loads(placement.size(), 0);
  for (size_t e = 0; e < load.size(); ++e)
    for (const int32_t r : ranks[e])
      loads[static_cast<size_t>(r)] += static_cast<double>(load[e]) / static_cast<double>(ranks[e].size());
  return loads;
}

double rank_imbalance(const ExpertPlacement& placement, std::span<const int64_t> load) {
  const std::vector<double> loads = rank_loads(placement, load);
  const double sum                = std::accumulate(loads.begin(), loads.end(), 0.0);
  if (sum <= 0) return 1;
  return *std::max_element(loads.begin(), loads.end()) * static_cast<double>(loads.size()) / sum;
}

ExpertCopies copies_between(const ExpertPlacement& now, const ExpertPlacement& next) {
  FATHOM_EXPECT(now.size() == next.size(), "both placements must be of as many ranks");
  ExpertCopies copies;
  for (size_t r = 0; r < next.size(); ++r) {
    const auto missing =
        std::count_if(next[r].begin(), next[r].end(), [&](int32_t e) { return !contains(now[r], e); });
    copies.most_of_a_rank = std::max<int64_t>(copies.most_of_a_rank, missing);
    copies.total += missing;
  }
  return copies;
}

ExpertPlacement renumbered_to_copy_little(const ExpertPlacement& now, ExpertPlacement next, int nodes) {
  FATHOM_EXPECT(now.size() == next.size() && nodes >= 1 && next.size() % static_cast<size_t>(nodes) == 0,
                "both placements must be of as many ranks, a multiple of the nodes");
  const size_t of_node = next.size() / static_cast<size_t>(nodes);
  std::vector<std::tuple<int64_t, size_t, size_t>> pairs;  // minus the experts shared, old rank, new rank
  for (size_t old = 0; old < now.size(); ++old)
    for (size_t r = old / of_node * of_node; r < (old / of_node + 1) * of_node; ++r) {
      const auto shared =
          std::count_if(next[r].begin(), next[r].end(), [&](int32_t e) { return contains(now[old], e); });
      pairs.emplace_back(-shared, old, r);
    }
  std::sort(pairs.begin(), pairs.end());
  std::vector<bool> old_matched(now.size(), false), new_matched(now.size(), false);
  ExpertPlacement renumbered(next.size());
  for (const auto& [shared, old, r] : pairs) {
    if (old_matched[old] || new_matched[r]) continue;
    old_matched[old] = new_matched[r] = true;
    renumbered[old]                   = std::move(next[r]);
  }
  return renumbered;
}

ExpertPlanner::ExpertPlanner(int experts, ExpertPlacement now, const Options& options)
    : options_(options), now_(std::move(now)), forecast_(static_cast<size_t>(experts), 0) {
  expect_shape(options.shape, experts);
  FATHOM_EXPECT(static_cast<int>(now_.size()) == options.shape.ranks,
                "the present placement has other ranks");
  FATHOM_EXPECT(options.smoothing >= 0 && options.smoothing < kFraction && options.copied_bytes_of_a_ns > 0 &&
                    options.ns_of_token >= 0 && options.horizon_observations >= 0 && options.margin >= 1,
                "smoothing is 0 to 15, a rate is positive, times are not negative, a margin is at least 1");
  for (const auto& ranks : ranks_of_experts(now_, experts))
    FATHOM_EXPECT(!ranks.empty(), "the present placement lacks an expert");
}

void ExpertPlanner::observe(std::span<const int64_t> load) {
  FATHOM_EXPECT(load.size() == forecast_.size(), "an observation counts the tokens of every expert");
  expect_loads(load);
  for (size_t e = 0; e < load.size(); ++e) {
    const int64_t seen = load[e] << kFraction;
    forecast_[e] += observed_ ? (seen - forecast_[e]) / (int64_t{1} << options_.smoothing) : seen;
  }
  observed_ = true;
}

std::vector<int64_t> ExpertPlanner::forecast() const {
  std::vector<int64_t> tokens;
  for (const int64_t f : forecast_) tokens.push_back(f >> kFraction);
  return tokens;
}

ExpertPlanner::Plan ExpertPlanner::replan() {
  if (!observed_) return {.placement = now_};
  const std::vector<int64_t> load = forecast();
  const PlacementShape& shape     = options_.shape;
  const bool hierarchical         = shape.nodes > 1 && shape.groups % shape.nodes == 0;
  Plan plan{.placement =
                renumbered_to_copy_little(now_, eplb_placement(load, shape), hierarchical ? shape.nodes : 1)};
  const auto worst = [&](const ExpertPlacement& placement) {
    const std::vector<double> loads = rank_loads(placement, load);
    return *std::max_element(loads.begin(), loads.end());
  };
  const ExpertCopies copies = copies_between(now_, plan.placement);
  plan.gain_ns              = (worst(now_) - worst(plan.placement)) * options_.ns_of_token *
                 static_cast<double>(options_.horizon_observations);
  plan.cost_ns =
      static_cast<double>(copies.most_of_a_rank * options_.expert_bytes) / options_.copied_bytes_of_a_ns;
  plan.copied_bytes = copies.total * options_.expert_bytes;
  plan.taken        = plan.gain_ns > 0 && plan.gain_ns > options_.margin * plan.cost_ns;
  if (plan.taken)
    now_ = plan.placement;
  else
    plan.placement = now_;
  return plan;
}

}  // namespace fathom::engine
