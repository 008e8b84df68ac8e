// What noise_lab.js calls: one simulated experiment, and the claims of many.
#include "book/noise_model.h"

#define WASM_EXPORT(name) extern "C" __attribute__((export_name(#name)))

using namespace fathom::book;

namespace {

Experiment experiment;
Runs runs;
Ratio ratios[4];
Claims all[3][4];  // by design and estimator

}  // namespace

WASM_EXPORT(set_noise)
void set_noise(double jitter, double drift, double outliers, double clock, double layout) {
  experiment.noise = {jitter, drift, outliers, clock, layout};
}

// Simulates the experiment that the page shows.
WASM_EXPORT(run_once)
void run_once(int32_t design, int32_t pairs, double difference, int32_t seed) {
  experiment.design     = static_cast<Design>(design);
  experiment.pairs      = pairs < kMostPairs ? pairs : kMostPairs;
  experiment.difference = difference;
  simulate(experiment, static_cast<uint64_t>(seed), runs);
  for (int32_t i = 0; i < 4; ++i)
    ratios[i] = estimate(static_cast<Estimator>(i), runs.a, runs.b, experiment.pairs);
}

WASM_EXPORT(run_is_b) int32_t run_is_b(int32_t run) { return runs.is_b[run]; }
WASM_EXPORT(time_of_a) double time_of_a(int32_t i) { return runs.a[i]; }
WASM_EXPORT(time_of_b) double time_of_b(int32_t i) { return runs.b[i]; }
WASM_EXPORT(ratio_value) double ratio_value(int32_t estimator) { return ratios[estimator].value; }
WASM_EXPORT(ratio_low) double ratio_low(int32_t estimator) { return ratios[estimator].low; }
WASM_EXPORT(ratio_high) double ratio_high(int32_t estimator) { return ratios[estimator].high; }

// Simulates `trials` experiments of every design with this difference.
WASM_EXPORT(run_many)
void run_many(int32_t pairs, double difference, int32_t seed, int32_t trials) {
  for (int32_t design = 0; design < 3; ++design)
    claims_of_all({.noise      = experiment.noise,
                   .design     = static_cast<Design>(design),
                   .pairs      = pairs < kMostPairs ? pairs : kMostPairs,
                   .difference = difference},
                  static_cast<uint64_t>(seed), trials, all[design]);
}

WASM_EXPORT(claimed_slower)
int32_t claimed_slower(int32_t design, int32_t estimator) { return all[design][estimator].slower; }
WASM_EXPORT(claimed_faster)
int32_t claimed_faster(int32_t design, int32_t estimator) { return all[design][estimator].faster; }
WASM_EXPORT(share_low) double share_low(int32_t hits, int32_t trials) { return wilson_low(hits, trials); }
WASM_EXPORT(share_high) double share_high(int32_t hits, int32_t trials) { return wilson_high(hits, trials); }
