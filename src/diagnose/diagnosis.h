// What limits a variant, by the rules of diagnose/rules.h: findings with their evidence, how sure they are,
// and how much a cure could gain.
//
// Gain. u_r is the share of its rate at which unit r works, a the wasted part of that work, s the share of
// their time that warps wait for a cause. Nothing gains more than the next unit lets through, 1 / max(other
// u). Below that, without the waste of a full unit a call takes 1 - u_r a of its time if what was idle stays
// (G_lo), and 1 - a if that shrinks with it (G_hi); of a unit that is not full, up to 1 / (1 - u_r a).
// Without a wait: from 1 / (1 - s) up to what the next unit lets through. All of it is arithmetic on what was
// counted, not measured.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "diagnose/facts.h"
#include "diagnose/rules.h"

namespace fathom::diagnose {

enum class Certainty {
  sure,      // counted or measured, and the unit is full
  likely,    // counted, and no other cause is as large
  possible,  // a hint: from the declared work, or of a unit that is not full
};
std::string_view to_string(Certainty certainty);

struct Evidence {
  Criterion criterion;
  double value = 0;
  std::string text()
      const;  // "93.9 % of shared memory's wavefronts are bank conflicts (rule: at least 10 %)"
};

struct Gain {
  double lo = 1, hi = 1;  // times as fast
  std::string_view next;  // the unit that then binds; empty: none is known
};

struct Finding {
  const Rule* rule               = nullptr;
  Certainty certainty            = Certainty::possible;
  std::vector<Evidence> evidence = {};
  std::optional<Gain> gain       = {};  // absent where the record does not let one be computed
};

struct Untried {
  const Rule* rule               = nullptr;
  std::vector<std::string> lacks = {};  // what the record would need
};

struct Diagnosis {
  bool counters                        = false;  // the record has some
  std::optional<std::string_view> unit = {};     // the busiest one
  double unit_share                    = 0;
  std::vector<Finding> findings        = {};  // the largest gain first
  std::vector<const Rule*> not_it      = {};
  std::vector<Untried> untried         = {};
  std::vector<std::string> remarks     = {};

  std::string_view cause() const { return findings.empty() ? "" : findings.front().rule->cause; }
};

Diagnosis diagnose(const Facts& facts, bool on_gpu);

// The main finding in a sentence, without a full stop.
std::string sentence(const Diagnosis& diagnosis);
// "the busiest unit: DRAM moves 94.0 % of ..."
std::string bound_text(const Diagnosis& diagnosis);
std::string gain_text(const Gain& gain);  // "up to 12.6×, then issue slots bind"

nlohmann::json to_json(const Diagnosis& diagnosis);

}  // namespace fathom::diagnose
