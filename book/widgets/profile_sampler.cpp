// What profile_sampler.js calls: one simulated profile, and the scatter of a thousand.
#include "book/noise_model.h"
#include "book/profile_model.h"

#define WASM_EXPORT(name) extern "C" __attribute__((export_name(#name)))

using namespace fathom::book;

namespace {

Program program;
int32_t counts[kMostParts];
Scatter many;

}  // namespace

WASM_EXPORT(clear_program)
void clear_program(double round) { program = {.parts = 0, .share = {}, .round = round}; }
WASM_EXPORT(add_part)
void add_part(double share) {
  if (program.parts < kMostParts) program.share[program.parts++] = share;
}

WASM_EXPORT(take)
void take(int32_t timer, int32_t samples, int32_t seed) {
  profile(program, static_cast<Timer>(timer), samples, static_cast<uint64_t>(seed), counts);
}
WASM_EXPORT(count_of) int32_t count_of(int32_t part) { return counts[part]; }

WASM_EXPORT(take_many)
void take_many(int32_t timer, int32_t samples, int32_t part, int32_t seed, int32_t profiles) {
  many = scatter(program, static_cast<Timer>(timer), samples, part, static_cast<uint64_t>(seed), profiles);
}
WASM_EXPORT(deviation_of_many) double deviation_of_many() { return many.deviation; }
WASM_EXPORT(covered_of_many) double covered_of_many() { return many.covered; }

WASM_EXPORT(law) double law(double share, int32_t samples) { return deviation_by_law(share, samples); }
WASM_EXPORT(needed) double needed(double share, double half_width) {
  return samples_needed(share, half_width);
}
WASM_EXPORT(share_low) double share_low(int32_t hits, int32_t trials) { return wilson_low(hits, trials); }
WASM_EXPORT(share_high) double share_high(int32_t hits, int32_t trials) { return wilson_high(hits, trials); }
