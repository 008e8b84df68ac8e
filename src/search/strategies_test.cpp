#include "search/strategies.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/expect.h"

namespace fathom::search {
namespace {

using Cost = std::function<double(const Configuration&)>;

std::vector<int64_t> counted(int64_t n) {
  std::vector<int64_t> values(static_cast<size_t>(n));
  std::iota(values.begin(), values.end(), 0);
  return values;
}

TuningSpace cube(int axes, int64_t extent) {
  TuningSpace space;
  for (int axis = 0; axis < axes; ++axis) space.axes.push_back({fmt::format("x{}", axis), counted(extent)});
  return space;
}

// A sum over axes with the least at 5, 2, 6, 1: 0.
double separable(const Configuration& at) {
  constexpr double kLeast[] = {5, 2, 6, 1};
  double sum                = 0;
  for (size_t axis = 0; axis < at.size(); ++axis)
    sum += std::pow(static_cast<double>(at[axis]) - kLeast[axis], 2);
  return sum;
}

// Falls towards the far corner, but the least of all is the origin.
double deceptive(const Configuration& at) {
  const int64_t sum = std::accumulate(at.begin(), at.end(), int64_t{0});
  return sum == 0 ? -1 : 100 - static_cast<double>(sum);
}

double constant(const Configuration&) { return 7; }

// The least of all points, by loops that know nothing of strategies.
double exhaustive(const TuningSpace& space, const Cost& cost) {
  std::vector<size_t> at(space.axes.size());
  double least = std::numeric_limits<double>::infinity();
  for (;;) {
    Configuration configuration;
    for (size_t axis = 0; axis < at.size(); ++axis)
      configuration.push_back(space.axes[axis].values[at[axis]]);
    least       = std::min(least, cost(configuration));
    size_t axis = 0;
    while (axis < at.size() && ++at[axis] == space.axes[axis].values.size()) at[axis++] = 0;
    if (axis == at.size()) return least;
  }
}

void expect_sound(const TuningSpace& space, const Trace& trace, const Cost& cost, int64_t budget) {
  EXPECT_EQ(static_cast<int64_t>(trace.evaluations.size()), std::min(budget, size(space)));
  std::set<Configuration> seen;
  for (const Evaluation& evaluation : trace.evaluations) {
    EXPECT_TRUE(seen.insert(evaluation.at).second) << "a point twice";
    ASSERT_EQ(evaluation.at.size(), space.axes.size());
    for (size_t axis = 0; axis < space.axes.size(); ++axis) {
      const std::vector<int64_t>& values = space.axes[axis].values;
      EXPECT_NE(std::find(values.begin(), values.end(), evaluation.at[axis]), values.end());
    }
    EXPECT_EQ(evaluation.cost, cost(evaluation.at));
  }
}

TEST(Strategies, WithTheWholeSpaceAsBudgetEachFindsTheLeast) {
  const std::pair<TuningSpace, Cost> cases[] = {{cube(3, 5), separable}, {cube(3, 5), deceptive},
                                                {cube(2, 7), constant},  {cube(1, 1), separable},
                                                {cube(4, 1), constant},  {cube(1, 13), deceptive}};
  for (const auto& [space, cost] : cases)
    for (const Strategy strategy : kStrategies)
      for (const int64_t beyond : {0, 10}) {
        SCOPED_TRACE(to_string(strategy));
        const int64_t budget = size(space) + beyond;
        const Trace trace    = minimise(space, cost, strategy, budget, 1);
        expect_sound(space, trace, cost, budget);
        EXPECT_EQ(trace.best().cost, exhaustive(space, cost));
      }
}

TEST(Strategies, ABudgetIsKept) {
  for (const Strategy strategy : kStrategies)
    for (const int64_t budget : {0, 1, 2, 12, 13, 40}) {
      SCOPED_TRACE(fmt::format("{} {}", to_string(strategy), budget));
      const TuningSpace space = cube(4, 8);
      int64_t calls           = 0;
      const Cost counting     = [&](const Configuration& at) { return ++calls, separable(at); };
      const Trace trace       = minimise(space, counting, strategy, budget, 3);
      EXPECT_EQ(calls, budget);
      expect_sound(space, trace, separable, budget);
    }
}

TEST(Strategies, TheSameSeedTakesTheSameWay) {
  const TuningSpace space = cube(4, 8);
  const auto way          = [&](Strategy strategy, uint64_t seed) {
    std::vector<Configuration> points;
    for (const Evaluation& e : minimise(space, separable, strategy, 50, seed).evaluations)
      points.push_back(e.at);
    return points;
  };
  for (const Strategy strategy : kStrategies) {
    EXPECT_EQ(way(strategy, 1), way(strategy, 1)) << to_string(strategy);
    if (strategy != Strategy::grid) {
      EXPECT_NE(way(strategy, 1), way(strategy, 2)) << to_string(strategy);
    }
  }
}

TEST(Strategies, TheGridGoesInOrder) {
  const TuningSpace space{{{"a", {10, 20}}, {"b", {3, 1, 2}}}};
  std::vector<Configuration> points;
  for (const Evaluation& e : minimise(space, constant, Strategy::grid, 5, 0).evaluations)
    points.push_back(e.at);
  EXPECT_EQ(points, (std::vector<Configuration>{{10, 3}, {10, 1}, {10, 2}, {20, 3}, {20, 1}}));
}

// Each point of 24 is first about as often as any other: 100 expected of 2,400, so 5 deviations are 49.
TEST(Strategies, RandomIsEven) {
  const TuningSpace space{{{"a", counted(4)}, {"b", counted(6)}}};
  std::map<Configuration, int> firsts, lasts;
  for (uint64_t seed = 0; seed < 2400; ++seed) {
    const Trace trace = minimise(space, constant, Strategy::random, 24, seed);
    ++firsts[trace.evaluations.front().at];
    ++lasts[trace.evaluations.back().at];
  }
  for (const auto& counts : {firsts, lasts}) {
    EXPECT_EQ(counts.size(), 24u);
    for (const auto& [_, count] : counts) EXPECT_NEAR(count, 100, 49);
  }
}

double mean_best(const TuningSpace& space, const Cost& cost, Strategy strategy, int64_t budget) {
  double sum = 0;
  for (uint64_t seed = 0; seed < 50; ++seed) sum += minimise(space, cost, strategy, budget, seed).best().cost;
  return sum / 50;
}

// 60 of 4,096 points. What random leaves above the least, the guided ones halve.
TEST(Strategies, GuidedOnesBeatRandomWhereAxesAreSeparable) {
  const TuningSpace space = cube(4, 8);
  const double random     = mean_best(space, separable, Strategy::random, 60);
  ASSERT_GT(random, 1);
  for (const Strategy strategy : {Strategy::local, Strategy::genetic, Strategy::tpe}) {
    const double guided = mean_best(space, separable, strategy, 60);
    RecordProperty(std::string(to_string(strategy)), std::to_string(guided / random));
    EXPECT_LT(guided, 0.5 * random) << to_string(strategy) << " of " << random;
  }
}

// Where the slope leads away from the least, no strategy is promised anything but to reach the slope's end.
TEST(Strategies, GuidedOnesFollowASlopeThatDeceives) {
  const TuningSpace space = cube(3, 6);
  for (const Strategy strategy : {Strategy::local, Strategy::genetic, Strategy::tpe})
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const double best = minimise(space, deceptive, strategy, 60, seed).best().cost;
      EXPECT_TRUE(best == -1 || best <= 87) << to_string(strategy) << " " << seed << ": " << best;
    }
}

TEST(Strategies, AnInvalidPointIsPassed) {
  const TuningSpace space   = cube(2, 6);
  const Cost mostly_invalid = [](const Configuration& at) {
    return at[0] == 3 ? static_cast<double>(at[1]) : std::numeric_limits<double>::infinity();
  };
  for (const Strategy strategy : kStrategies) {
    const Trace trace = minimise(space, mostly_invalid, strategy, 36, 5);
    expect_sound(space, trace, mostly_invalid, 36);
    EXPECT_EQ(trace.best().cost, 0) << to_string(strategy);
  }
}

TEST(Strategies, BadInputIsAContractError) {
  EXPECT_THROW(size({}), ContractError);
  EXPECT_THROW(size({{{"a", {1}}, {"b", {}}}}), ContractError);
  EXPECT_THROW(size({{{"a", {1, 2, 1}}}}), ContractError);
  const Cost nan = [](const Configuration&) { return std::nan(""); };
  for (const Strategy strategy : kStrategies) {
    EXPECT_THROW(minimise({{{"a", {}}}}, constant, strategy, 1, 0), ContractError);
    EXPECT_THROW(minimise(cube(2, 2), constant, strategy, -1, 0), ContractError);
    EXPECT_THROW(minimise(cube(2, 2), nan, strategy, 1, 0), ContractError);
    EXPECT_THROW(minimise(cube(9, 8), constant, strategy, 1, 0), ContractError);
    EXPECT_THROW(minimise(cube(2, 2), constant, strategy, 0, 0).best(), ContractError);
  }
}

}  // namespace
}  // namespace fathom::search
