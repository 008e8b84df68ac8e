// Strategies that minimise a measured cost over a finite space under a budget of evaluations: what an
// autotuner chooses from. No strategy evaluates a point twice; each is deterministic, given its seed and the
// costs.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace fathom::search {

struct TuningAxis {
  std::string name;
  std::vector<int64_t> values;
};

// Every combination of the axes' values.
struct TuningSpace {
  std::vector<TuningAxis> axes;
};

// A value for each axis, in their order.
using Configuration = std::vector<int64_t>;

enum class Strategy {
  grid,    // in order, the last axis first
  random,  // without replacement
  // From a random start to the first better neighbour, which differs in one axis; a new start where there is
  // none.
  local,
  // Steady state: tournaments of three, uniform crossover, one mutation a child on average, the worst gives
  // way.
  genetic,
  // The tree-structured Parzen estimator: Bergstra, Bardenet, Bengio, Kegl, "Algorithms for hyper-parameter
  // optimization", NIPS 2011. For each axis, how often its values occur among the best quarter of what was
  // seen, over how often among the rest.
  tpe,
};
inline constexpr Strategy kStrategies[] = {Strategy::grid, Strategy::random, Strategy::local,
                                           Strategy::genetic, Strategy::tpe};
std::string_view to_string(Strategy strategy);

struct Evaluation {
  Configuration at;
  double cost = 0;
};

// In the order in which they were made.
struct Trace {
  std::vector<Evaluation> evaluations;
  const Evaluation& best() const;  // the first with the least cost. Precondition: there is one
};

// The product of the axes' extents. Precondition, of minimise() too: there is an axis, each has a value, and
// none occurs twice in it.
int64_t size(const TuningSpace& space);

// Ends when the budget is spent or every point was evaluated. A cost may be infinite (the point is invalid),
// but not NaN. Precondition: budget >= 0 and at most 2^24 points.
Trace minimise(const TuningSpace& space, const std::function<double(const Configuration&)>& cost,
               Strategy strategy, int64_t budget, uint64_t seed);

}  // namespace fathom::search
