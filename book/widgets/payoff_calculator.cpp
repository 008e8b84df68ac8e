// What payoff_calculator.js calls.
#include "book/payoff_model.h"

#define WASM_EXPORT(name) extern "C" __attribute__((export_name(#name)))

using namespace fathom::book;

namespace {

Attempt attempt;

}  // namespace

WASM_EXPORT(set_attempt)
void set_attempt(double part, double of_limit, double ratio, double bill, double months, double chance,
                 double cost, double upkeep) {
  attempt = {part, of_limit, ratio, bill, months, chance, cost, upkeep};
}

WASM_EXPORT(headroom_of) double headroom_of() { return headroom(attempt); }
WASM_EXPORT(possible) double possible() { return possible_ratio(attempt); }
WASM_EXPORT(whole) double whole() { return whole_ratio(attempt); }
WASM_EXPORT(saved) double saved() { return saving(attempt); }
WASM_EXPORT(value_after) double value_after(double months) { return value(attempt, months); }
WASM_EXPORT(chance_needed) double chance_needed() { return least_chance(attempt); }
WASM_EXPORT(months_needed) double months_needed() { return pays_after(attempt); }
WASM_EXPORT(perfection) double perfection() { return value_of_perfection(attempt); }
