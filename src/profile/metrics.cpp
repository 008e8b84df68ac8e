#include "profile/metrics.h"

#include <fmt/format.h>

#include <algorithm>

#include "lab/target.h"

namespace fathom::profile {
namespace {

// Data-centre chips but Ada.
enum Chips : unsigned { kAmpere = 1, kAda = 2, kHopper = 4, kBlackwell = 8, kAll = 15 };
enum Combine { kAdds, kMean };
enum Better { kLower, kHigher };

struct Row {
  MetricSet set;  // the smallest set with it
  unsigned chips;
  std::string_view name, cupti;
  Combine combine;
  Better better;
  std::string_view section;  // Nsight Compute's
  std::string_view meaning;
};

// What every launch says of itself, without a counter.
constexpr std::string_view kLaunchStats = "LaunchStats";

constexpr MetricSet kMinimal = MetricSet::minimal, kRoofline = MetricSet::roofline,
                    kDeep = MetricSet::deep_dive;

constexpr Row kRows[] = {
    {kMinimal, kAll, "time_ns", "gpu__time_duration.sum", kAdds, kLower, "SpeedOfLight",
     "The time of the kernel while it was counted; times to report come from the lab."},
    {kMinimal, kAll, "cycles", "sm__cycles_elapsed.max", kAdds, kLower, "SpeedOfLight",
     "Cycles of the multiprocessors from start to end."},
    {kMinimal, kAll, "dram_bytes_read", "dram__bytes_read.sum", kAdds, kLower, "MemoryWorkloadAnalysis",
     "Bytes read from DRAM; more than declared: lines came twice."},
    {kMinimal, kAll, "dram_bytes_written", "dram__bytes_write.sum", kAdds, kLower, "MemoryWorkloadAnalysis",
     "Bytes written to DRAM."},
    {kMinimal, kAll, "warps_active_pct", "sm__warps_active.avg.pct_of_peak_sustained_active", kMean, kHigher,
     "Occupancy", "Achieved occupancy: warps that are there, of those that fit."},
    {kMinimal, kAll, "issue_active_pct", "smsp__issue_active.avg.pct_of_peak_sustained_active", kMean,
     kHigher, "SchedulerStats",
     "Cycles in which a scheduler issues an instruction; near 100: fewer instructions are the cure."},
    {kMinimal, kAll, "warps_eligible", "smsp__warps_eligible.avg.per_cycle_active", kMean, kHigher,
     "SchedulerStats", "Warps of a scheduler that could issue in a cycle; below 1 it often has none."},

    {kRoofline, kAll, "l2_bytes", "lts__t_bytes.sum", kAdds, kLower, "MemoryWorkloadAnalysis",
     "Bytes that L2 moves, to L1 and from it."},
    {kRoofline, kAll, "l1_bytes", "l1tex__t_bytes.sum", kAdds, kLower, "MemoryWorkloadAnalysis",
     "Bytes that L1 moves, to registers and from them."},
    {kRoofline, kAll, "fadd", "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum", kAdds, kLower,
     "SpeedOfLight_RooflineChart", "fp32 additions of all threads."},
    {kRoofline, kAll, "fmul", "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum", kAdds, kLower,
     "SpeedOfLight_RooflineChart", "fp32 multiplications of all threads."},
    {kRoofline, kAll, "ffma", "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum", kAdds, kLower,
     "SpeedOfLight_RooflineChart", "fp32 multiply-adds of all threads; each is two FLOP."},

    {kDeep, kAll, "instructions", "smsp__inst_executed.sum", kAdds, kLower, "InstructionStats",
     "Instructions of warps."},
    {kDeep, kAll, "tensor_instructions", "sm__inst_executed_pipe_tensor.sum", kAdds, kLower,
     "InstructionStats", "Instructions of warps that tensor cores execute."},
    {kDeep, kAll, "dadd", "smsp__sass_thread_inst_executed_op_dadd_pred_on.sum", kAdds, kLower,
     "SpeedOfLight_RooflineChart", "fp64 additions of all threads."},
    {kDeep, kAll, "dmul", "smsp__sass_thread_inst_executed_op_dmul_pred_on.sum", kAdds, kLower,
     "SpeedOfLight_RooflineChart", "fp64 multiplications of all threads."},
    {kDeep, kAll, "dfma", "smsp__sass_thread_inst_executed_op_dfma_pred_on.sum", kAdds, kLower,
     "SpeedOfLight_RooflineChart", "fp64 multiply-adds of all threads; each is two FLOP."},
    {kDeep, kAll, "hadd", "smsp__sass_thread_inst_executed_op_hadd_pred_on.sum", kAdds, kLower,
     "SpeedOfLight_RooflineChart", "fp16 additions of all threads."},
    {kDeep, kAll, "hmul", "smsp__sass_thread_inst_executed_op_hmul_pred_on.sum", kAdds, kLower,
     "SpeedOfLight_RooflineChart", "fp16 multiplications of all threads."},
    {kDeep, kAll, "hfma", "smsp__sass_thread_inst_executed_op_hfma_pred_on.sum", kAdds, kLower,
     "SpeedOfLight_RooflineChart", "fp16 multiply-adds of all threads; each is two FLOP."},

    {kDeep, kAll, "tensor_bf16_ops", "sm__ops_path_tensor_src_bf16_dst_fp32.sum", kAdds, kLower,
     "SpeedOfLight_RooflineChart", "Operations of tensor cores on bf16, summed in fp32."},
    {kDeep, kHopper, "tensor_fp16_ops", "sm__ops_path_tensor_src_fp16.sum", kAdds, kLower,
     "SpeedOfLight_RooflineChart", "Operations of tensor cores on fp16."},
    {kDeep, kAmpere | kAda | kBlackwell, "tensor_fp16_fp32_ops", "sm__ops_path_tensor_src_fp16_dst_fp32.sum",
     kAdds, kLower, "SpeedOfLight_RooflineChart", "Operations of tensor cores on fp16, summed in fp32."},
    {kDeep, kAmpere | kAda | kBlackwell, "tensor_fp16_fp16_ops", "sm__ops_path_tensor_src_fp16_dst_fp16.sum",
     kAdds, kLower, "SpeedOfLight_RooflineChart", "Operations of tensor cores on fp16, summed in fp16."},
    {kDeep, kAll, "tensor_tf32_ops", "sm__ops_path_tensor_src_tf32_dst_fp32.sum", kAdds, kLower,
     "SpeedOfLight_RooflineChart", "Operations of tensor cores on tf32."},
    {kDeep, kAll, "tensor_int8_ops", "sm__ops_path_tensor_src_int8.sum", kAdds, kLower,
     "SpeedOfLight_RooflineChart", "Operations of tensor cores on int8."},
    {kDeep, kAda | kHopper, "tensor_fp8_ops", "sm__ops_path_tensor_src_fp8.sum", kAdds, kLower,
     "SpeedOfLight_RooflineChart", "Operations of tensor cores on fp8."},
    // Blackwell's tensor cores count the three narrow formats as one.
    {kDeep, kBlackwell, "tensor_fp4_fp6_fp8_ops", "sm__ops_path_tensor_src_fp4_fp6_fp8_dst_fp32.sum", kAdds,
     kLower, "SpeedOfLight_RooflineChart", "Operations of tensor cores on fp4, fp6 and fp8."},
    {kDeep, kBlackwell, "tensor_fp4_ops", "sm__ops_path_tensor_src_fp4_dst_fp32.sum", kAdds, kLower,
     "SpeedOfLight_RooflineChart", "Operations of tensor cores on fp4."},

    {kDeep, kAll, "stall_long_scoreboard",
     "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio", kMean, kLower,
     "WarpStateStats", "Cycles an instruction waits for data from L1, L2 or DRAM."},
    {kDeep, kAll, "stall_short_scoreboard",
     "smsp__average_warps_issue_stalled_short_scoreboard_per_issue_active.ratio", kMean, kLower,
     "WarpStateStats", "Cycles an instruction waits for data from shared memory or special functions."},
    {kDeep, kAll, "stall_barrier", "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio", kMean,
     kLower, "WarpStateStats", "Cycles an instruction waits for other warps at a barrier."},
    {kDeep, kAll, "stall_math_pipe",
     "smsp__average_warps_issue_stalled_math_pipe_throttle_per_issue_active.ratio", kMean, kLower,
     "WarpStateStats", "Cycles an instruction waits for a pipe of arithmetic that is taken."},
    {kDeep, kAll, "stall_lg_throttle", "smsp__average_warps_issue_stalled_lg_throttle_per_issue_active.ratio",
     kMean, kLower, "WarpStateStats",
     "Cycles an instruction waits for a place in the queue of global and local memory."},
    {kDeep, kAll, "stall_mio_throttle",
     "smsp__average_warps_issue_stalled_mio_throttle_per_issue_active.ratio", kMean, kLower, "WarpStateStats",
     "Cycles an instruction waits for a place in the queue of shared memory and special functions."},
    {kDeep, kAll, "stall_wait", "smsp__average_warps_issue_stalled_wait_per_issue_active.ratio", kMean,
     kLower, "WarpStateStats", "Cycles an instruction waits a fixed time for the one before."},
    {kDeep, kAll, "stall_not_selected",
     "smsp__average_warps_issue_stalled_not_selected_per_issue_active.ratio", kMean, kLower, "WarpStateStats",
     "Cycles an instruction could issue while another warp was chosen: no loss."},
    {kDeep, kAll, "stall_dispatch", "smsp__average_warps_issue_stalled_dispatch_stall_per_issue_active.ratio",
     kMean, kLower, "WarpStateStats",
     "Cycles the dispatcher holds an instruction back: registers of one bank, or a unit that is taken."},
    {kDeep, kAll, "stall_no_instruction",
     "smsp__average_warps_issue_stalled_no_instruction_per_issue_active.ratio", kMean, kLower,
     "WarpStateStats", "Cycles a warp waits for its instruction to be fetched."},
    {kDeep, kAll, "stall_membar", "smsp__average_warps_issue_stalled_membar_per_issue_active.ratio", kMean,
     kLower, "WarpStateStats", "Cycles an instruction waits at a memory fence."},
    {kDeep, kAll, "stall_sleeping", "smsp__average_warps_issue_stalled_sleeping_per_issue_active.ratio",
     kMean, kLower, "WarpStateStats", "Cycles a warp sleeps because it asked for it."},
    {kDeep, kAll, "stall_branch_resolving",
     "smsp__average_warps_issue_stalled_branch_resolving_per_issue_active.ratio", kMean, kLower,
     "WarpStateStats", "Cycles a warp waits for the target of a branch."},
    {kDeep, kHopper, "stall_gmma", "smsp__average_warps_issue_stalled_gmma_per_issue_active.ratio", kMean,
     kLower, "WarpStateStats", "Cycles an instruction waits for the tensor cores of its warpgroup."},

    {kDeep, kAll, "shared_bank_conflicts", "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum", kAdds,
     kLower, "MemoryWorkloadAnalysis",
     "Extra turns of shared memory, because lanes asked for words of one bank."},
    {kDeep, kAll, "bytes_per_sector_load", "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio",
     kMean, kHigher, "SourceCounters",
     "Bytes that loads use of each 32-byte sector; below 32: not coalesced."},
    {kDeep, kAll, "bytes_per_sector_store", "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.ratio",
     kMean, kHigher, "SourceCounters",
     "Bytes that stores fill of each 32-byte sector; below 32: not coalesced."},
    {kDeep, kAll, "local_load_sectors", "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum", kAdds, kLower,
     "MemoryWorkloadAnalysis",
     "Sectors loaded from local memory: registers that were spilled, arrays by index."},
    {kDeep, kAll, "threads_per_instruction", "smsp__thread_inst_executed_per_inst_executed.ratio", kMean,
     kHigher, "SourceCounters",
     "Lanes of a warp that work in an instruction, 32 at most; below: branches that split warps."},
    {kDeep, kAll, "branch_efficiency_pct", "smsp__sass_average_branch_targets_threads_uniform.pct", kMean,
     kHigher, "SourceCounters", "Branches whose active lanes all go the same way."},
    {kDeep, kAll, "sm_active_pct", "sm__cycles_active.avg.pct_of_peak_sustained_elapsed", kMean, kHigher,
     "WorkloadDistribution",
     "Cycles in which a multiprocessor has a warp; below 100: work is spread unevenly."},
    {kDeep, kAll, "l1_hit_pct", "l1tex__t_sector_hit_rate.pct", kMean, kHigher, "MemoryWorkloadAnalysis",
     "Sectors that L1 had."},
    {kDeep, kAll, "l2_hit_pct", "lts__t_sector_hit_rate.pct", kMean, kHigher, "MemoryWorkloadAnalysis",
     "Sectors that L2 had."},
    {kDeep, kAll, "tensor_pipe_pct", "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active", kMean,
     kHigher, "ComputeWorkloadAnalysis", "Cycles in which tensor cores work."},
    {kDeep, kAll, "shared_wavefronts", "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum", kAdds, kLower,
     "MemoryWorkloadAnalysis", "Turns of shared memory, one a cycle and multiprocessor at most."},
    {kDeep, kAll, "sm_throughput_pct", "sm__throughput.avg.pct_of_peak_sustained_elapsed", kMean, kHigher,
     "SpeedOfLight", "How busy the busiest unit of the multiprocessors is."},
    {kDeep, kAll, "memory_throughput_pct", "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
     kMean, kHigher, "SpeedOfLight", "How busy the busiest unit of memory is: L1, L2 or DRAM."},
};

unsigned family(std::string_view chip) {
  if (chip == "GA100") return kAmpere;
  if (chip >= "AD102" && chip <= "AD107") return kAda;
  if (chip == "GH100") return kHopper;
  if (chip == "GB100" || chip == "GB102") return kBlackwell;
  return 0;
}

const Row* row_of(std::string_view name) {
  const Row* row =
      std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& r) { return r.name == name; });
  return row == std::end(kRows) ? nullptr : row;
}

}  // namespace

std::string_view to_string(MetricSet set) {
  switch (set) {
    case MetricSet::minimal:
      return "minimal";
    case MetricSet::roofline:
      return "roofline";
    case MetricSet::deep_dive:
      return "deep_dive";
  }
  return "";
}

Result<MetricSet> parse_metric_set(std::string_view name) {
  for (const MetricSet set : {MetricSet::minimal, MetricSet::roofline, MetricSet::deep_dive})
    if (name == to_string(set)) return set;
  return Error{fmt::format("there is no metric set '{}': minimal, roofline or deep_dive", name)};
}

std::vector<std::string_view> sections() {
  std::vector<std::string_view> found = {kLaunchStats};
  for (const Row& row : kRows)
    if (std::find(found.begin(), found.end(), row.section) == found.end()) found.push_back(row.section);
  std::sort(found.begin(), found.end());
  return found;
}

Result<std::string> parse_section(std::string_view name) {
  const std::vector<std::string_view> known = sections();
  // Nsight Compute splits sections into charts and tables: SpeedOfLight_HierarchicalTensorRooflineChart.
  std::string_view wanted = name;
  if (std::find(known.begin(), known.end(), wanted) == known.end()) wanted = name.substr(0, name.find('_'));
  if (name.starts_with("SpeedOfLight_") && name.ends_with("RooflineChart"))
    wanted = "SpeedOfLight_RooflineChart";
  if (std::find(known.begin(), known.end(), wanted) != known.end()) return std::string(wanted);
  const std::string near = lab::nearest(name, {known.begin(), known.end()});
  return Error{fmt::format("there is no section '{}'{}; there are {}", name,
                           near.empty() ? "" : fmt::format(", did you mean {}?", near),
                           fmt::join(known, ", "))};
}

std::vector<Counter> counters(const CounterChoice& choice, std::string_view chip) {
  const auto is_chosen = [&](const Row& row) {
    if (choice.sections.empty()) return row.set <= choice.set;
    return std::find(choice.sections.begin(), choice.sections.end(), row.section) != choice.sections.end();
  };
  // Rates are made of a count and the time and cycles of its own pass.
  const auto is_base = [](const Row& row) { return row.name == "time_ns" || row.name == "cycles"; };
  std::vector<Counter> found;
  bool any = false;
  for (const Row& row : kRows)
    if ((row.chips & family(chip)) != 0 && (is_chosen(row) || is_base(row))) {
      any = any || is_chosen(row);
      found.push_back({row.name, row.cupti, row.combine == kAdds, row.better == kHigher});
    }
  if (!any) found.clear();  // LaunchStats alone: every launch's record has it
  return found;
}

bool needs_counters(const CounterChoice& choice) {
  return choice.sections.empty() || std::any_of(choice.sections.begin(), choice.sections.end(),
                                                [](const std::string& name) { return name != kLaunchStats; });
}

std::vector<CounterMeaning> meanings() {
  std::vector<CounterMeaning> found;
  for (const Row& row : kRows) found.push_back({row.name, row.cupti, row.set, row.section, row.meaning});
  return found;
}

std::string_view meaning(std::string_view counter) {
  const Row* row = row_of(counter);
  return row ? row->meaning : std::string_view();
}

std::map<std::string, double> combined_counters(const std::vector<const lab::KernelRecord*>& kernels) {
  std::map<std::string, double> combined;
  if (kernels.empty()) return combined;
  for (const auto& [name, unused] : kernels.front()->counters) {
    const Row* row = row_of(name);
    double sum = 0, weights = 0;
    bool complete = row != nullptr;
    for (const lab::KernelRecord* kernel : kernels) {
      const auto value = kernel->counters.find(name);
      complete         = complete && value != kernel->counters.end();
      if (!complete) break;
      const double weight =
          row->combine == kAdds
              ? 1
              : static_cast<double>(std::max<int64_t>(1, kernel->end_ns - kernel->start_ns));
      sum += weight * value->second;
      weights += weight;
    }
    if (complete) combined[name] = row->combine == kAdds ? sum : sum / weights;
  }
  return combined;
}

bool higher_is_better(std::string_view counter) {
  const Row* row = row_of(counter);
  return row && row->better == kHigher;
}

}  // namespace fathom::profile
