// What a record says of a variant, as plain quantities: shares of a unit's time, shares of a warp's time,
// bytes a sector. A quantity whose parts the record lacks is absent, and says which parts it takes.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lab/record.h"

namespace fathom::diagnose {

// Rates that were measured on the machine of a record; 0 where none is known.
struct MachineRates {
  double dram_bytes_per_s = 0;  // the highest of reading and copying
  double flops_per_s      = 0;  // of the slowest arithmetic with a ceiling: fp32 multiply-adds
  int multiprocessors     = 0;
  int compute_capability  = 0;
};

// From limits that the records of one machine reached for, of variants with so many threads (a CPU's), and
// from the manifest of `run`.
MachineRates machine_rates(const lab::RunRecord& run, const std::vector<lab::ExperimentRecord>& records,
                           int threads = 1);

class Facts {
 public:
  std::optional<double> find(std::string_view quantity) const;
  double at(std::string_view quantity) const { return find(quantity).value_or(0); }
  // The parts of an absent quantity that the record lacks, as metrics are named.
  std::vector<std::string> lacks(std::string_view quantity) const;
  bool has_counters() const { return has_counters_; }

  void set(std::string_view quantity, double value) { known_[std::string(quantity)] = value; }
  void forget(std::string_view quantity, std::vector<std::string> lacks) {
    known_.erase(std::string(quantity));
    lacks_[std::string(quantity)] = std::move(lacks);
  }

 private:
  friend Facts facts_of(const lab::VariantRecord&, const std::string&, bool, const MachineRates&);
  std::map<std::string, double, std::less<>> known_;
  std::map<std::string, std::vector<std::string>, std::less<>> lacks_;
  bool has_counters_ = false;
};

// `limit`: of the point, in words.
Facts facts_of(const lab::VariantRecord& variant, const std::string& limit, bool on_gpu,
               const MachineRates& machine);

// "97 % of shared memory's wavefronts are bank conflicts": a quantity with its value, for people.
std::string quantity_text(std::string_view quantity, double value);
bool is_quantity(std::string_view name);

}  // namespace fathom::diagnose
