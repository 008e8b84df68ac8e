#include "diagnose/facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "lab/counter_binding.h"
#include "lab/quantity.h"
#include "profile/occupancy.h"

namespace fathom::diagnose {
namespace {

// The numbers of a record under one roof: its metrics, and what stands beside them.
using Parts = std::map<std::string, double, std::less<>>;

constexpr double kSectorBytes   = 32;
constexpr double kSchedulers    = 4;  // of a multiprocessor
constexpr double kHostPageBytes = 4096;

// However small its blocks, a GH100 starts 1.65 a ns: ch06/block_size, times of 32 to 128 threads a block.
constexpr int kHopper        = 90;
constexpr double kNsPerBlock = 0.60;

enum class Of { gpu, cpu, both };
enum class As { share, number, times };

struct Quantity {
  std::string name;
  Of of;
  std::vector<std::string> parts;
  std::function<double(const Parts&)> value;
  As as;
  std::string text;  // "{}" stands for the value
};

double part(const Parts& parts, std::string_view name) { return parts.find(name)->second; }

double percent(const Parts& parts, std::string_view name) { return part(parts, name) / 100; }

double over(double a, double b) { return b > 0 ? a / b : 0; }

// Warps of a scheduler over the instructions that it issues, per cycle: how long a warp takes for one
// instruction. The counted stalls are parts of it.
double cycles_of_an_instruction(const Parts& p) {
  return over(part(p, "warps_per_scheduler") * percent(p, "counted_warps_active_pct"),
              percent(p, "counted_issue_active_pct"));
}

Quantity stall(const std::string& reason, std::string_view words) {
  const std::string counted = "counted_stall_" + reason;
  return {"stall_" + reason,
          Of::gpu,
          {counted, "counted_warps_active_pct", "counted_issue_active_pct", "warps_per_scheduler"},
          [counted](const Parts& p) { return over(part(p, counted), cycles_of_an_instruction(p)); },
          As::share,
          fmt::format("warps spend {{}} of their time {}", words)};
}

Quantity declared_limit(const std::string& name, const std::string& text) {
  return {name, Of::both, {name}, [name](const Parts& p) { return part(p, name); }, As::number, text};
}

const std::vector<Quantity>& quantities() {
  static const std::vector<Quantity> all = {
      {"limit_share",
       Of::both,
       {"share_of_limit"},
       [](const Parts& p) { return part(p, "share_of_limit"); },
       As::share,
       "{} of the measured limit"},
      declared_limit("memory_limit", "it declares a bandwidth of memory as its limit"),
      declared_limit("shared_limit", "it declares the bandwidth of shared memory as its limit"),
      declared_limit("compute_limit", "it declares a peak of arithmetic as its limit"),
      declared_limit("link_limit", "it declares the link to the host as its limit"),
      {"flops_per_byte",
       Of::both,
       {"declared_flops", "declared_bytes"},
       [](const Parts& p) { return over(part(p, "declared_flops"), part(p, "declared_bytes")); },
       As::number,
       "{} FLOP/byte declared"},
      {"ridge_share",
       Of::both,
       {"declared_flops", "declared_bytes", "machine_dram_bytes_per_s", "machine_flops_per_s"},
       [](const Parts& p) {
         return over(part(p, "declared_flops"), part(p, "declared_bytes")) /
                over(part(p, "machine_flops_per_s"), part(p, "machine_dram_bytes_per_s"));
       },
       As::times,
       "the intensity is {} of the ridge that was measured here"},
      {"clock_ratio",
       Of::gpu,
       {"ratio_in_cycles", "ratio"},
       [](const Parts& p) { return over(part(p, "ratio_in_cycles"), part(p, "ratio")); },
       As::times,
       "in cycles it is {} of the ratio in time"},

      {"idle_share",
       Of::gpu,
       {"kernel_time_ns", "time_ns"},
       [](const Parts& p) {
         const auto copies = p.find("copy_time_ns");
         const double busy = part(p, "kernel_time_ns") + (copies == p.end() ? 0 : copies->second);
         return std::max(0.0, 1 - over(busy, part(p, "time_ns")));
       },
       As::share,
       "no kernel and no copy runs for {} of the call"},
      {"dram_share",
       Of::gpu,
       {"counted_dram_bytes_read", "counted_dram_bytes_written", "counted_time_ns",
        "machine_dram_bytes_per_s"},
       [](const Parts& p) {
         return over(part(p, "counted_dram_bytes_read") + part(p, "counted_dram_bytes_written"),
                     part(p, "counted_time_ns") * 1e-9 * part(p, "machine_dram_bytes_per_s"));
       },
       As::share,
       "DRAM moves {} of the highest rate that was measured here"},
      {"memory_share",
       Of::gpu,
       {"counted_memory_throughput_pct"},
       [](const Parts& p) { return percent(p, "counted_memory_throughput_pct"); },
       As::share,
       "the busiest unit of memory (L1, L2 or DRAM) works {} of the time"},
      {"sm_share",
       Of::gpu,
       {"counted_sm_throughput_pct"},
       [](const Parts& p) { return percent(p, "counted_sm_throughput_pct"); },
       As::share,
       "the busiest unit of the multiprocessors works {} of the time"},
      {"issue_share",
       Of::gpu,
       {"counted_issue_active_pct"},
       [](const Parts& p) { return percent(p, "counted_issue_active_pct"); },
       As::share,
       "schedulers issue in {} of the cycles"},
      {"tensor_share",
       Of::gpu,
       {"counted_tensor_pipe_pct"},
       [](const Parts& p) { return percent(p, "counted_tensor_pipe_pct"); },
       As::share,
       "tensor cores work in {} of the cycles"},
      {"shared_share",
       Of::gpu,
       {"counted_shared_wavefronts", "counted_cycles", "multiprocessors"},
       [](const Parts& p) {
         return over(part(p, "counted_shared_wavefronts"),
                     part(p, "counted_cycles") * part(p, "multiprocessors"));
       },
       As::share,
       "shared memory answers in {} of the cycles"},
      {"traffic_ratio",
       Of::gpu,
       {"counted_over_declared_bytes"},
       [](const Parts& p) { return part(p, "counted_over_declared_bytes"); },
       As::times,
       "DRAM moves {} of the declared bytes"},
      // 0 where there is no such access, which wastes nothing.
      {"load_sector_bytes",
       Of::gpu,
       {"counted_bytes_per_sector_load"},
       [](const Parts& p) {
         const double bytes = part(p, "counted_bytes_per_sector_load");
         return bytes > 0 ? bytes : kSectorBytes;
       },
       As::number,
       "loads use {} of a sector's 32 bytes"},
      {"store_sector_bytes",
       Of::gpu,
       {"counted_bytes_per_sector_store"},
       [](const Parts& p) {
         const double bytes = part(p, "counted_bytes_per_sector_store");
         return bytes > 0 ? bytes : kSectorBytes;
       },
       As::number,
       "stores use {} of a sector's 32 bytes"},
      {"conflict_share",
       Of::gpu,
       {"counted_shared_bank_conflicts", "counted_shared_wavefronts"},
       [](const Parts& p) {
         return over(part(p, "counted_shared_bank_conflicts"), part(p, "counted_shared_wavefronts"));
       },
       As::share,
       "{} of shared memory's wavefronts are bank conflicts"},
      {"threads_per_instruction",
       Of::gpu,
       {"counted_threads_per_instruction"},
       [](const Parts& p) { return part(p, "counted_threads_per_instruction"); },
       As::number,
       "{} of a warp's 32 lanes work in an instruction"},
      {"local_share",
       Of::gpu,
       {"counted_local_load_sectors", "counted_l1_bytes"},
       [](const Parts& p) {
         return over(part(p, "counted_local_load_sectors") * kSectorBytes, part(p, "counted_l1_bytes"));
       },
       As::share,
       "{} of L1's bytes are loads of local memory"},
      {"sm_active_share",
       Of::gpu,
       {"counted_sm_active_pct"},
       [](const Parts& p) { return percent(p, "counted_sm_active_pct"); },
       As::share,
       "multiprocessors have a warp in {} of the cycles"},
      {"occupancy",
       Of::gpu,
       {"theoretical_occupancy"},
       [](const Parts& p) { return part(p, "theoretical_occupancy"); },
       As::share,
       "registers, shared memory and block size allow {} of the warps"},
      {"warps_active_share",
       Of::gpu,
       {"counted_warps_active_pct"},
       [](const Parts& p) { return percent(p, "counted_warps_active_pct"); },
       As::share,
       "{} of the warps that fit are there"},
      {"tail_factor",
       Of::gpu,
       {"waves_per_multiprocessor"},
       [](const Parts& p) {
         const double waves = part(p, "waves_per_multiprocessor");
         return waves > 1 ? std::ceil(waves) / waves : 1;
       },
       As::times,
       "the last wave is not full: whole waves over waves is {}"},
      {"grid_share",
       Of::gpu,
       {"grid_size", "multiprocessors"},
       [](const Parts& p) { return over(part(p, "grid_size"), part(p, "multiprocessors")); },
       As::share,
       "the grid has blocks for {} of the multiprocessors"},

      {"block_start_share",
       Of::gpu,
       {"grid_size", "time_ns", "ns_per_block_start"},
       [](const Parts& p) {
         return over(part(p, "grid_size") * part(p, "ns_per_block_start"), part(p, "time_ns"));
       },
       As::share,
       "starting its blocks alone takes {} of the call"},

      stall("long_scoreboard", "waiting for memory (long scoreboard)"),
      stall("short_scoreboard", "waiting for shared memory (short scoreboard)"),
      stall("barrier", "at barriers"),
      stall("math_pipe", "waiting for a math pipe"),
      stall("lg_throttle", "waiting for a place in the queue of global memory (lg throttle)"),
      stall("mio_throttle", "waiting for a place in the queue of shared memory (mio throttle)"),
      stall("wait", "waiting for the result before (wait)"),
      stall("dispatch", "held back by the dispatcher"),
      stall("no_instruction", "waiting for instructions to be fetched"),
      stall("gmma", "waiting for tensor cores (gmma)"),
      stall("membar", "at memory fences"),

      {"busy_share",
       Of::cpu,
       {"cpus_busy", "threads"},
       [](const Parts& p) { return over(part(p, "cpus_busy"), part(p, "threads")); },
       As::share,
       "its threads are on a CPU for {} of the call"},
      {"faulted_share",
       Of::cpu,
       {"minor_faults", "declared_bytes"},
       [](const Parts& p) {
         return over(part(p, "minor_faults") * kHostPageBytes, part(p, "declared_bytes"));
       },
       As::share,
       "pages that are touched for the first time hold {} of the declared bytes"},
      {"instructions_per_cycle",
       Of::cpu,
       {"counted_instructions", "counted_cycles"},
       [](const Parts& p) { return over(part(p, "counted_instructions"), part(p, "counted_cycles")); },
       As::number,
       "{} instructions a cycle"},
      {"misses_per_1000",
       Of::cpu,
       {"counted_cache_misses", "counted_instructions"},
       [](const Parts& p) {
         return over(1000 * part(p, "counted_cache_misses"), part(p, "counted_instructions"));
       },
       As::number,
       "{} misses of the last cache in 1,000 instructions"},
      {"branch_miss_share",
       Of::cpu,
       {"counted_branch_misses", "counted_branches"},
       [](const Parts& p) { return over(part(p, "counted_branch_misses"), part(p, "counted_branches")); },
       As::share,
       "{} of the branches are predicted wrongly"},
      {"major_faults",
       Of::cpu,
       {"major_faults"},
       [](const Parts& p) { return part(p, "major_faults"); },
       As::number,
       "{} pages of a call are read from disk"},
  };
  return all;
}

const Quantity* quantity(std::string_view name) {
  const auto found = std::find_if(quantities().begin(), quantities().end(),
                                  [&](const Quantity& q) { return q.name == name; });
  return found == quantities().end() ? nullptr : &*found;
}

Parts parts_of(const lab::VariantRecord& variant, bool on_gpu, const MachineRates& machine) {
  Parts parts;
  const auto add = [&](std::string_view name, double value) {
    if (std::isfinite(value)) parts[std::string(name)] = value;
  };
  for (const auto& [name, metric] : variant.metrics) add(name, metric.value);
  if (variant.time_ns) add("time_ns", variant.time_ns->median);
  if (variant.ratio) add("ratio", variant.ratio->median);
  if (variant.share_of_limit) add("share_of_limit", *variant.share_of_limit);
  if (const auto bytes = static_cast<double>(variant.bytes_read + variant.bytes_written); bytes > 0)
    add("declared_bytes", bytes);
  if (variant.flops > 0) add("declared_flops", variant.flops);
  if (machine.dram_bytes_per_s > 0) add("machine_dram_bytes_per_s", machine.dram_bytes_per_s);
  if (machine.flops_per_s > 0) add("machine_flops_per_s", machine.flops_per_s);
  add("threads", variant.threads);
  if (!on_gpu) return parts;
  if (machine.multiprocessors > 0) add("multiprocessors", machine.multiprocessors);
  if (const auto facts = profile::gpu_facts(machine.compute_capability))
    add("warps_per_scheduler", facts->warps / kSchedulers);
  if (machine.compute_capability == kHopper) add("ns_per_block_start", kNsPerBlock);
  return parts;
}

}  // namespace

std::optional<double> Facts::find(std::string_view quantity) const {
  const auto found = known_.find(quantity);
  return found == known_.end() ? std::nullopt : std::optional(found->second);
}

std::vector<std::string> Facts::lacks(std::string_view quantity) const {
  const auto found = lacks_.find(quantity);
  return found == lacks_.end() ? std::vector<std::string>() : found->second;
}

Facts facts_of(const lab::VariantRecord& variant, const std::string& limit, bool on_gpu,
               const MachineRates& machine) {
  Parts parts = parts_of(variant, on_gpu, machine);
  // Limits in the words of the record: "copy bandwidth of DRAM", "shared-memory bandwidth", "fp32 FMA peak",
  // "page-locked copy from host to GPU".
  for (const auto& [name, word] :
       {std::pair("memory_limit", "bandwidth of "), std::pair("shared_limit", "shared-memory"),
        std::pair("compute_limit", " peak"), std::pair("link_limit", "host")})
    parts[name] = limit.find(word) == limit.npos ? 0 : 1;
  Facts facts;
  for (const auto& [name, metric] : variant.metrics) facts.has_counters_ |= lab::is_counted(name);
  for (const Quantity& q : quantities()) {
    if (q.of != Of::both && (q.of == Of::gpu) != on_gpu) continue;
    std::vector<std::string> lacks;
    for (const std::string& name : q.parts)
      if (!parts.contains(name)) lacks.push_back(name);
    if (lacks.empty())
      facts.set(q.name, q.value(parts));
    else
      facts.forget(q.name, std::move(lacks));
  }
  return facts;
}

std::string quantity_text(std::string_view name, double value) {
  const Quantity* q = quantity(name);
  if (!q) return fmt::format("{} {}", name, lab::digits_text(value));
  const std::string text = q->as == As::share   ? lab::share_text(value)
                           : q->as == As::times ? lab::ratio_text(value)
                                                : lab::digits_text(value);
  return fmt::format(fmt::runtime(q->text), text);
}

bool is_quantity(std::string_view name) { return quantity(name) != nullptr; }

}  // namespace fathom::diagnose
