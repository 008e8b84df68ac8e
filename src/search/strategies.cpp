#include "search/strategies.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "core/expect.h"
#include "core/splitmix64.h"

namespace fathom::search {
namespace {

constexpr int64_t kMostPoints = int64_t{1} << 24;

// A point as the position of its value on each axis.
using Positions = std::vector<size_t>;

// A point that was evaluated.
struct Seen {
  Positions at;
  double cost;
};

// One search: its budget, its random numbers, and what it has seen.
class Search {
 public:
  Search(const TuningSpace& space, const std::function<double(const Configuration&)>& cost, int64_t budget,
         uint64_t seed)
      : space_(space),
        cost_(cost),
        points_(size(space)),
        budget_(std::min(budget, points_)),
        state_(splitmix64(seed)) {
    FATHOM_EXPECT(budget >= 0, "a budget of evaluations is not negative");
    FATHOM_EXPECT(points_ <= kMostPoints,
                  fmt::format("the space has {} points; at most {} are kept track of", points_, kMostPoints));
    costs_.assign(static_cast<size_t>(points_), kUnseen);
  }

  size_t axes() const { return space_.axes.size(); }
  size_t extent(size_t axis) const { return space_.axes[axis].values.size(); }
  int64_t points() const { return points_; }
  bool done() const { return static_cast<int64_t>(seen_.size()) == budget_; }
  const std::vector<Seen>& seen() const { return seen_; }
  Trace trace() && { return std::move(trace_); }

  // Below n. The bias of the remainder is below 2^-40 for the sizes of a space.
  size_t below(size_t n) { return splitmix64(state_ += kSplitmix64Increment) % n; }
  // In [0, 1).
  double uniform() { return static_cast<double>(splitmix64(state_ += kSplitmix64Increment) >> 11) * 0x1p-53; }

  bool is_seen(const Positions& at) const { return !std::isnan(costs_[index(at)]); }
  double known_cost(const Positions& at) const { return costs_[index(at)]; }

  // Precondition: not done, and not seen.
  double evaluate(const Positions& at) {
    Configuration configuration;
    for (size_t axis = 0; axis < axes(); ++axis) configuration.push_back(space_.axes[axis].values[at[axis]]);
    const double cost = cost_(configuration);
    FATHOM_EXPECT(!std::isnan(cost),
                  "the cost of a point is a number, or infinite where the point is invalid");
    costs_[index(at)] = cost;
    seen_.push_back({at, cost});
    trace_.evaluations.push_back({std::move(configuration), cost});
    return cost;
  }

  Positions positions(int64_t index) const {
    Positions at(axes());
    for (size_t axis = axes(); axis-- > 0;) {
      at[axis] = static_cast<size_t>(index) % extent(axis);
      index /= static_cast<int64_t>(extent(axis));
    }
    return at;
  }

  // Each as likely as any other. Precondition: one is left.
  Positions random_unseen() {
    for (int guess = 0; guess < 32; ++guess)
      if (const auto i = below(static_cast<size_t>(points_)); std::isnan(costs_[i]))
        return positions(static_cast<int64_t>(i));
    size_t nth = below(static_cast<size_t>(points_) - seen_.size()), i = 0;
    while (!std::isnan(costs_[i]) || nth-- > 0) ++i;
    return positions(static_cast<int64_t>(i));
  }

 private:
  static constexpr double kUnseen = std::numeric_limits<double>::quiet_NaN();

  size_t index(const Positions& at) const {
    size_t index = 0;
    for (size_t axis = 0; axis < axes(); ++axis) index = index * extent(axis) + at[axis];
    return index;
  }

  const TuningSpace& space_;
  const std::function<double(const Configuration&)>& cost_;
  int64_t points_, budget_;
  uint64_t state_;
  std::vector<double> costs_;  // of every point, NaN where unseen
  std::vector<Seen> seen_;
  Trace trace_;
};

void grid(Search& search) {
  for (int64_t i = 0; !search.done(); ++i) search.evaluate(search.positions(i));
}

void random(Search& search) {
  while (!search.done()) search.evaluate(search.random_unseen());
}

// Every point that differs from `at` in one axis, in random order.
std::vector<Positions> neighbours(Search& search, const Positions& at) {
  std::vector<Positions> all;
  for (size_t axis = 0; axis < search.axes(); ++axis)
    for (size_t value = 0; value < search.extent(axis); ++value)
      if (value != at[axis]) {
        all.push_back(at);
        all.back()[axis] = value;
      }
  for (size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[search.below(i)]);
  return all;
}

void local(Search& search) {
  while (!search.done()) {
    Positions at = search.random_unseen();
    double cost  = search.evaluate(at);
    for (bool better = true; better;) {
      better = false;
      for (const Positions& next : neighbours(search, at)) {
        if (!search.is_seen(next) && search.done()) return;
        const double of_next = search.is_seen(next) ? search.known_cost(next) : search.evaluate(next);
        if (of_next >= cost) continue;
        at     = next;
        cost   = of_next;
        better = true;
        break;
      }
    }
  }
}

void genetic(Search& search) {
  constexpr size_t kPopulation = 12, kTournament = 3;
  constexpr int kChildren = 32;  // until one is new
  std::vector<Seen> population;
  const auto parent = [&]() -> const Positions& {
    const Seen* best = nullptr;
    for (size_t i = 0; i < kTournament; ++i) {
      const Seen& drawn = population[search.below(population.size())];
      if (!best || drawn.cost < best->cost) best = &drawn;
    }
    return best->at;
  };
  while (!search.done()) {
    if (population.size() < kPopulation) {
      const Positions at = search.random_unseen();
      population.push_back({at, search.evaluate(at)});
      continue;
    }
    Positions child;
    for (int attempt = 0; attempt < kChildren; ++attempt) {
      child                    = parent();
      const Positions& partner = parent();
      for (size_t axis = 0; axis < search.axes(); ++axis) {
        if (search.below(2)) child[axis] = partner[axis];
        if (search.below(search.axes()) == 0) child[axis] = search.below(search.extent(axis));
      }
      if (!search.is_seen(child)) break;
    }
    if (search.is_seen(child)) child = search.random_unseen();  // the population is of one kind
    const double cost = search.evaluate(child);
    const auto worst  = std::max_element(population.begin(), population.end(),
                                         [](const Seen& x, const Seen& y) { return x.cost < y.cost; });
    if (cost < worst->cost) *worst = {std::move(child), cost};
  }
}

// A distribution over the values of each axis: how often they occur in `seen`, and a prior of one point
// spread evenly.
std::vector<std::vector<double>> parzen(const Search& search, const std::vector<Seen>& seen) {
  std::vector<std::vector<double>> densities;
  for (size_t axis = 0; axis < search.axes(); ++axis) {
    const auto extent = static_cast<double>(search.extent(axis)), points = static_cast<double>(seen.size());
    std::vector<double> density(search.extent(axis), 1 / extent);
    for (const Seen& point : seen) density[point.at[axis]] += 1;
    for (double& x : density) x /= points + 1;
    densities.push_back(std::move(density));
  }
  return densities;
}

void tpe(Search& search) {
  constexpr size_t kRandom  = 15;
  constexpr int kCandidates = 24, kDraws = 10 * kCandidates;
  while (!search.done()) {
    if (search.seen().size() < kRandom) {
      search.evaluate(search.random_unseen());
      continue;
    }
    std::vector<Seen> sorted = search.seen();
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const Seen& x, const Seen& y) { return x.cost < y.cost; });
    const auto best_end = sorted.begin() + static_cast<std::ptrdiff_t>((sorted.size() + 3) / 4);
    const auto good     = parzen(search, {sorted.begin(), best_end}),
               rest     = parzen(search, {best_end, sorted.end()});
    Positions best;
    double best_score = -1;
    int candidates    = 0;
    for (int draw = 0; draw < kDraws && candidates < kCandidates; ++draw) {
      Positions at(search.axes());
      double score = 1;
      for (size_t axis = 0; axis < search.axes(); ++axis) {
        const std::vector<double>& density = good[axis];
        double left                        = search.uniform();
        while (at[axis] + 1 < density.size() && left >= density[at[axis]]) left -= density[at[axis]++];
        score *= density[at[axis]] / rest[axis][at[axis]];
      }
      if (search.is_seen(at)) continue;
      ++candidates;
      if (score > best_score) {
        best       = at;
        best_score = score;
      }
    }
    search.evaluate(candidates > 0 ? best : search.random_unseen());
  }
}

}  // namespace

std::string_view to_string(Strategy strategy) {
  constexpr std::string_view kNames[] = {"grid", "random", "local", "genetic", "tpe"};
  return kNames[static_cast<size_t>(strategy)];
}

const Evaluation& Trace::best() const {
  FATHOM_EXPECT(!evaluations.empty(), "nothing was evaluated: the budget was 0");
  return *std::min_element(evaluations.begin(), evaluations.end(),
                           [](const Evaluation& x, const Evaluation& y) { return x.cost < y.cost; });
}

int64_t size(const TuningSpace& space) {
  FATHOM_EXPECT(!space.axes.empty(), "a space has an axis");
  int64_t points = 1;
  for (const TuningAxis& axis : space.axes) {
    FATHOM_EXPECT(!axis.values.empty(), fmt::format("the axis '{}' has no value", axis.name));
    FATHOM_EXPECT(std::set<int64_t>(axis.values.begin(), axis.values.end()).size() == axis.values.size(),
                  fmt::format("the axis '{}' has a value twice", axis.name));
    FATHOM_EXPECT(!__builtin_mul_overflow(points, static_cast<int64_t>(axis.values.size()), &points),
                  "the space has more than 2^63 points");
  }
  return points;
}

Trace minimise(const TuningSpace& space, const std::function<double(const Configuration&)>& cost,
               Strategy strategy, int64_t budget, uint64_t seed) {
  constexpr void (*kRun[])(Search&) = {grid, random, local, genetic, tpe};
  Search search(space, cost, budget, seed);
  kRun[static_cast<size_t>(strategy)](search);
  return std::move(search).trace();
}

}  // namespace fathom::search
