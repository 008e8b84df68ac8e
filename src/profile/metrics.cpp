#include "profile/metrics.h"

#include <fmt/format.h>

#include <algorithm>

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
};

constexpr MetricSet kMinimal = MetricSet::minimal, kRoofline = MetricSet::roofline,
                    kDeep = MetricSet::deep_dive;

constexpr Row kRows[] = {
    {kMinimal, kAll, "time_ns", "gpu__time_duration.sum", kAdds, kLower},
    {kMinimal, kAll, "cycles", "sm__cycles_elapsed.max", kAdds, kLower},
    {kMinimal, kAll, "dram_bytes_read", "dram__bytes_read.sum", kAdds, kLower},
    {kMinimal, kAll, "dram_bytes_written", "dram__bytes_write.sum", kAdds, kLower},
    // Achieved occupancy; occupancy.h computes the theoretical one.
    {kMinimal, kAll, "warps_active_pct", "sm__warps_active.avg.pct_of_peak_sustained_active", kMean, kHigher},
    {kMinimal, kAll, "issue_active_pct", "smsp__issue_active.avg.pct_of_peak_sustained_active", kMean,
     kHigher},
    // Of each scheduler, in each cycle: below 1 it often cannot issue.
    {kMinimal, kAll, "warps_eligible", "smsp__warps_eligible.avg.per_cycle_active", kMean, kHigher},

    {kRoofline, kAll, "l2_bytes", "lts__t_bytes.sum", kAdds, kLower},
    {kRoofline, kAll, "l1_bytes", "l1tex__t_bytes.sum", kAdds, kLower},
    // Counts threads, so a full warp counts 32; an ffma is two flops.
    {kRoofline, kAll, "fadd", "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum", kAdds, kLower},
    {kRoofline, kAll, "fmul", "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum", kAdds, kLower},
    {kRoofline, kAll, "ffma", "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum", kAdds, kLower},

    {kDeep, kAll, "instructions", "smsp__inst_executed.sum", kAdds, kLower},
    {kDeep, kAll, "tensor_instructions", "sm__inst_executed_pipe_tensor.sum", kAdds, kLower},
    {kDeep, kAll, "dadd", "smsp__sass_thread_inst_executed_op_dadd_pred_on.sum", kAdds, kLower},
    {kDeep, kAll, "dmul", "smsp__sass_thread_inst_executed_op_dmul_pred_on.sum", kAdds, kLower},
    {kDeep, kAll, "dfma", "smsp__sass_thread_inst_executed_op_dfma_pred_on.sum", kAdds, kLower},
    {kDeep, kAll, "hadd", "smsp__sass_thread_inst_executed_op_hadd_pred_on.sum", kAdds, kLower},
    {kDeep, kAll, "hmul", "smsp__sass_thread_inst_executed_op_hmul_pred_on.sum", kAdds, kLower},
    {kDeep, kAll, "hfma", "smsp__sass_thread_inst_executed_op_hfma_pred_on.sum", kAdds, kLower},

    {kDeep, kAll, "tensor_bf16_ops", "sm__ops_path_tensor_src_bf16_dst_fp32.sum", kAdds, kLower},
    {kDeep, kHopper, "tensor_fp16_ops", "sm__ops_path_tensor_src_fp16.sum", kAdds, kLower},
    {kDeep, kAmpere | kAda | kBlackwell, "tensor_fp16_fp32_ops", "sm__ops_path_tensor_src_fp16_dst_fp32.sum",
     kAdds, kLower},
    {kDeep, kAmpere | kAda | kBlackwell, "tensor_fp16_fp16_ops", "sm__ops_path_tensor_src_fp16_dst_fp16.sum",
     kAdds, kLower},
    {kDeep, kAll, "tensor_tf32_ops", "sm__ops_path_tensor_src_tf32_dst_fp32.sum", kAdds, kLower},
    {kDeep, kAll, "tensor_int8_ops", "sm__ops_path_tensor_src_int8.sum", kAdds, kLower},
    {kDeep, kAda | kHopper, "tensor_fp8_ops", "sm__ops_path_tensor_src_fp8.sum", kAdds, kLower},
    // Blackwell's tensor cores count the three narrow formats as one.
    {kDeep, kBlackwell, "tensor_fp4_fp6_fp8_ops", "sm__ops_path_tensor_src_fp4_fp6_fp8_dst_fp32.sum", kAdds,
     kLower},
    {kDeep, kBlackwell, "tensor_fp4_ops", "sm__ops_path_tensor_src_fp4_dst_fp32.sum", kAdds, kLower},

    // Warps stalled for this reason, per issued instruction.
    {kDeep, kAll, "stall_long_scoreboard",
     "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio", kMean, kLower},
    {kDeep, kAll, "stall_short_scoreboard",
     "smsp__average_warps_issue_stalled_short_scoreboard_per_issue_active.ratio", kMean, kLower},
    {kDeep, kAll, "stall_barrier", "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio", kMean,
     kLower},
    {kDeep, kAll, "stall_math_pipe",
     "smsp__average_warps_issue_stalled_math_pipe_throttle_per_issue_active.ratio", kMean, kLower},
    {kDeep, kAll, "stall_lg_throttle", "smsp__average_warps_issue_stalled_lg_throttle_per_issue_active.ratio",
     kMean, kLower},
    {kDeep, kAll, "stall_mio_throttle",
     "smsp__average_warps_issue_stalled_mio_throttle_per_issue_active.ratio", kMean, kLower},
    {kDeep, kAll, "stall_wait", "smsp__average_warps_issue_stalled_wait_per_issue_active.ratio", kMean,
     kLower},
    {kDeep, kAll, "stall_not_selected",
     "smsp__average_warps_issue_stalled_not_selected_per_issue_active.ratio", kMean, kLower},
    // The dispatcher holds an instruction back: registers of one bank, or a unit that is taken.
    {kDeep, kAll, "stall_dispatch", "smsp__average_warps_issue_stalled_dispatch_stall_per_issue_active.ratio",
     kMean, kLower},
    {kDeep, kAll, "stall_no_instruction",
     "smsp__average_warps_issue_stalled_no_instruction_per_issue_active.ratio", kMean, kLower},
    {kDeep, kAll, "stall_membar", "smsp__average_warps_issue_stalled_membar_per_issue_active.ratio", kMean,
     kLower},
    {kDeep, kAll, "stall_sleeping", "smsp__average_warps_issue_stalled_sleeping_per_issue_active.ratio",
     kMean, kLower},
    {kDeep, kAll, "stall_branch_resolving",
     "smsp__average_warps_issue_stalled_branch_resolving_per_issue_active.ratio", kMean, kLower},
    {kDeep, kHopper, "stall_gmma", "smsp__average_warps_issue_stalled_gmma_per_issue_active.ratio", kMean,
     kLower},

    {kDeep, kAll, "shared_bank_conflicts", "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum", kAdds,
     kLower},
    // Requested bytes of each 32-byte sector that was moved.
    {kDeep, kAll, "bytes_per_sector_load", "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio",
     kMean, kHigher},
    {kDeep, kAll, "bytes_per_sector_store", "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.ratio",
     kMean, kHigher},
    {kDeep, kAll, "local_load_sectors", "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum", kAdds, kLower},
    // Of the lanes of a warp, 32 at most: branches that split warps, and lanes that predicates turn off.
    {kDeep, kAll, "threads_per_instruction", "smsp__thread_inst_executed_per_inst_executed.ratio", kMean,
     kHigher},
    // Branches whose active lanes all go the same way.
    {kDeep, kAll, "branch_efficiency_pct", "smsp__sass_average_branch_targets_threads_uniform.pct", kMean,
     kHigher},
    // Cycles in which a multiprocessor has a warp, of the kernel's: work that is spread unevenly leaves some
    // without.
    {kDeep, kAll, "sm_active_pct", "sm__cycles_active.avg.pct_of_peak_sustained_elapsed", kMean, kHigher},
    {kDeep, kAll, "l1_hit_pct", "l1tex__t_sector_hit_rate.pct", kMean, kHigher},
    {kDeep, kAll, "l2_hit_pct", "lts__t_sector_hit_rate.pct", kMean, kHigher},
    {kDeep, kAll, "tensor_pipe_pct", "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active", kMean,
     kHigher},
    {kDeep, kAll, "shared_wavefronts", "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum", kAdds, kLower},
    {kDeep, kAll, "sm_throughput_pct", "sm__throughput.avg.pct_of_peak_sustained_elapsed", kMean, kHigher},
    {kDeep, kAll, "memory_throughput_pct", "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
     kMean, kHigher},
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

std::vector<Counter> counters(MetricSet set, std::string_view chip) {
  std::vector<Counter> found;
  for (const Row& row : kRows)
    if (row.set <= set && (row.chips & family(chip)) != 0)
      found.push_back({row.name, row.cupti, row.combine == kAdds, row.better == kHigher});
  return found;
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
