#include "cli/model_roof.h"

#include <fmt/format.h>

namespace fathom::cli {

std::optional<ModelRoof> model_roof(const model::Footprint& footprint, int threads) {
  const auto ceilings = machine::read_ceilings(machine::ceilings_path());
  if (!ceilings || footprint.bytes_read_by_token == 0) return std::nullopt;
  if (threads == 0) threads = ceilings->threads;
  ModelRoof roof{.level = machine::level_holding(footprint.checkpoint_bytes, threads)};
  roof.bytes_per_s = machine::median_rate(roof.level, machine::Traffic::read, threads, *ceilings);
  if (roof.bytes_per_s == 0) return std::nullopt;
  roof.tokens_per_s = roof.bytes_per_s / static_cast<double>(footprint.bytes_read_by_token);
  return roof;
}

std::string rate_text(const ModelRoof& roof) {
  return fmt::format("the {:.1f} GB/s that doctor read from {}", roof.bytes_per_s * 1e-9,
                     machine::to_string(roof.level));
}

}  // namespace fathom::cli
