// The rules of a diagnosis, as data: what has to be seen, from which value on, and what cures it.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "diagnose/facts.h"

namespace fathom::diagnose {

struct Criterion {
  std::string_view quantity;
  bool at_least;  // otherwise at most
  double threshold;
  std::string_view source;  // of the threshold
};

// How a finding is known, which decides how sure it is and how much it could gain.
enum class Kind {
  bound,     // a unit is at its rate: nothing gains that leaves its work as it is
  waste,     // a part of a unit's work is of no use
  stall,     // warps wait for something that is not a unit's rate
  idle,      // multiprocessors, or the whole GPU, have nothing to do for a part of the time
  counted,   // events that cost time, nobody counted how much
  declared,  // by the declared work alone
};

// A variant of the lab that shows a cure.
struct Shown {
  std::string_view experiment, variant;
};

struct Rule {
  std::string_view cause;  // "bank_conflicts"
  Kind kind;
  std::string_view what;  // what limits, in a phrase
  std::vector<Criterion> when;
  std::string_view unit = {};  // the quantity of the unit whose work is wasted, or that is at its rate
  double (*part)(const Facts&) =
      nullptr;  // wasted share of the unit's work; share of warps' time; idle share
  std::string_view only_without            = {};  // a quantity: where it is known, another rule knows better
  std::vector<std::string_view> instead_of = {};  // causes that this one explains
  std::vector<std::string_view> cures;            // techniques of experiments/chapters.toml
  std::vector<Shown> shown;
  bool gpu = false, cpu = false;
};

std::span<const Rule> rules();

// Units whose rates bound what a cure can gain: the quantities of their shares.
std::span<const std::string_view> units();

}  // namespace fathom::diagnose
