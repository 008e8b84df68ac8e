// Makes the record of a timed point.
#include <algorithm>
#include <cmath>

#include "lab/python_process.h"
#include "lab/summary.h"
#include "lab/timed_point.h"
#include "measure/interval.h"
#include "measure/statistics.h"

namespace fathom::lab {

PointRecord TimedPoint::summarise(std::vector<VariantRecord> records) {
  const Cost cost = (*sets_)[0].cost();
  PointRecord point{.at               = at_,
                    .cache            = std::string(to_string(experiment_.cache)),
                    .clock            = experiment_.backend == Backend::cuda ? "gpu"
                                        : experiment_.clock == Clock::cpu    ? "cpu"
                                                                             : "wall",
                    .floor_ns         = floor_of_call(pools_.of(kAllThreads).threads()),
                    .rounds           = rounds_,
                    .calls_per_sample = calls_,
                    .stopped          = stopped_,
                    .noise            = noise_};
  const bool timed = baseline_ >= 0 && entries_[baseline_].alive() && !entries_[baseline_].clock_ns.empty();
  if (timed) point.baseline = entries_[baseline_].name;
  if (options_.run.aa && timed) {
    // The variants of --aa are the baseline again and the baseline with 5 % more work.
    VariantRecord base = records[entries_[baseline_].variant];
    records.clear();
    for (const Entry& entry : entries_) {
      VariantRecord record = base;
      record.id            = &entry == &entries_[baseline_] ? base.id : base.id + ":" + entry.name;
      record.kind          = &entry == &entries_[baseline_] ? "baseline" : "optimized";
      record.prediction    = std::nullopt;
      if (entry.role == Role::clone) record.idea = "the same again";
      if (entry.role == Role::heavier_clone) {
        record.idea = extra_calls_ > 0 ? "a 21st call for every 20" : "5 % of arithmetic after its calls";
        record.metrics["extra_calls"] = {static_cast<double>(extra_calls_), "lower"};
      }
      records.push_back(std::move(record));
    }
  }

  std::string of_libraries;  // where their limit is another
  for (Entry& entry : entries_) {
    if (entry.role == Role::control) continue;
    if (entry.role == Role::clone && timed && entry.alive()) {
      if (const auto interval = measure::median_interval(log_ratios(entry), 0.99))
        point.aa =
            AaControl{std::exp(interval->lo), std::exp(interval->hi), interval->lo > 0 || interval->hi < 0};
    }
    const bool shown = entry.role == Role::variant || options_.run.aa;
    if (!shown) continue;
    const auto index =
        options_.run.aa ? static_cast<size_t>(&entry - entries_.data()) : static_cast<size_t>(entry.variant);
    if (index >= records.size()) continue;
    VariantRecord& record = records[index];
    record.bytes_read     = cost.read + cost.disk_read;
    record.bytes_written  = cost.written;
    record.flops          = cost.flops;
    if (info(entry).python) record.library = info(entry).python->library();
    record.metrics.insert(entry.metrics.begin(), entry.metrics.end());
    if (entry.prepare_ns >= 0) record.prepare_ns = static_cast<double>(entry.prepare_ns);
    if (entry.checked > 0)
      record.checked = Checked{entry.checked, entry.elements, entry.max_error, entry.tolerance};
    if (entry.caught) {
      set_caught(record, *entry.caught);
      continue;
    }
    if (entry.clock_ns.empty()) continue;
    set_time(record, entry.clock_ns);
    if (experiment_.clock == Clock::cpu) record.wall_ns = measure::median(entry.wall_ns);
    if (timed && &entry != &entries_[baseline_]) {
      set_ratio(record, log_ratios(entry), confidence());
      set_ratio_in_cycles(record, lab::log_ratios(entries_[baseline_].cycles, entry.cycles));
    }

    const Entry* control = control_of(entry);
    if (const auto shares = shares_of_limit(entry); !shares.empty()) {
      const Control& limit                                        = *controls_[control->variant];
      record.share_of_limit                                       = measure::median(shares);
      record.limit_rate                                           = measure::median(control->rates);
      (limit.isa() == Isa::compiled ? point.limit : of_libraries) = limit.words();
    }

    if (experiment_.limit == Limit::disk)
      if (const auto limit = disk_limit()) {
        // Above 1 a cache below the file system answers.
        record.share_of_limit =
            static_cast<double>(cost.disk_read) / limit->bytes_per_s / (record.time_ns->median * 1e-9);
        record.limit_rate = limit->bytes_per_s;
        point.limit       = limit->words;
      }

    if (!options_.run.aa) score_prediction(record, info(entry).prediction);
  }
  if (!of_libraries.empty()) point.limit += (point.limit.empty() ? "" : "; of libraries: ") + of_libraries;
  point.variants = std::move(records);
  return point;
}

}  // namespace fathom::lab
