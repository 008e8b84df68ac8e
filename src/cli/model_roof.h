// What memory allows a model on this machine: one sequence, each token's weights read once.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "model/config.h"

namespace fathom::cli {

struct ModelRoof {
  std::string_view level;  // the fastest that holds the weights: "L3", "DRAM"
  double bytes_per_s  = 0;
  double tokens_per_s = 0;
};

// On that many threads, 0: as many as doctor measured. Nothing where it has not measured this machine.
std::optional<ModelRoof> model_roof(const model::Footprint& footprint, int threads = 0);
// On this process's GPU.
std::optional<ModelRoof> gpu_model_roof(const model::Footprint& footprint);

// "the 33.1 GB/s that doctor read from DRAM"
std::string rate_text(const ModelRoof& roof);

}  // namespace fathom::cli
