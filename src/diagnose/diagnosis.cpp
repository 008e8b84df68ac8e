#include "diagnose/diagnosis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "lab/quantity.h"

namespace fathom::diagnose {
namespace {

constexpr double kFull        = 0.8;   // Nsight Compute's SpeedOfLight: a unit above it is at its rate
constexpr double kBusy        = 0.6;   // and below it latency is to blame
constexpr double kWorthSaying = 1.05;  // a smaller gain is not told
constexpr double kClockMargin = 0.02;  // the margin of a verdict

std::string_view unit_name(std::string_view unit) {
  if (unit == "dram_share") return "DRAM";
  if (unit == "memory_share") return "L1 or L2";
  if (unit == "shared_share") return "shared memory";
  if (unit == "issue_share") return "instruction issue";
  if (unit == "tensor_share") return "the tensor cores";
  return "the declared work";
}

bool holds(const Criterion& criterion, double value) {
  return criterion.at_least ? value >= criterion.threshold : value <= criterion.threshold;
}

// memory_share is that of the busiest of L1, L2 and DRAM, so it holds the work of each of them.
bool is_part_of(std::string_view unit, std::string_view of) {
  return of == unit || (of == "memory_share" && (unit == "dram_share" || unit == "shared_share"));
}

// The share of the time that other units need, once the wasted part of one unit's work is gone.
std::pair<double, std::string_view> next_bound(const Facts& facts, const Rule& rule) {
  std::pair<double, std::string_view> next{0, ""};
  for (const std::string_view unit : units()) {
    const auto share = facts.find(unit);
    if (!share || (!rule.unit.empty() && is_part_of(rule.unit, unit))) continue;
    // Traffic that is not declared is part of what the cure takes away.
    const bool shrinks = rule.kind == Kind::waste && unit == "dram_share";
    const double needs = shrinks ? *share / std::max(1.0, facts.find("traffic_ratio").value_or(1)) : *share;
    if (needs > next.first) next = {needs, unit};
  }
  return next;
}

std::optional<Gain> gain_of(const Facts& facts, const Rule& rule) {
  if (rule.kind == Kind::counted || rule.kind == Kind::declared) return std::nullopt;
  const double infinity    = std::numeric_limits<double>::infinity();
  const auto inverse       = [&](double share) { return share > 0 ? 1 / share : infinity; };
  const auto [needs, next] = next_bound(facts, rule);
  const double part        = rule.part ? rule.part(facts) : 0;
  Gain gain{.next = next};
  switch (rule.kind) {
    case Kind::bound:
      gain.hi   = inverse(facts.at(rule.unit));
      gain.next = "";
      break;
    case Kind::waste: {
      // Without the unit's share its work could be all that the call does: the waste alone bounds the gain.
      const auto busy = facts.find(rule.unit);
      const bool full = busy.value_or(1) >= kFull;
      gain.lo         = busy ? inverse(1 - *busy * part) : 1;
      gain.hi         = full ? inverse(1 - part) : gain.lo;
      if (!full) gain.lo = 1;
      if (inverse(needs) < gain.hi)
        gain.hi = inverse(needs);
      else
        gain.next = rule.unit;
      break;
    }
    case Kind::stall:
      gain.hi = inverse(needs);
      gain.lo = std::min(gain.hi, inverse(1 - part));
      break;
    case Kind::idle:
      gain.hi = std::min(inverse(1 - part), inverse(needs));
      gain.lo = 1;
      break;
    case Kind::counted:
    case Kind::declared:
      break;
  }
  if (!std::isfinite(gain.hi)) return std::nullopt;
  gain.hi = std::max(gain.hi, 1.0);
  gain.lo = std::clamp(gain.lo, 1.0, gain.hi);
  return gain;
}

Certainty certainty_of(const Facts& facts, const Rule& rule) {
  const double part = rule.part ? rule.part(facts) : 0;
  switch (rule.kind) {
    case Kind::bound:
      return facts.at(rule.unit) >= kFull ? Certainty::sure : Certainty::likely;
    case Kind::waste: {
      const double busy = facts.find(rule.unit).value_or(0);
      return busy >= kFull ? Certainty::sure : busy >= kBusy ? Certainty::likely : Certainty::possible;
    }
    case Kind::stall:
      return part >= 0.5 ? Certainty::likely : Certainty::possible;
    case Kind::idle:
      return part >= 0.3 ? Certainty::sure : Certainty::likely;
    case Kind::counted:
      return Certainty::likely;
    case Kind::declared:
      break;
  }
  return Certainty::possible;
}

// What was counted comes before what was only declared; both after every gain.
double score(const Finding& finding) {
  if (finding.gain) return std::sqrt(finding.gain->lo * finding.gain->hi);
  return finding.rule->kind == Kind::counted ? 1 : 0;
}

void apply(const Rule& rule, const Facts& facts, Diagnosis& diagnosis) {
  if (!rule.only_without.empty() && facts.find(rule.only_without)) return;
  Finding finding{.rule = &rule};
  Untried untried{.rule = &rule};
  bool all = true;
  for (const Criterion& criterion : rule.when) {
    const auto value = facts.find(criterion.quantity);
    if (!value) {
      for (const std::string& part : facts.lacks(criterion.quantity))
        if (std::find(untried.lacks.begin(), untried.lacks.end(), part) == untried.lacks.end())
          untried.lacks.push_back(part);
      continue;
    }
    all = all && holds(criterion, *value);
    finding.evidence.push_back({criterion, *value});
  }
  if (!all) {
    diagnosis.not_it.push_back(&rule);  // whatever the parts that lack would say
  } else if (finding.evidence.size() < rule.when.size()) {
    diagnosis.untried.push_back(std::move(untried));
  } else {
    finding.gain      = gain_of(facts, rule);
    finding.certainty = certainty_of(facts, rule);
    diagnosis.findings.push_back(std::move(finding));
  }
}

void drop_explained(Diagnosis& diagnosis) {
  std::vector<std::string_view> explained;
  for (const Finding& finding : diagnosis.findings)
    explained.insert(explained.end(), finding.rule->instead_of.begin(), finding.rule->instead_of.end());
  std::erase_if(diagnosis.findings, [&](const Finding& finding) {
    return std::find(explained.begin(), explained.end(), finding.rule->cause) != explained.end();
  });
}

// What fits a rule and gains next to nothing is not what limits.
void drop_small(Diagnosis& diagnosis) {
  std::erase_if(diagnosis.findings, [&](const Finding& finding) {
    const bool small = finding.rule->kind != Kind::bound && finding.gain && finding.gain->hi < kWorthSaying;
    if (small) diagnosis.not_it.push_back(finding.rule);
    return small;
  });
}

std::string threshold_text(const Criterion& criterion) {
  const std::string number =
      criterion.quantity.ends_with("_share") || criterion.quantity.starts_with("stall_")
          ? lab::share_text(criterion.threshold)
          : lab::digits_text(criterion.threshold);
  return fmt::format("{} {}", criterion.at_least ? "at least" : "at most", number);
}

}  // namespace

std::string_view to_string(Certainty certainty) {
  switch (certainty) {
    case Certainty::sure:
      return "sure";
    case Certainty::likely:
      return "likely";
    case Certainty::possible:
      return "possible";
  }
  return "";
}

std::string Evidence::text() const {
  return fmt::format("{} (rule: {})", quantity_text(criterion.quantity, value), threshold_text(criterion));
}

Diagnosis diagnose(const Facts& facts, bool on_gpu) {
  Diagnosis diagnosis{.counters = facts.has_counters()};
  for (const std::string_view unit : units()) {
    const auto share = facts.find(unit);
    // The limit is no unit: it names one by the declared work, which the others count.
    if (!share || (unit == "limit_share" && diagnosis.unit)) continue;
    if (*share > diagnosis.unit_share) {
      diagnosis.unit       = unit;
      diagnosis.unit_share = *share;
    }
  }
  for (const Rule& rule : rules())
    if (on_gpu ? rule.gpu : rule.cpu) apply(rule, facts, diagnosis);
  drop_small(diagnosis);
  drop_explained(diagnosis);
  // A hint never stands before what is known, however much it promises.
  const auto order = [](const Finding& f) {
    return std::pair(f.certainty == Certainty::possible, -score(f));
  };
  std::stable_sort(diagnosis.findings.begin(), diagnosis.findings.end(),
                   [&](const Finding& a, const Finding& b) { return order(a) < order(b); });
  if (const auto clock = facts.find("clock_ratio"); clock && std::abs(*clock - 1) > kClockMargin)
    diagnosis.remarks.push_back("the clock differed from the baseline's: " +
                                quantity_text("clock_ratio", *clock));
  return diagnosis;
}

std::string bound_text(const Diagnosis& diagnosis) {
  if (!diagnosis.unit) return "no unit's share is known";
  const std::string busiest = quantity_text(*diagnosis.unit, diagnosis.unit_share);
  if (*diagnosis.unit == "limit_share" && diagnosis.unit_share < kFull)
    return busiest + "; without counters nobody knows what takes the rest";
  if (diagnosis.unit_share < kBusy) return "latency, for no unit is busy: " + busiest;
  return fmt::format("{}: {}", unit_name(*diagnosis.unit), busiest);
}

std::string sentence(const Diagnosis& diagnosis) {
  if (!diagnosis.findings.empty()) {
    const Finding& main = diagnosis.findings.front();
    return fmt::format("{} ({}): {}", main.rule->what, to_string(main.certainty),
                       quantity_text(main.evidence.front().criterion.quantity, main.evidence.front().value));
  }
  if (diagnosis.counters) return "no rule fits: no unit is full, and no wait stands out";
  return "not known: the record has no counters";
}

std::string gain_text(const Gain& gain) {
  std::string text = gain.lo > kWorthSaying && gain.hi / gain.lo > kWorthSaying
                         ? fmt::format("{} to {}", lab::ratio_text(gain.lo), lab::ratio_text(gain.hi))
                         : "up to " + lab::ratio_text(gain.hi);
  if (!gain.next.empty()) text += fmt::format(", then {} binds", unit_name(gain.next));
  return text;
}

nlohmann::json to_json(const Diagnosis& diagnosis) {
  using nlohmann::json;
  json findings = json::array();
  for (const Finding& finding : diagnosis.findings) {
    json evidence = json::array(), shown = json::array();
    for (const Evidence& e : finding.evidence)
      evidence.push_back({{"quantity", e.criterion.quantity},
                          {"value", e.value},
                          {e.criterion.at_least ? "at_least" : "at_most", e.criterion.threshold},
                          {"source", e.criterion.source}});
    for (const Shown& s : finding.rule->shown) shown.push_back(fmt::format("{}/{}", s.experiment, s.variant));
    findings.push_back(
        {{"cause", finding.rule->cause},
         {"what", finding.rule->what},
         {"certainty", to_string(finding.certainty)},
         {"evidence", std::move(evidence)},
         {"gain", finding.gain ? json{{"lo", finding.gain->lo}, {"hi", finding.gain->hi}} : json()},
         {"cures", finding.rule->cures},
         {"shown_by", std::move(shown)}});
  }
  json not_it = json::array(), untried = json::array();
  for (const Rule* rule : diagnosis.not_it) not_it.push_back(rule->cause);
  for (const Untried& u : diagnosis.untried)
    untried.push_back({{"cause", u.rule->cause}, {"lacks", u.lacks}});
  return {{"counters", diagnosis.counters},
          {"unit", diagnosis.unit ? json(*diagnosis.unit) : json()},
          {"unit_share", diagnosis.unit ? json(diagnosis.unit_share) : json()},
          {"findings", std::move(findings)},
          {"not_it", std::move(not_it)},
          {"not_tried", std::move(untried)},
          {"remarks", diagnosis.remarks}};
}

}  // namespace fathom::diagnose
