#include "serve/completion_stream.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "http/sse.h"

namespace fathom::serve {
namespace {

using Json = nlohmann::ordered_json;

class CompletionStream : public ResponseWriter {
 public:
  CompletionStream(const model::Tokenizer& tokenizer, CompletionOptions options)
      : tokenizer_(tokenizer), options_(std::move(options)) {}

  std::string begin() override {
    std::string events;
    for (size_t i = 0; i < options_.echo.size(); ++i)
      if (!options_.echo[i].empty())
        events +=
            event(completion_choice_json(tokenizer_, options_, i, options_.echo[i], {}, nullptr), Usage());
    return events;
  }

  std::string add(size_t index, std::span<const OutputDelta> deltas, const ChoiceFinish* finish,
                  const Usage& usage) override {
    std::string text;
    std::vector<ContentToken> tokens;
    for (const OutputDelta& delta : deltas) {
      text += delta.text;
      tokens.insert(tokens.end(), delta.tokens.begin(), delta.tokens.end());
    }
    return event(completion_choice_json(tokenizer_, options_, index, text, tokens, finish), usage);
  }

  std::string done(const Usage& usage) override {
    return last_events(options_.envelope, kTextCompletion, options_.include_usage, usage);
  }

  std::string fail(const ApiError& error) override { return error_events(error); }

 private:
  std::string event(Json choice, const Usage& usage) {
    Json chunk       = envelope_json(options_.envelope, kTextCompletion);
    chunk["choices"] = Json::array({std::move(choice)});
    if (options_.continuous_usage_stats) chunk["usage"] = usage_json(usage);
    if (usage.choices == static_cast<int64_t>(options_.echo.size())) chunk["timings"] = timings_json(usage);
    if (std::exchange(told_version_, usage.weight_version) != usage.weight_version)
      set_weight_version(chunk, usage);
    return http::data_event(chunk);
  }

  const model::Tokenizer& tokenizer_;
  const CompletionOptions options_;
  std::string told_version_;
};

}  // namespace

std::unique_ptr<ResponseWriter> completion_stream(const model::Tokenizer& tokenizer,
                                                  CompletionOptions options) {
  return std::make_unique<CompletionStream>(tokenizer, std::move(options));
}

}  // namespace fathom::serve
