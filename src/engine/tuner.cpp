#include "engine/tuner.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <initializer_list>

#include "core/expect.h"

namespace fathom::engine {
namespace {

constexpr double kMaxSurplus_s   = 1;    // gains of the past pay for no more than this
constexpr double kRefreshWindows = 16;   // the default's cost is measured again at least this often
constexpr int64_t kLeastSteps    = 4;    // fewer would teach nothing
constexpr double kChange         = 0.3;  // a window this far from the mean, twice in a row, is a change

void discount(double factor, std::initializer_list<double*> sums) {
  for (double* sum : sums) *sum *= factor;
}

}  // namespace

Tuner::Tuner(const Options& options) : options_(options), spent_s_(static_cast<size_t>(options.settings)) {
  FATHOM_EXPECT(options.settings >= 1 && options.window >= kLeastSteps, "a tuner has settings and windows");
  FATHOM_EXPECT(options.floor > 0 && options.floor < 1 && options.discount > 0 && options.discount <= 1,
                "a tuner's floor is between 0 and 1, and it forgets gradually");
  for (Class& demand : classes_) demand.learned.resize(static_cast<size_t>(options.settings));
  use(0, options.window);
}

double Tuner::default_seconds(const Costs& costs, const StepYield& step) {
  if (costs.decode_tokens == 0) return -1;
  const double token_s = costs.decode_s / costs.decode_tokens;
  const double known_s = static_cast<double>(step.tokens) * token_s;
  if (step.prompt_tokens == 0) return known_s;
  if (costs.prompt_tokens == 0) return -1;
  const double prompt_s = std::max(0.0, costs.mixed_s - costs.mixed_tokens * token_s) / costs.prompt_tokens;
  return known_s + static_cast<double>(step.prompt_tokens) * prompt_s;
}

void Tuner::record(const StepYield& step) {
  if (options_.settings == 1) return;
  const auto bits =
      static_cast<size_t>(std::bit_width(static_cast<uint64_t>(std::max<int64_t>(step.demand, 1) - 1)));
  const size_t now_class = std::min(bits, classes_.size() - 1);
  const bool other_class = now_class != class_;
  if (other_class) close_window();
  class_                  = now_class;
  const Costs& costs      = classes_[class_].costs;
  const double by_default = default_seconds(costs, step);

  spent_s_[static_cast<size_t>(setting_)] += step.seconds;
  const double worth = setting_ == 0 ? step.seconds : std::max(by_default, 0.0);
  surplus_s_         = std::min(surplus_s_ + worth - options_.floor * step.seconds, kMaxSurplus_s);

  ++window_.steps;
  if (just_changed_) {
    just_changed_ = false;
  } else if (setting_ == 0 || by_default >= 0) {
    window_.sum.windows += 1.0 / static_cast<double>(options_.window);
    window_.sum.seconds += by_default < 0 ? 0 : step.seconds;
    window_.sum.default_s += std::max(by_default, 0.0);
    ++window_.costs.steps;
    const auto tokens = static_cast<double>(step.tokens), prompt = static_cast<double>(step.prompt_tokens);
    if (step.prompt_tokens > 0) {
      window_.costs.mixed_s += step.seconds;
      window_.costs.mixed_tokens += tokens;
      window_.costs.prompt_tokens += prompt;
    } else {
      window_.costs.decode_s += step.seconds;
      window_.costs.decode_tokens += tokens;
    }
  }
  const bool used_up = setting_ != 0 && surplus_s_ < 0;
  if (!used_up && !other_class && window_.steps < window_.length) return;
  close_window();
  choose();
}

// What the window taught becomes part of what is known of its class of demand.
void Tuner::close_window() {
  Class& demand     = classes_[class_];
  Learned& learned  = demand.learned[static_cast<size_t>(setting_)];
  const Learned sum = window_.sum;
  const Costs costs = window_.costs;
  window_           = {.length = window_.length};
  if (sum.windows == 0) return;

  const bool comparable = sum.windows * static_cast<double>(options_.window) >= 2 * kLeastSteps &&
                          sum.seconds > 0 && learned.seconds > 0 && learned.windows >= 0.5;
  const bool far  = comparable && std::abs(sum.speed() / learned.speed() - 1) > kChange;
  learned.strikes = far ? learned.strikes + 1 : 0;
  if (learned.strikes >= 2) {
    // If the default has changed, nothing that was compared with it holds.
    if (setting_ == 0) {
      std::fill(demand.learned.begin(), demand.learned.end(), Learned());
      demand.costs = {};
    } else {
      learned = {};
    }
  }
  const double forget = std::pow(options_.discount, sum.windows);
  for (Learned& each : demand.learned) discount(forget, {&each.windows, &each.default_s, &each.seconds});
  learned.windows += sum.windows;
  learned.default_s += sum.default_s;
  learned.seconds += sum.seconds;
  demand.since_default += sum.windows;
  if (setting_ != 0) return;

  Costs& known = demand.costs;
  // The costs are forgotten with the default's own windows only, so that they never become unknown.
  discount(forget, {&known.steps, &known.decode_s, &known.decode_tokens, &known.mixed_s, &known.mixed_tokens,
                    &known.prompt_tokens});
  known.steps += costs.steps;
  known.decode_s += costs.decode_s;
  known.decode_tokens += costs.decode_tokens;
  known.mixed_s += costs.mixed_s;
  known.mixed_tokens += costs.mixed_tokens;
  known.prompt_tokens += costs.prompt_tokens;
  demand.since_default = 0;
  if (!granted_) surplus_s_ += known.decode_s + known.mixed_s;
  granted_ = true;
}

double Tuner::bonus(const Class& demand, const Learned& learned) const {
  double all = 0;
  for (const Learned& each : demand.learned) all += each.windows;
  return options_.exploration * std::sqrt(std::log(1 + all) / learned.windows);
}

void Tuner::choose() {
  const Class& demand = classes_[class_];
  const Costs& costs  = demand.costs;
  if (2 * costs.steps < static_cast<double>(options_.window) || costs.decode_tokens == 0)
    return use(0, options_.window);
  if (surplus_s_ < 0) return use(0, options_.window);
  if (demand.since_default >= kRefreshWindows) return use(0, options_.window / 4);

  const double step_s = (costs.decode_s + costs.mixed_s) / costs.steps;
  int64_t best = 0, best_steps = options_.window;
  double best_bound = 1;  // the default is as fast as itself
  for (size_t i = 1; i < demand.learned.size(); ++i) {
    const Learned& learned = demand.learned[i];
    const bool known       = learned.windows > 0.01 && learned.seconds > 0;
    const double reach     = known ? bonus(demand, learned) : 1e9;
    const double speed     = known ? learned.speed() : 0;
    if (speed + reach <= best_bound) continue;
    const double risk_s  = (options_.floor - std::max(speed - reach, 0.0)) * step_s;  // a step
    const double payable = risk_s > 0 ? surplus_s_ / risk_s : static_cast<double>(options_.window);
    if (payable < kLeastSteps) continue;
    best       = static_cast<int64_t>(i);
    best_bound = speed + reach;
    best_steps = std::min(options_.window, static_cast<int64_t>(payable));
  }
  use(best, best_steps);
}

void Tuner::use(int64_t setting, int64_t steps) {
  just_changed_ = setting != setting_;
  changes_ += just_changed_;
  setting_ = setting;
  window_  = {.length = steps};
}

}  // namespace fathom::engine
