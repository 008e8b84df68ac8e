#include "grammar/number_range.h"

#include <algorithm>
#include <charconv>
#include <compare>
#include <cstdlib>
#include <tuple>
#include <vector>

#include "core/expect.h"
#include "grammar/regex_dfa.h"

namespace fathom::grammar {
namespace {

constexpr int kMaxDigits            = 15;  // of a bounded number: a double holds 15 digits exactly
constexpr std::string_view kLargest = "9223372036854775807";
constexpr int kMaxExponent          = 400;

// The absolute value of a bound.
struct Magnitude {
  std::string whole, fraction;  // whole without leading zeros, fraction without trailing zeros
  bool exclusive = false;
};

bool is_negative(const NumberBound& bound) {
  return bound.decimal.starts_with('-') && bound.decimal.find_first_of("123456789") != std::string::npos;
}

Magnitude magnitude(const NumberBound& bound) {
  const std::string_view digits = std::string_view(bound.decimal).substr(bound.decimal.starts_with('-'));
  const size_t point            = std::min(digits.find('.'), digits.size());
  std::string_view whole        = digits.substr(0, point),
                   fraction     = digits.substr(std::min(point + 1, digits.size()));
  whole.remove_prefix(std::min(whole.find_first_not_of('0'), whole.size()));
  fraction = fraction.substr(0, fraction.find_last_not_of('0') + 1);
  return {std::string(whole), std::string(fraction), bound.exclusive};
}

// State of the automaton: the digits read so far, compared with the bounds.
struct Digits {
  enum Phase : uint8_t { start, minus, zero, whole, point, fraction };
  Phase phase    = start;
  bool negative  = false;
  uint8_t wholes = 0, fractions = 0;
  int8_t low = 0, high = 0;  // against each bound: -1 below, 0 equal so far, 1 above
  int16_t remainder                     = 0;
  auto operator<=>(const Digits&) const = default;
};

class RangeAutomaton {
 public:
  explicit RangeAutomaton(const NumberRange& range) : range_(range) {
    for (const bool negative : {false, true}) {
      Side& side        = sides_[negative];
      const auto& inner = negative ? range.max : range.min;  // the bound nearer to zero
      const auto& outer = negative ? range.min : range.max;
      const auto beyond = [&](const NumberBound& bound) { return is_negative(bound) == negative; };
      // An inner bound on the other side of zero does not limit this side; an outer one there leaves at most
      // zero.
      if (inner && (beyond(*inner) || is_zero(*inner))) side.low = magnitude(*inner);
      if (outer && beyond(*outer)) side.high = magnitude(*outer);
      if (outer && !beyond(*outer)) side.high = Magnitude{"", "", !is_zero(*outer) || outer->exclusive};
      if (range.integer && (!side.high || side.high->whole.size() > kLargest.size() ||
                            (side.high->whole.size() == kLargest.size() && side.high->whole > kLargest)))
        side.high = Magnitude{std::string(kLargest), ""};
    }
  }

  std::vector<std::tuple<uint8_t, uint8_t, Digits>> edges(const Digits& from) const {
    std::vector<std::tuple<uint8_t, uint8_t, Digits>> out;
    const auto to = [&](char byte, Digits next) {
      out.push_back({static_cast<uint8_t>(byte), static_cast<uint8_t>(byte), next});
    };
    if (from.phase == Digits::start) {
      Digits next   = from;
      next.phase    = Digits::minus;
      next.negative = true;
      to('-', next);
    }
    const bool may_point = from.phase == Digits::zero || from.phase == Digits::whole;
    if (may_point && !range_.integer) {
      Digits next = whole_ended(from);
      next.phase  = Digits::point;
      to('.', next);
    }
    const int most = range_.integer ? static_cast<int>(kLargest.size()) : kMaxDigits;
    if (from.phase == Digits::zero || from.wholes + from.fractions == most) return out;
    for (char digit = '0'; digit <= '9'; ++digit) to(digit, with_digit(from, digit));
    return out;
  }

  bool accepts(const Digits& at) const {
    if (at.phase == Digits::start || at.phase == Digits::minus || at.phase == Digits::point) return false;
    if (at.remainder != 0) return false;
    const Digits end = at.phase == Digits::fraction ? at : whole_ended(at);
    const Side& side = sides_[at.negative];
    // A number that equals the bound so far is below it if the bound has more digits.
    const auto order = [&](int8_t so_far, const Magnitude& bound) {
      return so_far == 0 && bound.fraction.size() > end.fractions ? -1 : so_far;
    };
    if (side.low) {
      const int low = order(end.low, *side.low);
      if (low < 0 || (low == 0 && side.low->exclusive)) return false;
    }
    if (side.high) {
      const int high = order(end.high, *side.high);
      if (high > 0 || (high == 0 && side.high->exclusive)) return false;
    }
    return true;
  }

 private:
  struct Side {
    std::optional<Magnitude> low, high;
  };

  static bool is_zero(const NumberBound& bound) {
    return bound.decimal.find_first_of("123456789") == std::string::npos;
  }

  static int8_t compared(int8_t so_far, char digit, const std::string& bound, size_t place, char beyond) {
    const char other = place < bound.size() ? bound[place] : beyond;
    return so_far != 0 ? so_far : static_cast<int8_t>((digit > other) - (digit < other));
  }

  Digits with_digit(Digits at, char digit) const {
    const Side& side = sides_[at.negative];
    if (range_.multiple_of > 1)
      at.remainder = static_cast<int16_t>((at.remainder * 10 + digit - '0') % range_.multiple_of);
    if (at.phase == Digits::point || at.phase == Digits::fraction) {
      at.phase = Digits::fraction;
      if (side.low) at.low = compared(at.low, digit, side.low->fraction, at.fractions, '0');
      if (side.high) at.high = compared(at.high, digit, side.high->fraction, at.fractions, '0');
      ++at.fractions;
      return at;
    }
    const bool is_zero = at.phase != Digits::whole && digit == '0';
    at.phase           = is_zero ? Digits::zero : Digits::whole;
    if (is_zero) return at;  // a single 0 counts as no digit, as in Magnitude
    if (side.low) at.low = compared(at.low, digit, side.low->whole, at.wholes, '0');
    if (side.high) at.high = compared(at.high, digit, side.high->whole, at.wholes, '0');
    ++at.wholes;
    return at;
  }

  // The whole part has ended: of two whole parts the one with more digits is larger.
  Digits whole_ended(Digits at) const {
    const auto by_length = [&](int8_t so_far, const Magnitude& bound) {
      const size_t length = bound.whole.size();
      return at.wholes == length ? so_far : at.wholes < length ? int8_t{-1} : int8_t{1};
    };
    const Side& side = sides_[at.negative];
    if (side.low) at.low = by_length(at.low, *side.low);
    if (side.high) at.high = by_length(at.high, *side.high);
    return at;
  }

  const NumberRange& range_;
  Side sides_[2];  // numbers from 0 up, numbers from -0 down
};

}  // namespace

std::optional<ByteDfa> compile_number_range(const NumberRange& range, CompileBudget& budget) {
  if (!range.integer && !range.min && !range.max) {
    // The largest number is below 1e20 * 1e280, within double's range.
    const auto dfa = compile_text_regex(
        "^-?(0|[1-9]\\d{0,19})(\\.\\d{1,20})?([eE](-\\d{1,3}|\\+?(\\d{1,2}|[01]\\d\\d|2[0-7]\\d)))?$",
        budget);
    return dfa ? std::optional(*dfa) : std::nullopt;
  }
  const RangeAutomaton automaton(range);
  return ByteDfa::explore(
      Digits{}, [&](const Digits& at) { return automaton.edges(at); },
      [&](const Digits& at) { return automaton.accepts(at); }, budget);
}

int compare_decimals(std::string_view a, std::string_view b) {
  const NumberBound left{std::string(a)}, right{std::string(b)};
  if (is_negative(left) != is_negative(right)) return is_negative(left) ? -1 : 1;
  const Magnitude l = magnitude(left), r = magnitude(right);
  const auto order =
      std::tuple(l.whole.size(), l.whole, l.fraction) <=> std::tuple(r.whole.size(), r.whole, r.fraction);
  const int larger = order < 0 ? -1 : order > 0 ? 1 : 0;
  return is_negative(left) ? -larger : larger;
}

std::string plain_decimal(std::string_view number) {
  const bool negative = number.starts_with('-');
  number.remove_prefix(negative);
  const size_t e = std::min(number.find_first_of("eE"), number.size());
  int exponent   = 0;
  if (e < number.size()) {
    std::string_view text = number.substr(e + 1);
    text.remove_prefix(text.starts_with('+'));
    std::from_chars(text.data(), text.data() + text.size(), exponent);
  }
  FATHOM_EXPECT(std::abs(exponent) <= kMaxExponent, "a number beyond double's range");
  std::string digits(number.substr(0, e));
  auto point = static_cast<int>(std::min(digits.find('.'), digits.size()));
  if (point < static_cast<int>(digits.size())) digits.erase(static_cast<size_t>(point), 1);
  point += exponent;
  if (point <= 0) digits.insert(0, static_cast<size_t>(1 - point), '0');
  const auto whole = static_cast<size_t>(std::max(point, 1));
  if (whole > digits.size()) digits.append(whole - digits.size(), '0');
  return (negative ? "-" : "") + digits.substr(0, whole) + "." + digits.substr(whole);
}

}  // namespace fathom::grammar
