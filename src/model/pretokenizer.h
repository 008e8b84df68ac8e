// Cuts text into the pieces that byte-pair merges never cross, by a tokenizer's regular expression.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "core/result.h"

struct pcre2_real_code_8;

namespace fathom::model {

// Immutable once compiled; safe to use from many threads.
class Pretokenizer {
 public:
  // PCRE2 with UTF and UCP, compiled to machine code where the system allows that. `\s` and `\S` mean
  // Unicode's White_Space, as in the tokenizers' own engines; PCRE2's would take U+180E in as well.
  static Result<Pretokenizer> compile(std::string_view pattern);

  // The matches, and the stretches between them, in order: together exactly `text`. Matches of nothing are
  // passed over. An error when a pattern backtracks beyond PCRE2's limits; o200k's and GPT-2's are linear.
  // Precondition: text is well-formed UTF-8. The pieces point into it.
  Result<std::vector<std::string_view>> split(std::string_view text) const;

 private:
  struct Free {
    void operator()(pcre2_real_code_8* code) const;
  };
  explicit Pretokenizer(pcre2_real_code_8* code) : code_(code) {}

  std::unique_ptr<pcre2_real_code_8, Free> code_;
};

}  // namespace fathom::model
