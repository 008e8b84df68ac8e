// What a load test asks: prompts of a seeded kind, with the lengths of their answers. The same seed gives the
// same requests anywhere.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "model/tokenizer.h"

namespace fathom::serve {

// A prompt is token ids or text, whichever is not empty.
struct LoadRequest {
  std::vector<model::TokenId> ids;
  std::string text;
  int64_t input_tokens  = 0;   // 0: not known before the server says so
  int64_t output_tokens = 1;   // asked for
  std::optional<double> at_s;  // of a trace: seconds from its first request
};

struct WorkloadSpec {
  enum class Dataset {
    random,  // uniform token ids, behind a prefix that several share
    trace,   // a file of lengths and times; prompts are random unless it has them
    custom,  // a file of prompts
  };
  Dataset dataset    = Dataset::random;
  int64_t input_len  = 1024;  // of random prompts, without the prefix
  int64_t output_len = 128;   // where the file does not say
  // Random lengths are uniform in floor(len (1 - ratio)) .. ceil(len (1 + ratio)), and at least 1.
  double range_ratio   = 0;
  int64_t prefix_len   = 0;
  int64_t num_prefixes = 1;  // as many requests have each, in random order

  // Random ids lie in [first_id, end_id). In the vocabularies we know, control tokens and single bytes lie
  // below 300, and ordinary tokens up to 800 at least.
  model::TokenId first_id = 300, end_id = 800;

  // JSON, one object a line (JSONL).
  //   trace:  timestamp (milliseconds, as in Mooncake's traces), output_length, and prompt or input_length;
  //           with hash_ids, one for each 512 tokens, blocks of equal id are equal.
  //   custom: prompt, or ShareGPT's conversations: [{"from", "value"}, ...], whose first message is asked;
  //           output_tokens may say how long the answer is to be.
  // A prompt is a string or a list of token ids.
  std::string path;
};

// `count` requests; 0: as many as the file has. A file that has fewer starts again, without times. Errors
// name the file, the line, the field and what it should be.
Result<std::vector<LoadRequest>> make_workload(const WorkloadSpec& spec, int64_t count, uint64_t seed);

// Random ids become text of as many tokens, or nearly: tokens that only join when written out are replaced
// ten times at most. input_tokens is what the text has.
Status write_as_text(std::vector<LoadRequest>& requests, const model::Tokenizer& tokenizer);
Status write_as_ids(std::vector<LoadRequest>& requests, const model::Tokenizer& tokenizer);

}  // namespace fathom::serve
