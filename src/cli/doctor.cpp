#include "cli/doctor.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/doctor_gpu.h"
#include "cli/doctor_text.h"
#include "core/exit_code.h"
#include "machine/ceilings.h"
#include "machine/features.h"
#include "machine/isolation.h"
#include "machine/machine_id.h"
#include "machine/measurement_scope.h"
#include "machine/topology.h"

namespace fathom::cli {
namespace {

using namespace machine;
using Json = nlohmann::json;

// ---- text

void print_machine(const Topology& m) {
  section("Machine");
  fact("id", machine_id());
  fact("processor", m.microarchitecture.empty()
                        ? m.cpu.model_name
                        : fmt::format("{} ({})", m.cpu.model_name, m.microarchitecture));
  fact("packages / cores", fmt::format("{} / {}, {} hardware threads, {} usable by us", m.packages, m.cores,
                                       m.threads, usable_threads()));
  fact("NUMA nodes", std::to_string(m.numa_nodes));
  for (const CpuCache& cache : m.caches)
    fact(fmt::format("L{} {}", cache.level, cache.kind),
         fmt::format("{:>8} x {}, {}-byte lines, each for {} thread{}", size_text(cache.bytes),
                     cache.instances, cache.line_bytes, cache.shared_by, cache.shared_by == 1 ? "" : "s"));
  fact("clock", !m.governor ? "not readable"
                : m.max_frequency_hz
                    ? fmt::format("governor {}, up to {:.2f} GHz", *m.governor, *m.max_frequency_hz / 1e9)
                    : fmt::format("governor {}", *m.governor));
  fact("system", fmt::format("{}, {}", m.distribution, m.kernel));
  fact("built with", m.compiler);
}

void print_memory(const Topology& m) {
  section("Memory");
  fact("total / available",
       fmt::format("{} / {}", size_text(m.memory_bytes), size_text(memory_available_bytes())));
  fact("huge pages",
       m.transparent_huge_pages.empty() ? "transparent: none" : "transparent: " + m.transparent_huge_pages);
  for (const HugePagePool& pool : m.huge_page_pools)
    fact("",
         fmt::format("reserved, {}: {} pages, {} free", size_text(pool.page_bytes), pool.pages, pool.free));
}

void print_isolation(const Isolation& isolation) {
  section("Isolation");
  fact("virtual machine", !isolation.virtual_machine     ? "no"
                          : isolation.hypervisor.empty() ? "yes, hypervisor unknown"
                                                         : "yes, " + isolation.hypervisor);
  const CgroupLimits& cgroup = isolation.cgroup;
  fact("cgroup", fmt::format("{}; processors: {}; memory: {}", cgroup.version,
                             cgroup.cpus ? fmt::format("{:.3g}", *cgroup.cpus) : "no limit",
                             cgroup.memory_bytes ? size_text(*cgroup.memory_bytes) : "no limit"));
  fact("steal since boot", fmt::format("{:.2f} % of processor time", 100 * steal_share({}, cpu_times())));
  if (const std::optional<double> pressure = cpu_pressure())
    fact("CPU pressure, 10 s",
         fmt::format("{:.1f} % of the time some task waited for a processor", 100 * *pressure));
}

// All instruction sets in two lines.
void print_instruction_sets() {
  std::vector<std::string_view> have, lack;
  for (const Feature feature : all_features())
    if (kind(feature) == FeatureKind::instruction_set)
      (missing(feature) ? lack : have).push_back(to_string(feature));
  section("Instruction sets");
  fact("available", fmt::format("{}", fmt::join(have, " ")));
  fact("missing", fmt::format("{}", fmt::join(lack, " ")));
}

template <class Entry>
const Measured* other_of(const std::vector<Entry>& entries, const Entry& one, int threads,
                         Measured Entry::*value, bool (*same)(const Entry&, const Entry&)) {
  for (const Entry& entry : entries)
    if (entry.threads == threads && threads > 1 && same(entry, one)) return &(entry.*value);
  return nullptr;
}

void print_ceilings(const Ceilings& c) {
  section("Ceilings");
  folded("  ", fmt::format("measured {} in {:.0f} s; best is the best ever seen; {} pages; a copy counts "
                           "bytes read and written",
                           c.measured_at, c.seconds, c.huge_pages ? "huge" : "small"));

  const std::string all = c.threads > 1 ? fmt::format("{} threads", c.threads) : "";
  header("bandwidth, GB/s", "1 thread", all);
  for (const Bandwidth& one : c.bandwidths) {
    if (one.threads != 1) continue;
    std::string traffic(to_string(one.traffic));
    for (char& letter : traffic) letter = letter == '_' ? ' ' : letter;
    row(fmt::format("{:<5}{}", to_string(one.level), traffic), one.bytes_per_s,
        other_of<Bandwidth>(c.bandwidths, one, c.threads, &Bandwidth::bytes_per_s,
                            [](const Bandwidth& a, const Bandwidth& b) {
                              return a.level == b.level && a.traffic == b.traffic;
                            }),
        1e9);
  }
  header("arithmetic, GFLOP/s", "1 thread", all);
  for (const ArithmeticPeak& one : c.peaks) {
    if (one.threads != 1) continue;
    row(fmt::format("{:<12}{}", one.isa, kDTypes[static_cast<size_t>(one.dtype)].name), one.flops_per_s,
        other_of<ArithmeticPeak>(c.peaks, one, c.threads, &ArithmeticPeak::flops_per_s,
                                 [](const ArithmeticPeak& a, const ArithmeticPeak& b) {
                                   return a.isa == b.isa && a.dtype == b.dtype;
                                 }),
        1e9);
  }
  header("latency of a load, ns", "1 thread");
  for (const LoadLatency& entry : c.load_latencies)
    row(fmt::format("{:<5}{}", to_string(entry.level), size_text(entry.bytes)), entry.ns, nullptr, 1);

  if (c.wake_up_busy_ns.trials > 0) {
    header("fork-join latency, us", all);
    row("workers spinning", c.wake_up_busy_ns, nullptr, 1e3);
    row("workers parked", c.wake_up_asleep_ns, nullptr, 1e3);
  }
  if (!c.disk_reads.empty()) header("file read, GB/s", "1 MiB a read");
  for (const DiskRate& entry : c.disk_reads) {
    constexpr std::string_view kNames[] = {"direct, 4 in flight", "buffered, read-ahead",
                                           "from the page cache"};
    const std::string_view name         = kNames[static_cast<int>(entry.kind)];
    if (entry.why_not)
      folded(fmt::format("  {:<22}  ", name), "not measured: " + *entry.why_not);
    else
      row(name, entry.bytes_per_s, nullptr, 1e9);
  }
}

// ---- JSON

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json machine_json(const Topology& m) {
  Json json = {{"id", machine_id()},
               {"cpu_vendor", m.cpu.vendor},
               {"cpu_model", m.cpu.model_name},
               {"microarchitecture", m.microarchitecture.empty() ? Json(nullptr) : Json(m.microarchitecture)},
               {"packages", m.packages},
               {"cores", m.cores},
               {"threads", m.threads},
               {"usable_threads", usable_threads()},
               {"numa_nodes", m.numa_nodes},
               {"governor", or_null(m.governor)},
               {"max_frequency_hz", or_null(m.max_frequency_hz)},
               {"kernel", m.kernel},
               {"distribution", m.distribution},
               {"compiler", m.compiler},
               {"caches", Json::array()}};
  for (const CpuCache& cache : m.caches)
    json["caches"].push_back({{"level", cache.level},
                              {"kind", cache.kind},
                              {"bytes", cache.bytes},
                              {"line_bytes", cache.line_bytes},
                              {"shared_by_threads", cache.shared_by},
                              {"instances", cache.instances}});
  return json;
}

Json memory_json(const Topology& m) {
  Json json = {{"total_bytes", m.memory_bytes},
               {"available_bytes", memory_available_bytes()},
               {"page_bytes", m.page_bytes},
               {"transparent_huge_pages",
                m.transparent_huge_pages.empty() ? Json(nullptr) : Json(m.transparent_huge_pages)},
               {"huge_page_pools", Json::array()}};
  for (const HugePagePool& pool : m.huge_page_pools)
    json["huge_page_pools"].push_back(
        {{"page_bytes", pool.page_bytes}, {"pages", pool.pages}, {"free", pool.free}});
  return json;
}

Json isolation_json(const Isolation& isolation) {
  return {{"virtual_machine", isolation.virtual_machine},
          {"hypervisor", isolation.hypervisor.empty() ? Json(nullptr) : Json(isolation.hypervisor)},
          {"cgroup_version", isolation.cgroup.version},
          {"cgroup_cpus", or_null(isolation.cgroup.cpus)},
          {"cgroup_memory_bytes", or_null(isolation.cgroup.memory_bytes)},
          {"steal_share_since_boot", steal_share({}, cpu_times())},
          {"cpu_pressure_10s", or_null(cpu_pressure())}};
}

Json features_json() {
  constexpr std::string_view kKinds[] = {"instruction_set", "profiling", "system", "library", "gpu"};
  Json features                       = Json::array();
  for (const Feature feature : all_features()) {
    const std::optional<std::string> why_not = missing(feature);
    features.push_back({{"name", to_string(feature)},
                        {"kind", kKinds[static_cast<int>(kind(feature))]},
                        {"description", describe(feature)},
                        {"available", !why_not},
                        {"why_not", or_null(why_not)}});
  }
  return features;
}

}  // namespace

// The ceilings, or null where `quick` and none are cached.
const Ceilings* known_ceilings(const DoctorFlags& flags) {
  if (flags.quick && !std::filesystem::exists(ceilings_path())) return nullptr;
  return &ceilings(flags.refresh ? Refresh::always : Refresh::if_missing);
}

int doctor(const DoctorFlags& flags) {
  const Ceilings* known = known_ceilings(flags);
  std::optional<MeasurementScope> claims;
  if (known) claims = machine::measurement_scope(topology(), isolation(), *known, lacking_features());
  if (flags.json) {
    const Json report = {
        {"schema", "fathom.doctor/1"},
        {"machine", machine_json(topology())},
        {"memory", memory_json(topology())},
        {"isolation", isolation_json(isolation())},
        {"features", features_json()},
        {"ceilings", known ? to_json(*known) : Json(nullptr)},
        {"claims", claims ? Json{{"can", claims->can}, {"cannot", claims->cannot}} : Json(nullptr)},
        {"gpu", gpu_json(flags)}};
    line("{}", report.dump(2));
    return kExitOk;
  }
  line("fathom doctor");
  print_machine(topology());
  print_memory(topology());
  print_isolation(isolation());
  print_instruction_sets();
  if (!flags.quick) {
    print_features(FeatureKind::profiling, "Profiling capabilities");
    print_features(FeatureKind::system, "System interfaces");
    print_features(FeatureKind::library, "Libraries opened at run time");
  }
  if (known) {
    print_ceilings(*known);
    if (!flags.quick) print_claims(*claims, "this machine");
  } else {
    section(
        "Ceilings: not measured yet; `fathom doctor` measures them in about 20 s, and so does the first "
        "run.");
  }
  print_gpu(flags);
  return kExitOk;
}

void add_doctor(CLI::App& app, int& exit_code) {
  struct Flags : DoctorFlags {
    std::string gpu_rung;  // internal, see doctor_gpu.h
  };
  const auto flags     = std::make_shared<Flags>();
  CLI::App* const verb = app.add_subcommand(
      "doctor", "What this machine is and can do, measured; what a result from it can claim");
  verb->add_flag("--json", flags->json, "One JSON object, schema fathom.doctor/1")->envname("FATHOM_JSON");
  verb->add_flag("--refresh", flags->refresh,
                 "Measure the ceilings again (about 20 s, as much for a GPU); the best ever seen are kept")
      ->envname("FATHOM_REFRESH");
  verb->add_flag("--quick", flags->quick,
                 "Facts only, in a second or two: leaves out what is tried, and ceilings that are not cached")
      ->excludes("--refresh");
  verb->add_option(kProbeGpuProfiling, flags->gpu_rung)->group("");
  verb->callback([flags, &exit_code] {
    exit_code = flags->gpu_rung.empty() ? doctor(*flags) : probe_gpu_profiling(flags->gpu_rung);
  });
}

}  // namespace fathom::cli
