#include "lab/runner.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "core/run_on.h"
#include "lab/defence.h"
#include "lab/ranked.h"
#include "lab/session.h"
#include "lab/summary.h"
#include "lab/timed_point.h"

namespace fathom::lab {
namespace {

const Value& first_value(const Axis& axis) {
  FATHOM_EXPECT(!axis.values.empty(), fmt::format("axis '{}' has no values", axis.name));
  return axis.values.front();
}

// Axes that check_at does not name keep the first of their timed values.
std::vector<Point> check_points(const ExperimentInfo& experiment) {
  std::vector<Axis> axes;
  for (const Axis& axis : experiment.axes) {
    const auto own = std::find_if(experiment.check_at.begin(), experiment.check_at.end(),
                                  [&](const Axis& a) { return a.name == axis.name; });
    axes.push_back(own != experiment.check_at.end() ? *own : Axis{axis.name, {first_value(axis)}});
  }
  return cross_product(axes);
}

double number(const Value& value) {
  if (const auto* integer = std::get_if<int64_t>(&value)) return static_cast<double>(*integer);
  if (const auto* real = std::get_if<double>(&value)) return *real;
  return 0;
}

std::optional<Skip> beyond(const VariantInfo& variant, const Point& at) {
  for (const auto& [name, most] : variant.up_to)
    if (const Value* value = at.find(name); value && number(*value) > number(most))
      return Skip{"beyond_up_to", fmt::format("{} <= {}", name, to_string(most))};
  return std::nullopt;
}

std::optional<Skip> skip_of(const ExperimentInfo& experiment, const VariantInfo& variant) {
  if (experiment.backend == Backend::cuda && !cuda_device())
    return Skip{"needs_cuda", "a GPU: " + why_no_cuda_device()};
  if (!variant.has_launch && !variant.has_prepare) return Skip{"needs_cuda", "a CUDA build and a GPU"};
  for (const machine::Feature feature : variant.needs)
    if (const auto why = machine::missing(feature)) return Skip{"needs_feature", *why};
  if (!variant.library.empty()) {
    void* handle = dlopen(variant.library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) return Skip{"needs_library", variant.library};
    dlclose(handle);
  }
  return std::nullopt;
}

// Runs f; what this machine cannot do, or has no memory for, makes a typed skip of every variant.
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
  for (VariantRecord& record : records)
    if (skip && record.status == Outcome::ok) {
      record.status = Outcome::skipped;
      record.skip   = skip;
    }
}

// Every element of two calls on different inputs, at one small point.
std::optional<Caught> prove(InputSets& sets, const ExperimentInfo& experiment, int variant, Context& context,
                            Stopwatch& stopwatch) {
  if (auto caught = sets.overlap()) return caught;
  if (experiment.variants[variant].has_prepare)
    if (auto caught = guarded([&] { sets.prepare(variant, context); })) return caught;
  for (int call = 0; call < 2; ++call) {
    sets.refill(0);
    sets[0].arena().poison(static_cast<uint32_t>(call + 1));
    const ThreadAudit before = ThreadAudit::now();
    if (auto caught = guarded([&] {
          sets[0].call(variant, context);
          stopwatch.finish();
        }))
      return caught;
    const ThreadAudit after = ThreadAudit::now();
    if (auto caught = audit_threads(experiment.variants[variant], before, after)) return caught;
    const Inspection seen = inspect(sets[0], sets.history(0), sets.checksum(0), {}, false);
    if (seen.caught) return seen.caught;
  }
  return std::nullopt;
}

// Proves all variants at all check points; marks those that fail and counts what was compared.
void check_all(const ExperimentInfo& experiment, Pools& pools, Seeds& seeds, Events& events,
               std::vector<VariantRecord>& records) {
  const auto alive = [](const VariantRecord& record) { return record.status == Outcome::ok; };
  if (std::none_of(records.begin(), records.end(), alive)) return;
  const std::unique_ptr<Stopwatch> stopwatch = make_stopwatch(experiment, pools.cpus());
  const std::vector<Point> points            = check_points(experiment);
  for (size_t p = 0; p < points.size(); ++p) {
    events.phase("", "check", static_cast<double>(p) / static_cast<double>(points.size()));
    std::optional<InputSets> sets;
    const auto caught =
        guarded([&] { skip_unavailable(records, [&] { sets.emplace(experiment, points[p], 1, seeds); }); });
    for (VariantRecord& record : records)
      if (caught && record.status == Outcome::ok) set_caught(record, *caught);
    if (!sets) return;
    for (size_t v = 0; v < records.size(); ++v) {
      if (records[v].status != Outcome::ok) continue;
      events.phase(records[v].id, "check", static_cast<double>(p) / static_cast<double>(points.size()));
      wait_until_quiet();
      std::optional<RunOn> free;
      if (experiment.variants[v].kind == Kind::library) free.emplace(pools.cpus());
      Context context{stopwatch->stream(), pools.of(experiment.variants[v].threads)};
      skip_unavailable({&records[v], 1}, [&] {
        if (auto caught = prove(*sets, experiment, static_cast<int>(v), context, *stopwatch)) {
          caught->detail += fmt::format(" (at {})", points[p].to_string());
          set_caught(records[v], *caught);
        }
      });
    }
  }
}

}  // namespace

std::vector<Point> timed_points(const ExperimentInfo& experiment, const RunOptions& run) {
  std::vector<Axis> known;
  for (const Axis& axis : run.axes)  // one override list serves all targets: each takes what it has
    if (std::any_of(experiment.axes.begin(), experiment.axes.end(),
                    [&](const Axis& a) { return a.name == axis.name; }))
      known.push_back(axis);
  auto axes = override_axes(experiment.axes, known);
  FATHOM_EXPECT(axes.has_value(), axes.error().message);
  std::vector<Point> points = cross_product(*axes);
  if (run.quick && known.empty()) points.resize(1);
  return points;
}

std::vector<VariantRecord> blank_records(const ExperimentInfo& experiment, const MeasureOptions& options) {
  std::vector<VariantRecord> records;
  for (const VariantInfo& variant : experiment.variants) {
    VariantRecord record;
    record.id         = variant.id;
    record.kind       = to_string(variant.kind);
    record.idea       = variant.idea;
    record.techniques = variant.techniques;
    record.threads    = variant.threads == kAllThreads ? host_threads() : variant.threads;
    const auto failed = std::find_if(options.failed.begin(), options.failed.end(),
                                     [&](const VariantRecord& f) { return f.id == variant.id; });
    if (failed != options.failed.end()) {
      record.status  = failed->status;
      record.detail  = failed->detail;
      record.verdict = "INVALID";
    } else if (const auto skip = skip_of(experiment, variant)) {
      record.status = Outcome::skipped;
      record.skip   = skip;
    }
    records.push_back(std::move(record));
  }
  return records;
}

namespace {

// One call of each variant that has a time, under the profiler's eyes. After all timing: what attaches to
// CUDA leaves hooks behind.
void profile_variants(const ExperimentInfo& experiment, const std::vector<PointRecord>& timed, Pools& pools,
                      Seeds& seeds, Events& events, Profiler& profiler) {
  const std::unique_ptr<Stopwatch> stopwatch = make_stopwatch(experiment, pools.cpus());
  for (const PointRecord& point : timed) {
    InputSets sets(experiment, point.at, 1, seeds);
    for (size_t v = 0; v < experiment.variants.size(); ++v) {
      const VariantInfo& variant = experiment.variants[v];
      const bool has_time =
          std::any_of(point.variants.begin(), point.variants.end(),
                      [&](const VariantRecord& r) { return r.id == variant.id && r.time_ns.has_value(); });
      if (!has_time) continue;
      events.phase(variant.id, "profile", 1);
      Context context{stopwatch->stream(), pools.of(variant.threads)};
      if (variant.has_prepare) sets.prepare(static_cast<int>(v), context);
      const auto profile = profiler.profile({experiment.id, variant.id, point.at, sets[0].cost()}, [&] {
        sets[0].call(static_cast<int>(v), context);
        stopwatch->finish();
      });
      events.profiled(point.at, variant.id,
                      profile ? *profile : Profile{.notes = {"no profile: " + profile.error().message}});
    }
  }
}

}  // namespace

void measure(const ExperimentInfo& experiment, const MeasureOptions& options, Events& events,
             Profiler* profiler) {
  if (experiment.shape == Shape::ranked) return measure_ranked(experiment, options, events);
  if (experiment.shape == Shape::session) return measure_session(experiment, options, events);
  Pools pools;
  Seeds seeds(options.run.seed);
  std::vector<VariantRecord> records = blank_records(experiment, options);
  // The baseline always runs: ratios need it. Only a process of one sample belongs to one variant alone.
  for (size_t v = options.run.cold_start ? 0 : 1; v < records.size(); ++v) {
    const bool named = options.variants.empty() || std::find(options.variants.begin(), options.variants.end(),
                                                             records[v].id) != options.variants.end();
    if (named && !options.run.aa) continue;
    records[v].id.clear();
    records[v].status = Outcome::skipped;
  }
  const auto unwanted = [](const VariantRecord& record) { return record.id.empty(); };

  if (!options.run.cold_start) check_all(experiment, pools, seeds, events, records);
  if (options.run.check_only) {
    std::erase_if(records, unwanted);
    events.point({.stopped = "checked only", .variants = std::move(records)});
    return;
  }

  const std::vector<Point> points = timed_points(experiment, options.run);
  std::vector<PointRecord> timed_records;
  const double budget_s = (options.run.quick ? 3.0 : 10.0) / static_cast<double>(points.size());
  for (const Point& at : points) {
    if (std::find(options.done.begin(), options.done.end(), at.to_string()) != options.done.end()) continue;
    std::vector<VariantRecord> here = records;
    for (size_t v = 0; v < here.size(); ++v) {
      if (here[v].status != Outcome::ok) continue;
      here[v].skip = beyond(experiment.variants[v], at);
      if (here[v].skip) here[v].status = Outcome::skipped;
    }
    PointRecord point{.at = at, .variants = here};
    const bool any = std::any_of(here.begin(), here.end(),
                                 [](const VariantRecord& record) { return record.status == Outcome::ok; });
    if (any)
      skip_unavailable(point.variants, [&] {
        TimedPoint timed(experiment, options, at, pools, seeds, events, budget_s);
        point = options.run.cold_start ? timed.run_once(here) : timed.run(here);
      });
    std::erase_if(point.variants, unwanted);
    events.point(point);
    timed_records.push_back(std::move(point));
  }
  if (profiler && experiment.backend == Backend::cuda)
    profile_variants(experiment, timed_records, pools, seeds, events, *profiler);
}

}  // namespace fathom::lab
