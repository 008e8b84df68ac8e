// The requests of a load test: seeded prompts, and the lengths of their answers. The same seed gives the same
// requests on every machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "model/tokenizer.h"

namespace fathom::load {

// The prompt is `ids` or `text`, whichever is not empty.
struct Request {
  std::vector<model::TokenId> ids;
  std::string text;
  int64_t input_tokens  = 0;   // 0: unknown until the server reports it
  int64_t output_tokens = 1;   // max_tokens
  std::optional<double> at_s;  // of traces: seconds since the trace's first request
};

struct WorkloadSpec {
  enum class Dataset {
    random,  // uniform token ids after a shared prefix
    trace,   // a file of lengths and times; prompts are random where it has none
    custom,  // a file of prompts
  };
  Dataset dataset    = Dataset::random;
  int64_t input_len  = 1024;  // of random prompts, without the prefix
  int64_t output_len = 128;   // where the file gives none
  // Random lengths are uniform in floor(len (1 - ratio)) .. ceil(len (1 + ratio)), at least 1.
  double range_ratio   = 0;
  int64_t prefix_len   = 0;
  int64_t num_prefixes = 1;  // each shared by equally many requests, in random order

  // Random ids lie in [first_id, end_id). In the vocabularies tested, control tokens and single bytes have
  // ids below 300, and ordinary tokens reach 800 at least.
  model::TokenId first_id = 300, end_id = 800;

  // A file of JSON lines (JSONL), one object for each request.
  //   trace:  timestamp (milliseconds, as in Mooncake's traces), output_length, and prompt or input_length;
  //           with hash_ids, one for each 512 tokens, equal ids are equal blocks.
  //   custom: prompt, or ShareGPT's conversations: [{"from", "value"}, ...], of which the first message is
  //           the prompt; output_tokens may give the length of the answer.
  // A prompt is a string or a list of token ids.
  std::string path;
};

// `count` requests; 0: all of the file. A file with fewer requests is repeated, without times. Errors name
// the file, the line, the field and the allowed values.
Result<std::vector<Request>> make_workload(const WorkloadSpec& spec, int64_t count, uint64_t seed);

// Decodes random ids to text that has as many tokens, or nearly: tokens that merge when the text is encoded
// are replaced, in at most ten attempts. Sets input_tokens to the text's count.
Status write_as_text(std::vector<Request>& requests, const model::Tokenizer& tokenizer);
Status write_as_ids(std::vector<Request>& requests, const model::Tokenizer& tokenizer);

}  // namespace fathom::load
