// Chooses among an engine's settings at run time, by how fast the engine's own steps were under each. The
// settings must keep answers; setting 0 is the default.
//
// The reward of a setting is the time that the default would have needed for the same tokens over the time
// that they took. The default's costs (seconds a prompt token, seconds a generated token) are measured in its
// own steps, in classes of demand, because a step for one request and one for thirty have little in common.
// Among the settings, discounted UCB chooses [Garivier and Moulines 2011], a window of steps at a time.
//
// Safe by construction, as conservative bandits are [Wu et al. 2016]: `surplus` is the time gained on
// `floor` times the default's speed. A setting that may be slower than the floor gets as many steps as the
// surplus pays for, and loses them in the step after which it is used up. So all tokens so far took at most
// 1 / floor of the default's time, one window and one step. What this trusts is the default's measured cost;
// its steps are taken regularly for that, and a change of it forgets all that was learned.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace fathom::engine {

// What a finished step did.
struct StepYield {
  double seconds        = 0;  // since the step before it had finished
  int64_t prompt_tokens = 0;  // computed for the first time; tokens computed again are of no use
  int64_t tokens        = 0;  // generated
  int64_t demand        = 0;  // requests, running and waiting
};

class Tuner {
 public:
  struct Options {
    int64_t settings   = 1;
    double floor       = 0.985;  // of the default's speed; noise may cost another half per cent
    double discount    = 0.98;   // of what was learned, a window
    int64_t window     = 32;     // steps
    double exploration = 0.1;    // width of the confidence interval, in units of the default's speed
  };
  explicit Tuner(const Options& options);

  // The setting for the next step.
  int64_t setting() const { return setting_; }
  // Records the step that just finished. The first step after a change of setting may have been planned
  // before it: it is paid for, but nothing is learned from it.
  void record(const StepYield& step);

  double surplus_s() const { return surplus_s_; }
  int64_t changes() const { return changes_; }  // of the setting
  double seconds(int64_t setting) const { return spent_s_[static_cast<size_t>(setting)]; }

 private:
  // Discounted sums.
  struct Learned {
    double windows = 0, default_s = 0, seconds = 0;
    int64_t strikes = 0;  // windows in a row that were far from the mean
    double speed() const { return default_s / seconds; }
  };
  // The default's. Steps with and without prompts are apart.
  struct Costs {
    double steps    = 0;
    double decode_s = 0, decode_tokens = 0;                   // steps without prompts
    double mixed_s = 0, mixed_tokens = 0, prompt_tokens = 0;  // steps with prompts
  };
  struct Class {
    std::vector<Learned> learned;
    Costs costs          = {};
    double since_default = 0;  // windows
  };
  struct Window {
    int64_t steps = 0, length = 0;
    Learned sum = {};
    Costs costs = {};
  };

  // Seconds that the default would have needed; negative: not known yet.
  static double default_seconds(const Costs& costs, const StepYield& step);
  double bonus(const Class& demand, const Learned& learned) const;
  void close_window();
  void choose();
  void use(int64_t setting, int64_t steps);

  Options options_;
  std::array<Class, 8> classes_;  // demand of 1, 2, 3-4, 5-8, ...
  size_t class_      = 0;
  int64_t setting_   = 0;
  bool just_changed_ = false;
  bool granted_      = false;  // the first window's time
  double surplus_s_  = 0;
  int64_t changes_   = 0;
  std::vector<double> spent_s_;
  Window window_;
};

}  // namespace fathom::engine
