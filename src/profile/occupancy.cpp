#include "profile/occupancy.h"

#include <algorithm>
#include <limits>
#include <string_view>

#include "core/expect.h"

namespace fathom::profile {
namespace {

constexpr int kWarpSize       = 32;
constexpr int kPartitions     = 4;
constexpr int kMaxThreads     = 1024;     // a block
constexpr int kMaxRegisters   = 255;      // a thread
constexpr int kRegisterUnit   = 256;      // a warp's registers are rounded up to it
constexpr int64_t kSharedUnit = 128;      // bytes; a block's shared memory is rounded up to it
constexpr int64_t kReserved   = 1 << 10;  // bytes of shared memory that the driver reserves for each block
constexpr int64_t kKib        = 1024;
constexpr int kUnlimited      = std::numeric_limits<int>::max();
constexpr int kAllRegisters   = 1 << 16;

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

int blocks_by_registers(const GpuFacts& gpu, int warps, int registers) {
  if (registers > kMaxRegisters) return 0;
  const int64_t of_warp = round_up(int64_t{registers} * kWarpSize, kRegisterUnit);
  if (of_warp == 0) return kUnlimited;
  // The hardware's check assumes a block's warps spread over whole partitions.
  if (of_warp * round_up(warps, kPartitions) > gpu.registers) return 0;
  const int64_t warps_that_fit = gpu.registers / kPartitions / of_warp * kPartitions;
  return static_cast<int>(warps_that_fit / warps);
}

int blocks_by_shared_memory(const GpuFacts& gpu, int64_t shared) {
  if (shared > gpu.shared_of_one) return 0;
  return static_cast<int>(gpu.shared / round_up(shared + kReserved, kSharedUnit));
}

std::string_view name(Limiter limiter) {
  switch (limiter) {
    case Limiter::warps:
      return "warps";
    case Limiter::blocks:
      return "blocks";
    case Limiter::registers:
      return "registers";
    case Limiter::shared_memory:
      return "shared memory";
  }
  return "";
}

}  // namespace

std::optional<GpuFacts> gpu_facts(int compute_capability) {
  switch (compute_capability) {
    case 80:
      return GpuFacts{64, 32, kAllRegisters, 164 * kKib, 163 * kKib};
    case 86:
      return GpuFacts{48, 16, kAllRegisters, 100 * kKib, 99 * kKib};
    case 89:
      return GpuFacts{48, 24, kAllRegisters, 100 * kKib, 99 * kKib};
    case 90:
    case 100:
    case 103:
      return GpuFacts{64, 32, kAllRegisters, 228 * kKib, 227 * kKib};
    case 120:
      return GpuFacts{48, 24, kAllRegisters, 100 * kKib, 99 * kKib};
    default:
      return std::nullopt;
  }
}

Occupancy theoretical_occupancy(const GpuFacts& gpu, int64_t threads, int registers, int64_t shared) {
  FATHOM_EXPECT(threads > 0 && registers >= 0 && shared >= 0,
                "a block has threads, and uses no less than nothing");
  const int warps = static_cast<int>((threads + kWarpSize - 1) / kWarpSize);
  Occupancy result;
  result.blocks_by = {threads > kMaxThreads ? 0 : gpu.warps / warps, gpu.blocks,
                      blocks_by_registers(gpu, warps, registers), blocks_by_shared_memory(gpu, shared)};
  result.blocks    = *std::min_element(result.blocks_by.begin(), result.blocks_by.end());
  result.warps     = result.blocks * warps;
  result.share     = static_cast<double>(result.warps) / gpu.warps;
  if (result.warps == gpu.warps) {
    result.limiters = {Limiter::warps};
  } else {
    for (int l = 0; l < kLimiters; ++l)
      if (result.blocks_by[l] == result.blocks) result.limiters.push_back(static_cast<Limiter>(l));
  }
  return result;
}

std::string to_string(const std::vector<Limiter>& limiters) {
  std::string text;
  for (size_t i = 0; i < limiters.size(); ++i) {
    if (i > 0) text += i + 1 == limiters.size() ? " and " : ", ";
    text += name(limiters[i]);
  }
  return text;
}

void add_occupancy(lab::KernelRecord& kernel, int compute_capability) {
  const std::optional<GpuFacts> gpu = gpu_facts(compute_capability);
  if (!gpu || kernel.threads() < 1) return;
  const Occupancy occupancy = theoretical_occupancy(*gpu, kernel.threads(), kernel.registers,
                                                    kernel.static_shared + kernel.dynamic_shared);
  kernel.occupancy          = occupancy.share;
  kernel.limiter            = to_string(occupancy.limiters);
}

}  // namespace fathom::profile
