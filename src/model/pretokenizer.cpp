#include "model/pretokenizer.h"

#include <string>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include "core/expect.h"

namespace fathom::model {
namespace {

constexpr std::string_view kWhiteSpace = R"(\p{Z}\t-\r\x{85})";  // for use inside a character class

std::string pcre2_message(int error) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(error, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

// Replaces \s and \S by Unicode's White_Space.
std::string with_unicode_white_space(std::string_view pattern) {
  std::string spelt;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const std::string_view rest = pattern.substr(i);
    if (rest.starts_with("\\s")) {
      spelt += in_class ? std::string(kWhiteSpace) : fmt::format("[{}]", kWhiteSpace);
      ++i;
    } else if (rest.starts_with("\\S") && !in_class) {
      spelt += fmt::format("[^{}]", kWhiteSpace);
      ++i;
    } else if (rest[0] == '\\' && rest.size() > 1) {
      spelt += rest.substr(0, 2);
      ++i;
    } else if (rest[0] == '[' && !in_class) {
      in_class          = true;
      const size_t open = rest.starts_with("[^") ? 2 : 1;
      const size_t size =
          rest.substr(open).starts_with("]") ? open + 1 : open;  // a leading ] is a member of the class
      spelt += rest.substr(0, size);
      i += size - 1;
    } else {
      if (rest[0] == ']') in_class = false;
      spelt += rest[0];
    }
  }
  return spelt;
}

}  // namespace

void Pretokenizer::Free::operator()(pcre2_real_code_8* code) const { pcre2_code_free(code); }

Result<Pretokenizer> Pretokenizer::compile(std::string_view pattern) {
  const std::string spelt = with_unicode_white_space(pattern);
  int error               = 0;
  PCRE2_SIZE offset       = 0;
  pcre2_code* code        = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(spelt.data()), spelt.size(),
                                          PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr);
  if (!code)
    return Error{
        fmt::format("PCRE2 cannot read the pattern, {} (at byte {} of \"{}\"): rewrite it in Perl's "
                    "syntax",
                    pcre2_message(error), offset, spelt)};
  // Fails where executable memory is forbidden; pcre2_match() then interprets.
  (void)pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  return Pretokenizer(code);
}

Result<std::vector<std::string_view>> Pretokenizer::split(std::string_view text) const {
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match(
      pcre2_match_data_create(1, nullptr), pcre2_match_data_free);
  FATHOM_EXPECT(match, "no memory for a match: shorten the text");
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());

  std::vector<std::string_view> pieces;
  size_t done = 0;
  while (done < text.size()) {
    constexpr uint32_t kOptions = PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY;
    int count = pcre2_match(code_.get(), subject, text.size(), done, kOptions, match.get(), nullptr);
    if (count == PCRE2_ERROR_JIT_STACKLIMIT)  // the interpreter keeps its frames on the heap
      count =
          pcre2_match(code_.get(), subject, text.size(), done, kOptions | PCRE2_NO_JIT, match.get(), nullptr);
    if (count == PCRE2_ERROR_NOMATCH) {
      pieces.push_back(text.substr(done));
      break;
    }
    if (count < 0)
      return Error{
          fmt::format("the tokenizer's pattern failed at byte {} of a text of {}: {}; send a shorter "
                      "text",
                      done, text.size(), pcre2_message(count))};
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(match.get());
    const size_t first = range[0], last = range[1];
    if (first < done || last <= first)  // possible with \K
      return Error{fmt::format("the tokenizer's pattern matched backwards at byte {}: remove its \\K", done)};
    if (first > done) pieces.push_back(text.substr(done, first - done));
    pieces.push_back(text.substr(first, last - first));
    done = last;
  }
  return pieces;
}

}  // namespace fathom::model
