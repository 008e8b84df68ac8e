// Whether an optimization is worth its cost: Amdahl's law with a ceiling, the expected value of an attempt,
// and its break-even. The model of the book's payoff calculator; freestanding, for it is compiled to
// WebAssembly too.
#pragma once

namespace fathom::book {

// Amounts are in one unit, hours of a machine or money.
struct Attempt {
  double part     = 1;  // share of the whole's time, 0 to 1
  double of_limit = 0;  // share of its limit at which the part runs, 0 to 1; 0: no limit known
  double ratio    = 1;  // times as fast as the idea makes the part, above 0
  double bill     = 0;  // of the whole, a month
  double months   = 0;  // that it will still be used
  double chance   = 1;  // of success, 0 to 1; a failure is thrown away
  double cost     = 0;  // of the attempt, whatever comes of it
  double upkeep   = 0;  // a month, after a success
};

// The share of the whole's time that is saved when the part runs at its limit.
double headroom(const Attempt& attempt);

// How many times as fast a part can become before it is at its limit, at most `attempt.ratio`.
double possible_ratio(const Attempt& attempt);

// How many times as fast the whole becomes.
double whole_ratio(const Attempt& attempt);

// Saved in each month after a success, upkeep subtracted; may be negative.
double saving(const Attempt& attempt);

// Expected, over `months` of them, less the cost.
double value(const Attempt& attempt, double months);

// The chance from which on the value is positive; above 1: not even a certain success pays. Infinity where
// nothing is saved.
double least_chance(const Attempt& attempt);

// Months after which a success has paid; infinity where it never does.
double pays_after(const Attempt& attempt);

// No idea whatever has more than this value: a certain success that reaches the limit and needs no upkeep.
double value_of_perfection(const Attempt& attempt);

}  // namespace fathom::book
