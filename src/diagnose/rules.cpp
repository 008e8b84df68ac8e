#include "diagnose/rules.h"

#include <array>
#include <utility>

#include "diagnose/rule_tables.h"

namespace fathom::diagnose {
namespace {

std::vector<Rule> all_rules() {
  std::vector<Rule> all = rules_of_gpus();
  for (Rule& rule : all) rule.gpu = true;
  for (Rule& rule : rules_of_cpus()) {
    rule.cpu = true;
    all.push_back(std::move(rule));
  }
  for (Rule& rule : rules_of_both()) {
    rule.gpu = rule.cpu = true;
    all.push_back(std::move(rule));
  }
  return all;
}

}  // namespace

std::span<const Rule> rules() {
  static const std::vector<Rule> all = all_rules();
  return all;
}

std::span<const std::string_view> units() {
  static constexpr std::array<std::string_view, 6> kUnits = {"dram_share",  "memory_share", "shared_share",
                                                             "issue_share", "tensor_share", "limit_share"};
  return kUnits;
}

}  // namespace fathom::diagnose
