#include "grammar/regex_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

namespace fathom::grammar {
namespace {

using Kind = RegexNode::Kind;
using Set  = std::vector<CodePoints>;

constexpr size_t kMaxPattern       = 4096;  // bytes
constexpr int kMaxDepth            = 32;    // nested groups
constexpr int64_t kMaxRepeat       = 100000;
constexpr std::string_view kSyntax = "^$\\.*+?()[]{}|/-";

struct Refused {
  size_t at;
  std::string why;
};

Set sorted(Set set) {
  std::sort(set.begin(), set.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  Set merged;
  for (const CodePoints& range : set)
    if (!merged.empty() && range.first <= merged.back().last + 1)
      merged.back().last = std::max(merged.back().last, range.last);
    else
      merged.push_back(range);
  return merged;
}

// `set` is sorted.
Set complement(const Set& set) {
  Set rest;
  uint32_t next = 0;
  for (const CodePoints& range : set) {
    if (range.first > next) rest.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLastCodePoint) rest.push_back({next, kLastCodePoint});
  return rest;
}

const Set kDigits = {{'0', '9'}};
const Set kWord   = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const Set kSpace  = {{'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
                     {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
const Set kLineEnds = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
const Set kAll      = {{0, kLastCodePoint}};

RegexNode of(Set set) { return {.kind = Kind::characters, .characters = std::move(set)}; }
RegexNode any_text() { return {.kind = Kind::repeat, .parts = {of(kAll)}}; }

class Parser {
 public:
  explicit Parser(std::string_view pattern) : pattern_(pattern) {}

  RegexNode parse() {
    if (pattern_.size() > kMaxPattern) refuse(fmt::format("has more than {} bytes", kMaxPattern));
    RegexNode expression = alternatives(0);
    if (!done()) refuse("')' closes no group");
    return expression;
  }

 private:
  [[noreturn]] void refuse(std::string why) const { throw Refused{at_, std::move(why)}; }
  bool done() const { return at_ == pattern_.size(); }
  bool sees(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
  bool take(std::string_view text) {
    if (!sees(text)) return false;
    at_ += text.size();
    return true;
  }

  uint32_t code_point() {
    if (done()) refuse("ends too early");
    const auto lead = static_cast<uint8_t>(pattern_[at_++]);
    const int more  = lead < 0x80 ? 0 : lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
    uint32_t point  = more == 0 ? lead : lead & (0x3Fu >> more);
    for (int i = 0; i < more && !done(); ++i)
      point = point << 6 | (static_cast<uint8_t>(pattern_[at_++]) & 0x3F);
    return point;
  }

  uint32_t hex(int digits) {
    uint32_t value = 0;
    for (int i = 0; i < digits; ++i) {
      const char c    = done() ? '?' : pattern_[at_];
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) refuse("a hexadecimal digit is missing");
      value = value << 4 | static_cast<uint32_t>(digit);
      ++at_;
    }
    return value;
  }

  uint32_t unicode_escape() {
    if (take("{")) {
      uint32_t value = 0;
      for (int digits = 0; !take("}"); ++digits) {
        if (digits == 6) refuse("a code point has at most 6 digits");
        value = value << 4 | hex(1);
      }
      if (value > kLastCodePoint) refuse("no code point is larger than 10FFFF");
      return value;
    }
    const uint32_t unit = hex(4);
    if (unit < 0xD800 || unit > 0xDBFF || !take("\\u")) return unit;
    const uint32_t low = hex(4);
    if (low < 0xDC00 || low > 0xDFFF) refuse("half of a surrogate pair is missing");
    return 0x10000 + ((unit - 0xD800) << 10 | (low - 0xDC00));
  }

  // After a backslash.
  Set escape() {
    const size_t start = at_;
    const uint32_t c   = code_point();
    switch (c) {
      case 'd':
        return kDigits;
      case 'D':
        return complement(kDigits);
      case 'w':
        return kWord;
      case 'W':
        return complement(kWord);
      case 's':
        return kSpace;
      case 'S':
        return complement(kSpace);
      case 'n':
        return {{'\n', '\n'}};
      case 'r':
        return {{'\r', '\r'}};
      case 't':
        return {{'\t', '\t'}};
      case 'v':
        return {{'\v', '\v'}};
      case 'f':
        return {{'\f', '\f'}};
      case 'x':
      case 'u': {
        const uint32_t point = c == 'x' ? hex(2) : unicode_escape();
        return {{point, point}};
      }
      default:
        if (c < 0x80 && kSyntax.find(static_cast<char>(c)) != std::string_view::npos) return {{c, c}};
        at_ = start;
        refuse("this escape is not supported");
    }
  }

  // After '['.
  Set character_class() {
    const bool negated = take("^");
    Set set;
    const auto member = [&] {
      if (take("\\")) return take("b") ? Set{{'\b', '\b'}} : escape();
      const uint32_t c = code_point();
      return Set{{c, c}};
    };
    const auto is_one = [](const Set& set) { return set.size() == 1 && set[0].first == set[0].last; };
    while (!take("]")) {
      Set first = member();
      if (sees("-") && !sees("-]")) {
        ++at_;
        const Set last = member();
        if (!is_one(first) || !is_one(last) || last[0].first < first[0].first) refuse("this range is none");
        first[0].last = last[0].last;
      }
      set.insert(set.end(), first.begin(), first.end());
    }
    set = sorted(std::move(set));
    return negated ? complement(set) : set;
  }

  int64_t number() {
    int64_t value      = 0;
    const size_t start = at_;
    for (; !done() && pattern_[at_] >= '0' && pattern_[at_] <= '9'; ++at_) {
      value = value * 10 + pattern_[at_] - '0';
      if (value > kMaxRepeat) refuse(fmt::format("repeats more than {} times", kMaxRepeat));
    }
    if (at_ == start) refuse("a number is missing");
    return value;
  }

  RegexNode quantified(RegexNode atom) {
    RegexNode repeat{.kind = Kind::repeat, .min = 0};
    if (take("*")) {
    } else if (take("+")) {
      repeat.min = 1;
    } else if (take("?")) {
      repeat.max = 1;
    } else if (take("{")) {
      repeat.min = number();
      if (!take(","))
        repeat.max = repeat.min;
      else if (!sees("}"))
        repeat.max = number();
      if (!take("}")) refuse("'}' is missing");
      if (repeat.max && *repeat.max < repeat.min) refuse("repeats at most less often than at least");
    } else {
      return atom;
    }
    take("?");  // a lazy quantifier matches the same strings
    if (sees("*") || sees("+") || sees("?") || sees("{")) refuse("a quantifier of a quantifier");
    repeat.parts.push_back(std::move(atom));
    return repeat;
  }

  RegexNode atom(int depth) {
    if (take("(")) {
      if (sees("?") && !take("?:")) refuse("of the groups with '?' only '(?:' is supported");
      if (depth == kMaxDepth) refuse(fmt::format("groups are nested deeper than {}", kMaxDepth));
      RegexNode group = alternatives(depth + 1);
      if (!take(")")) refuse("')' is missing");
      return group;
    }
    if (take("[")) return of(character_class());
    if (take(".")) return of(complement(kLineEnds));
    if (take("\\")) return of(escape());
    for (const char c : {'^', '$'})
      if (sees(std::string(1, c)))
        refuse(fmt::format("'{}' is supported at the ends of the pattern only", c));
    for (const char c : {'*', '+', '?', '{'})
      if (sees(std::string(1, c))) refuse(fmt::format("'{}' repeats nothing", c));
    const uint32_t c = code_point();
    return of({{c, c}});
  }

  RegexNode alternatives(int depth) {
    RegexNode either{.kind = Kind::alternatives};
    do {
      RegexNode sequence;
      if (depth == 0 && !take("^")) sequence.parts.push_back(any_text());
      bool ended = false;
      while (!done() && !sees("|") && !sees(")")) {
        if (depth == 0 && sees("$") && (at_ + 1 == pattern_.size() || pattern_[at_ + 1] == '|')) {
          ended = take("$");
          break;
        }
        RegexNode one = atom(depth);
        sequence.parts.push_back(quantified(std::move(one)));
      }
      if (depth == 0 && !ended) sequence.parts.push_back(any_text());
      either.parts.push_back(std::move(sequence));
    } while (take("|"));
    return either;
  }

  std::string_view pattern_;
  size_t at_ = 0;
};

}  // namespace

Result<RegexNode> parse_regex(std::string_view pattern) {
  try {
    return Parser(pattern).parse();
  } catch (const Refused& refused) {
    return Error{fmt::format("at byte {}: {}", refused.at, refused.why)};
  }
}

}  // namespace fathom::grammar
