// How the answers to one request become text of HTTP: one JSON body, or the events of a stream. Pure: pieces
// in, bytes out; generation.h sends them.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/generator.h"
#include "serve/answer_text.h"
#include "serve/api_error.h"
#include "serve/usage.h"

namespace fathom::serve {

struct ChoiceEnd {
  engine::FinishReason reason = engine::FinishReason::stop;
  StopReason stop;
};

// Each function returns what goes out now: events, or nothing while a body is collected.
class Reply {
 public:
  virtual ~Reply() = default;

  virtual std::string begin() = 0;  // every choice was taken on
  // What came to one choice, perhaps nothing; `end` in its last call, else null. `usage` is of all so far.
  virtual std::string add(size_t choice, std::span<const Piece> pieces, const ChoiceEnd* end,
                          const Usage& usage)     = 0;
  virtual std::string done(const Usage& usage)    = 0;  // after every choice has ended
  virtual std::string fail(const ApiError& error) = 0;  // instead of what else would have come
};

// What every reply says of itself.
struct ReplyHead {
  std::string id;
  int64_t created = 0;  // seconds since 1970
  std::string model;
};

// {"id", "object", "created", "model"}
nlohmann::ordered_json envelope(const ReplyHead& head, std::string_view object);
// What ends a stream of chunks of that object: usage in a chunk without choices, where it is wanted, and
// [DONE].
std::string end_of_stream(const ReplyHead& head, std::string_view object, bool include_usage,
                          const Usage& usage);
std::string failure_of_stream(const ApiError& error);

// "chatcmpl-" and 32 random hexadecimal digits.
std::string new_id(std::string_view prefix);
uint64_t random_seed();

// The client's token or string, or null.
nlohmann::ordered_json stop_reason_json(const StopReason& stop);
// JSON has no infinity: vLLM's -9999 stands for what has no probability.
double finite_logprob(double logprob);
// Of tokens of content: [{token, logprob, bytes, top_logprobs}].
nlohmann::ordered_json logprobs_json(const model::Tokenizer& tokenizer, std::span<const ShownToken> tokens);

}  // namespace fathom::serve
