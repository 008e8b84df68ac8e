// The memory-bandwidth limit of decoding one sequence on this machine: each token reads its weights once.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "model/config.h"

namespace fathom::cli {

struct DecodeRoof {
  std::string_view level;  // the fastest level that holds the weights: "L3", "DRAM"
  double bytes_per_s  = 0;
  double tokens_per_s = 0;
};

// On `threads` threads; 0: as many as doctor measured. Absent until doctor has measured this machine.
std::optional<DecodeRoof> decode_roof(const model::Footprint& footprint, int threads = 0);
// On this process's GPU.
std::optional<DecodeRoof> gpu_decode_roof(const model::Footprint& footprint);

// "33.1 GB/s measured from DRAM"
std::string rate_text(const DecodeRoof& roof);

}  // namespace fathom::cli
