#include "cli/decode_roof.h"

#include <fmt/format.h>

#include <exception>

#include "machine/ceilings.h"
#include "machine/gpu_ceilings.h"

namespace fathom::cli {
namespace {

std::optional<DecodeRoof> roof_at(double bytes_per_s, std::string_view level,
                                  const model::Footprint& footprint) {
  if (bytes_per_s == 0 || footprint.bytes_read_by_token == 0) return std::nullopt;
  return DecodeRoof{.level        = level,
                    .bytes_per_s  = bytes_per_s,
                    .tokens_per_s = bytes_per_s / static_cast<double>(footprint.bytes_read_by_token)};
}

}  // namespace

std::optional<DecodeRoof> decode_roof(const model::Footprint& footprint, int threads) {
  const auto ceilings = machine::read_ceilings(machine::ceilings_path());
  if (!ceilings) return std::nullopt;
  if (threads == 0) threads = ceilings->threads;
  const auto level = machine::level_holding(footprint.checkpoint_bytes, threads);
  return roof_at(machine::median_rate(level, machine::Traffic::read, threads, *ceilings),
                 machine::to_string(level), footprint);
}

std::optional<DecodeRoof> gpu_decode_roof(const model::Footprint& footprint) {
  using machine::GpuLevel;
  try {
    const auto& ceilings = machine::gpu_ceilings(machine::Refresh::never);
    const auto level     = footprint.checkpoint_bytes <= ceilings.l2_bytes ? GpuLevel::l2 : GpuLevel::dram;
    return roof_at(machine::gpu_median_rate(level, machine::Traffic::read, ceilings),
                   machine::to_string(level), footprint);
  } catch (const std::exception&) {
    return std::nullopt;  // not measured by doctor yet
  }
}

std::string rate_text(const DecodeRoof& roof) {
  return fmt::format("{:.1f} GB/s measured from {}", roof.bytes_per_s * 1e-9, roof.level);
}

}  // namespace fathom::cli
