// The interface that chat_completion, completion and responses implement: it turns the output of one request
// into the bytes of the HTTP response, one JSON body or the events of a stream. A writer does no I/O;
// generation_task.h sends what it returns.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

#include "engine/generator.h"
#include "serve/api_error.h"
#include "serve/output_parser.h"
#include "serve/usage.h"

namespace fathom::serve {

// Why a choice ended.
struct ChoiceFinish {
  engine::FinishReason reason = engine::FinishReason::stop;
  StopReason stop;
};

// Each function returns the bytes to send now: the events of a stream, or nothing while a body is collected.
class ResponseWriter {
 public:
  virtual ~ResponseWriter() = default;

  virtual std::string begin() = 0;  // after the engine has accepted every choice
  // New output of one choice, possibly none. `finish` is null but in the choice's last call. `usage` counts
  // everything so far.
  virtual std::string add(size_t choice, std::span<const OutputDelta> deltas, const ChoiceFinish* finish,
                          const Usage& usage)     = 0;
  virtual std::string done(const Usage& usage)    = 0;  // after every choice has ended
  virtual std::string fail(const ApiError& error) = 0;  // ends the response in place of done()
};

// The fields at the top of every response.
struct ResponseEnvelope {
  std::string id;
  int64_t created = 0;  // seconds since 1970
  std::string model;
};

// {"id", "object", "created", "model"}
nlohmann::ordered_json envelope_json(const ResponseEnvelope& envelope, std::string_view object);
// The client's stop token or stop string, or null.
nlohmann::ordered_json stop_reason_json(const StopReason& stop);

// The end of a stream of chat completion or completion chunks: if asked for, a chunk with the usage and no
// choices; then [DONE].
std::string last_events(const ResponseEnvelope& envelope, std::string_view object, bool include_usage,
                        const Usage& usage);
std::string error_events(const ApiError& error);

}  // namespace fathom::serve
