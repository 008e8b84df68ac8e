#include "lab/measure_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <span>

#include "core/cpu_affinity.h"
#include "lab/devices.h"
#include "lab/input_sets.h"
#include "lab/read_only_inputs.h"
#include "lab/sample_timer.h"
#include "lab/summary.h"
#include "lab/thread_pools.h"
#include "lab/thread_state.h"
#include "lab/timed_point.h"
#include "lab/variant_records.h"
#include "lab/verified_call.h"
#include "measure/clock.h"

namespace fathom::lab {
namespace {

// Runs f. Where it throws Unavailable or NotEnoughMemory, all variants in `records` become typed skips.
template <class F>
void skip_unavailable(std::span<VariantRecord> records, F&& f) {
  std::optional<Skip> skip;
  try {
    f();
  } catch (const NotEnoughMemory& e) {
    skip = Skip{"needs_memory", e.what()};
  } catch (const Unavailable& e) {
    skip = Skip{e.reason(), e.what()};
  }
  if (!skip) return;
  for (VariantRecord& record : records)
    if (record.status == Outcome::ok) {
      record.status = Outcome::skipped;
      record.skip   = skip;
    }
}

// Every element of two calls on different inputs, at one small point.
std::optional<Caught> prove(InputSets& sets, const ExperimentInfo& experiment, int variant, Context& context,
                            SampleTimer& timer, ThreadPool* of_references) {
  if (auto caught = sets.overlap()) return caught;
  const VariantInfo& info = experiment.variants[variant];
  ThreadStates states(context.pool);
  if (info.has_prepare) {
    const ThreadAudit before = ThreadAudit::now();
    if (auto caught = guarded([&] { sets.prepare(variant, context); })) return caught;
    if (auto caught = audit_processes(info, before, ThreadAudit::now())) return caught;
    if (auto caught = states.after_prepare(info)) return caught;
  }
  for (int call = 0; call < 2; ++call) {
    sets.refill(0);
    sets[0].arena().poison(static_cast<uint32_t>(call + 1));
    const ThreadAudit before = ThreadAudit::now();
    bool wrote_inputs        = false;
    if (auto caught = guarded([&] {
          // A GPU's inputs lie elsewhere, and a call may have to pin those of the host.
          std::optional<ReadOnlyInputs> inputs;
          if (experiment.backend == Backend::cpu) inputs.emplace();
          sets[0].call(variant, context);
          timer.finish();
          wrote_inputs = inputs && inputs->written();
        }))
      return caught;
    const ThreadAudit after = ThreadAudit::now();
    // The driver of a GPU has threads of its own, which may work beside any call.
    const auto audit = experiment.backend == Backend::cpu ? audit_threads : audit_processes;
    if (auto caught = audit(info, before, after)) return caught;
    if (auto caught = states.undo_changes(info)) return caught;
    const Inspection seen =
        inspect(sets[0], sets.history(0), sets.checksum(0), {.pool = of_references}, false);
    if (seen.caught) return seen.caught;
    if (wrote_inputs)
      return Caught{Outcome::wrong, "read_only_inputs",
                    "the call wrote to its inputs, and put back what was there"};
  }
  return std::nullopt;
}

// Proves all variants at all check points; marks those that fail and counts what was compared.
void check_all(const ExperimentInfo& experiment, ThreadPools& pools, Seeds& seeds, Events& events,
               std::vector<VariantRecord>& records) {
  const auto alive = [](const VariantRecord& record) { return record.status == Outcome::ok; };
  if (std::none_of(records.begin(), records.end(), alive)) return;
  const std::unique_ptr<SampleTimer> timer = make_sample_timer(experiment, pools.cpus());
  const std::vector<Point> points          = check_points(experiment);
  for (size_t p = 0; p < points.size(); ++p) {
    events.phase("", "check", static_cast<double>(p) / static_cast<double>(points.size()));
    std::optional<InputSets> sets;
    const auto caught =
        guarded([&] { skip_unavailable(records, [&] { sets.emplace(experiment, points[p], 1, seeds); }); });
    for (VariantRecord& record : records)
      if (caught && record.status == Outcome::ok) set_caught(record, *caught);
    if (!sets) return;
    for (size_t v = 0; v < records.size(); ++v) {
      if (records[v].status != Outcome::ok || beyond_up_to(experiment.variants[v], points[p])) continue;
      events.phase(records[v].id, "check", static_cast<double>(p) / static_cast<double>(points.size()));
      wait_until_quiet();
      std::optional<ScopedAffinity> free;
      if (experiment.variants[v].kind == Kind::library) free.emplace(pools.cpus());
      Context context{timer->stream(), pools.of(experiment.variants[v].threads)};
      skip_unavailable({&records[v], 1}, [&] {
        if (auto caught = prove(*sets, experiment, static_cast<int>(v), context, *timer,
                                pools.of_references(experiment.backend))) {
          caught->detail += fmt::format(" (at {})", points[p].to_string());
          set_caught(records[v], *caught);
        }
      });
    }
  }
}

// Profiles one call of each variant that has a time. After all timing: tools that attach to CUDA leave hooks
// behind.
void profile_variants(const ExperimentInfo& experiment, const std::vector<PointRecord>& timed,
                      ThreadPools& pools, Seeds& seeds, Events& events, Profiler& profiler) {
  const std::unique_ptr<SampleTimer> timer = make_sample_timer(experiment, pools.cpus());
  for (const PointRecord& point : timed) {
    InputSets sets(experiment, point.at, 1, seeds);
    for (size_t v = 0; v < experiment.variants.size(); ++v) {
      const VariantInfo& variant = experiment.variants[v];
      const bool has_time =
          std::any_of(point.variants.begin(), point.variants.end(),
                      [&](const VariantRecord& r) { return r.id == variant.id && r.time_ns.has_value(); });
      if (!has_time || variant.python) continue;  // its kernels are another process's
      events.phase(variant.id, "profile", 1);
      Context context{timer->stream(), pools.of(variant.threads)};
      if (variant.has_prepare) sets.prepare(static_cast<int>(v), context);
      timer->as_in_sample(variant, [&] {
        const auto profile =
            profiler.profile({experiment.id, variant.id, point.at, sets[0].cost(), experiment.backend}, [&] {
              sets[0].call(static_cast<int>(v), context);
              timer->finish();
            });
        events.profiled(point.at, variant.id,
                        profile ? *profile : Profile{.notes = {"no profile: " + profile.error().message}});
      });
    }
  }
}

// The baseline always runs, since ratios need it, except in a process that makes one sample of one variant.
bool wanted(const MeasureOptions& options, size_t variant, const std::string& id) {
  if (variant == 0 && !options.run.cold_start) return true;
  if (options.run.aa && variant > 0) return false;
  return options.variants.empty() ||
         std::find(options.variants.begin(), options.variants.end(), id) != options.variants.end();
}

PointRecord time_point(const ExperimentInfo& experiment, const MeasureOptions& options, const Point& at,
                       std::vector<VariantRecord> records, ThreadPools& pools, Seeds& seeds, Events& events) {
  PointRecord point{.at = at, .variants = records_at(experiment, at, std::move(records))};
  if (!any_to_run(point.variants)) return point;
  skip_unavailable(point.variants, [&] {
    TimedPoint timed(experiment, options, at, pools, seeds, events, seconds_for_a_point(experiment, options));
    point = options.run.cold_start ? timed.run_once(point.variants) : timed.run(point.variants);
  });
  return point;
}

bool adds_calls(const PointRecord& point) {
  return std::any_of(point.variants.begin(), point.variants.end(), [](const VariantRecord& variant) {
    const auto extra = variant.metrics.find("extra_calls");
    return extra != variant.metrics.end() && extra->second.value > 0;
  });
}

int64_t wall_ns() { return measure::now_ns(measure::Clock::wall); }

// What a fresh process spent before it had a problem: on itself, and on the GPU's driver and context.
void add_start_up(const MeasureOptions& options, int64_t began_ns, int64_t device_ns, PointRecord& point) {
  for (VariantRecord& variant : point.variants) {
    if (variant.status != Outcome::ok) continue;
    if (options.started_ns > 0)
      variant.metrics["process_start_ns"] = {static_cast<double>(began_ns - options.started_ns), "lower"};
    if (device_ns > 0) variant.metrics["device_start_ns"] = {static_cast<double>(device_ns), "lower"};
  }
}

}  // namespace

void measure_calls(const ExperimentInfo& experiment, const MeasureOptions& options, Events& events,
                   Profiler* profiler) {
  const int64_t began_ns = wall_ns();
  const bool has_device  = experiment.backend == Backend::cuda && device_of(experiment);
  const int64_t ready_ns = wall_ns();
  ThreadPools pools;
  Seeds seeds(options.run.seed);
  std::vector<VariantRecord> records = blank_records(experiment, options);
  // Variants that nobody asked for keep their place, without a name, until the record is reported.
  for (size_t v = 0; v < records.size(); ++v)
    if (!wanted(options, v, records[v].id)) records[v] = {.status = Outcome::skipped};
  const auto drop_unwanted = [](std::vector<VariantRecord>& all) {
    std::erase_if(all, [](const VariantRecord& record) { return record.id.empty(); });
  };

  if (!options.run.cold_start) check_all(experiment, pools, seeds, events, records);
  if (options.run.check_only) {
    drop_unwanted(records);
    events.point({.stopped = "checked only", .variants = std::move(records)});
    return;
  }

  std::vector<PointRecord> timed;
  for (const Point& at : timed_points(experiment, options)) {
    PointRecord point = time_point(experiment, options, at, records, pools, seeds, events);
    drop_unwanted(point.variants);
    if (options.run.cold_start && timed.empty())
      add_start_up(options, began_ns, has_device ? ready_ns - began_ns : 0, point);
    events.point(point);
    timed.push_back(std::move(point));
    // Once 5 % more calls were made, or where they cannot be, other points add nothing to --aa.
    if (options.run.aa && (timed.size() == 3 || experiment.cache == Cache::cold || adds_calls(timed.back())))
      break;
  }
  if (profiler) profile_variants(experiment, timed, pools, seeds, events, *profiler);
}

}  // namespace fathom::lab
