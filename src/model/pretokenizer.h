// Splits text by a tokenizer's regular expression into pieces that byte-pair merges never cross.
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
  // Uses PCRE2 with UTF and UCP, JIT-compiled where the system allows it. `\s` and `\S` mean Unicode's
  // White_Space, as in the `tokenizers` package; PCRE2's \s includes U+180E too.
  static Result<Pretokenizer> compile(std::string_view pattern);

  // The matches and the text between them, in order; joined, they are `text`. Empty matches are skipped.
  // Fails when a pattern backtracks beyond PCRE2's limits; o200k's and GPT-2's patterns are linear.
  // Precondition: `text` is well-formed UTF-8. The pieces point into it.
  Result<std::vector<std::string_view>> split(std::string_view text) const;

 private:
  struct Free {
    void operator()(pcre2_real_code_8* code) const;
  };
  explicit Pretokenizer(pcre2_real_code_8* code) : code_(code) {}

  std::unique_ptr<pcre2_real_code_8, Free> code_;
};

}  // namespace fathom::model
