#include "diagnose/rule_tables.h"

namespace fathom::diagnose {

std::vector<Rule> rules_of_cpus() {
  return {
      {.cause = "waiting",
       .kind  = Kind::idle,
       .what  = "its threads are off the CPU: they wait for each other, or for I/O",
       .when  = {at_most("busy_share", 0.7)},
       .part  = [](const Facts& f) { return 1 - f.at("busy_share"); },
       .cures = {"work_queue", "async_io"},
       .shown = {{"ch12/work_queue_cpu", "batched_atomics"}, {"ch05/io_uring", "queue_depth_32"}}},
      {.cause = "page_faults",
       .kind  = Kind::counted,
       .what  = "memory is touched for the first time, page by page",
       .when  = {at_least("faulted_share", 0.1)},
       .cures = {"huge_pages", "allocator_choice"},
       .shown = {{"ch03/huge_pages", "huge_pages"}}},
      {.cause = "disk",
       .kind  = Kind::counted,
       .what  = "pages come from disk while it runs",
       .when  = {at_least("major_faults", 1)},
       .cures = {"prefetching", "sequential_io"},
       .shown = {{"ch05/io_uring", "queue_depth_32"}}},
      {.cause      = "cache_misses",
       .kind       = Kind::counted,
       .what       = "instructions wait for memory: misses of the last cache",
       .when       = {at_least("misses_per_1000", 5), at_most("instructions_per_cycle", 1)},
       .instead_of = {"few_instructions"},
       .cures      = {"access_order", "software_prefetch", "layout_change"},
       .shown      = {{"ch02/stride", "row_order"}, {"ch08/software_prefetch", "sixteen_ahead"}}},
      {.cause      = "branch_misses",
       .kind       = Kind::counted,
       .what       = "branches go another way than the processor guessed",
       .when       = {at_least("branch_miss_share", 0.05)},
       .instead_of = {"few_instructions"},
       .cures      = {"predication", "simd"},
       .shown      = {{"ch08/branch_predication", "predicated"}}},
      {.cause = "few_instructions",
       .kind  = Kind::counted,
       .what  = "the core starts few instructions a cycle: results wait for results",
       .when  = {at_most("instructions_per_cycle", 1)},
       .cures = {"instruction_level_parallelism", "unrolling"},
       .shown = {{"ch08/accumulators", "eight_chains"}}},
      {.cause = "slow_memory",
       .kind  = Kind::declared,
       .what = "by its declared work memory is its roof, yet it gets less than half of that rate: loads wait "
               "for each other, "
               "or other work takes the time",
       .when = {at_most("ridge_share", 1, kRidge), at_least("memory_limit", 1), at_most("limit_share", 0.5)},
       .only_without = "misses_per_1000",
       .instead_of   = {"low_intensity"},
       .cures        = {"access_order", "software_prefetch"},
       .shown        = {{"ch02/stride", "row_order"}, {"ch08/software_prefetch", "sixteen_ahead"}}},
      {.cause = "slow_arithmetic",
       .kind  = Kind::declared,
       .what  = "by its declared work arithmetic is its roof, yet it gets less than half of the peak: no "
                "SIMD, one chain of "
                "results, or other work",
       .when  = {at_least("ridge_share", 1, kRidge), at_most("limit_share", 0.5)},
       .cures = {"simd", "instruction_level_parallelism"},
       .shown = {{"ch08/simd_dot", "highway"}, {"ch08/accumulators", "eight_chains"}}},
  };
}

std::vector<Rule> rules_of_both() {
  return {
      {.cause      = "at_memory_limit",
       .kind       = Kind::bound,
       .what       = "memory is at the rate that was measured in the same rounds: only fewer bytes help",
       .when       = {at_least("limit_share", 0.8, kNcuHigh), at_least("memory_limit", 1)},
       .unit       = "limit_share",
       .instead_of = {"low_intensity"},
       .cures      = {"kernel_fusion", "mixed_precision"},
       .shown      = {{"ch09/fused_elementwise_gpu", "fused"}, {"ch09/fused_elementwise_cpu", "streamed"}}},
      {.cause = "at_compute_limit",
       .kind  = Kind::bound,
       .what  = "arithmetic is at the peak that was measured in the same rounds",
       .when  = {at_least("limit_share", 0.8, kNcuHigh), at_least("compute_limit", 1)},
       .unit  = "limit_share",
       .cures = {"tensor_cores", "mixed_precision"},
       .shown = {{"ch01/tf32", "tensor_cores"}, {"ch09/matmul_cpu", "threads"}}},
      {.cause = "low_intensity",
       .kind  = Kind::declared,
       .what = "the declared work has fewer FLOP per byte than the ridge of this machine: memory is its roof",
       .when = {at_most("ridge_share", 1, kRidge), at_least("memory_limit", 1), at_least("limit_share", 0.5)},
       .only_without = "dram_share",
       .cures        = {"kernel_fusion", "mixed_precision", "tiling_in_shared_memory"},
       .shown        = {{"ch09/fused_elementwise_gpu", "fused"}, {"ch09/fused_elementwise_cpu", "fused"}}},

      // The catalog's 10 FLOP/byte, where no ridge was measured.
      {.cause        = "low_intensity_by_rule",
       .kind         = Kind::declared,
       .what         = "the declared work has few FLOP per byte, and no ridge of its machine is known",
       .when         = {at_most("flops_per_byte", 10, kCatalog), at_least("memory_limit", 1)},
       .only_without = "ridge_share",
       .cures        = {"kernel_fusion", "mixed_precision", "tiling_in_shared_memory"},
       .shown        = {{"ch09/fused_elementwise_gpu", "fused"}, {"ch09/fused_elementwise_cpu", "fused"}}},
  };
}

}  // namespace fathom::diagnose
