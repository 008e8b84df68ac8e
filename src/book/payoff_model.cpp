#include "book/payoff_model.h"

namespace fathom::book {

double headroom(const Attempt& attempt) { return attempt.part * (1 - attempt.of_limit); }

double possible_ratio(const Attempt& attempt) {
  return attempt.ratio * attempt.of_limit > 1 ? 1 / attempt.of_limit : attempt.ratio;
}

double whole_ratio(const Attempt& attempt) {
  return 1 / (1 - attempt.part + attempt.part / possible_ratio(attempt));
}

double saving(const Attempt& attempt) {
  return attempt.bill * (1 - 1 / whole_ratio(attempt)) - attempt.upkeep;
}

double value(const Attempt& attempt, double months) {
  return attempt.chance * months * saving(attempt) - attempt.cost;
}

double least_chance(const Attempt& attempt) {
  const double saved = attempt.months * saving(attempt);
  return saved > 0 ? attempt.cost / saved : __builtin_inf();
}

double pays_after(const Attempt& attempt) {
  const double saved = saving(attempt);
  return saved > 0 ? attempt.cost / saved : __builtin_inf();
}

double value_of_perfection(const Attempt& attempt) {
  return attempt.months * attempt.bill * headroom(attempt) - attempt.cost;
}

}  // namespace fathom::book
