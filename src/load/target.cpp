#include "load/target.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/expect.h"

namespace fathom::load {
namespace {

using nlohmann::json;

constexpr size_t kMaxErrorBody = 4096;  // bytes kept of an error body

bool filled(const json& object, const char* field) {
  const auto at = object.find(field);
  if (at == object.end()) return false;
  return at->is_string() ? !at->get_ref<const std::string&>().empty() : at->is_array() && !at->empty();
}

bool has_content(const json& choice) {
  const auto delta = choice.find("delta");
  if (delta == choice.end() || !delta->is_object()) return filled(choice, "text");
  return filled(*delta, "content") || filled(*delta, "reasoning_content") || filled(*delta, "reasoning") ||
         filled(*delta, "tool_calls");
}

class OpenAiTarget : public Target {
 public:
  OpenAiTarget(http::Client& client, OpenAiOptions options)
      : client_(client),
        options_(std::move(options)),
        chat_(options_.endpoint.ends_with("/chat/completions")) {}

  void send(const Request& request, ResponseListener listener) override {
    auto answer = std::make_shared<OpenAiResponse>(std::move(listener));
    http::ClientRequest call{
        .method  = "POST",
        .target  = options_.endpoint,
        .headers = {{"Content-Type", "application/json"}, {"Accept", "text/event-stream"}},
        .body    = body(request),
        .timeout = options_.timeout};
    if (!options_.api_key.empty()) call.headers.push_back({"Authorization", "Bearer " + options_.api_key});
    client_.start(std::move(call),
                  {.status = [answer](int status) { answer->status(status); },
                   .body   = [answer](auto at, std::string_view piece) { answer->body(at, piece); },
                   .end    = [answer](auto at, std::string error) { answer->end(at, std::move(error)); }});
  }
  void abandon() override { client_.stop(); }

 private:
  std::string body(const Request& request) const {
    FATHOM_EXPECT(!chat_ || !request.text.empty(), "a chat message is text: write_as_text() before");
    json object{{"model", options_.model}, {"stream", true}, {"stream_options", {{"include_usage", true}}}};
    if (chat_) {
      object["messages"]              = json::array({{{"role", "user"}, {"content", request.text}}});
      object["max_completion_tokens"] = request.output_tokens;
    } else {
      object["prompt"]     = request.text.empty() ? json(request.ids) : json(request.text);
      object["max_tokens"] = request.output_tokens;
    }
    if (options_.ignore_eos) object["ignore_eos"] = true;
    if (options_.temperature) object["temperature"] = *options_.temperature;
    // A file's text may be invalid UTF-8; the server gets U+FFFD for it.
    return object.dump(-1, ' ', false, json::error_handler_t::replace);
  }

  http::Client& client_;
  OpenAiOptions options_;
  bool chat_;
};

class EngineTarget : public Target {
 public:
  EngineTarget(engine::Generator& generator, EngineOptions options)
      : generator_(generator), options_(std::move(options)) {}
  ~EngineTarget() override { abandon(); }

  void send(const Request& request, ResponseListener listener) override {
    FATHOM_EXPECT(!request.ids.empty(), "an engine reads token ids: write_as_ids() before");
    const int64_t number = sent_++;
    engine::Request asked{.prompt     = request.ids,
                          .sampling   = options_.sampling,
                          .max_tokens = request.output_tokens,
                          .stop_ids   = options_.stop_ids};
    asked.sampling.seed += static_cast<uint64_t>(number);
    const auto input = static_cast<int64_t>(request.ids.size());
    // Holds no lock while it calls the engine: the engine's thread may be reporting progress of another
    // response, and this one may end before submit() returns.
    const auto answer = std::make_shared<Answer>(Answer{std::move(listener)});
    {
      const std::lock_guard lock(mutex_);
      under_way_[number];
    }
    const auto told =
        generator_.submit(std::move(asked), [this, answer, number, input](const engine::RequestOutput& p) {
          const auto now = Clock::now();
          answer->tokens += static_cast<int64_t>(p.tokens.size());
          if (!p.tokens.empty()) answer->listener.content(now);
          if (p.finish) end(number, answer->listener, now, end_of(p, input, answer->tokens));
        });
    if (const auto* refusal = std::get_if<engine::Refusal>(&told)) {
      end(number, answer->listener, Clock::now(), {.error = refusal->message});
    } else {
      const std::lock_guard lock(mutex_);
      const auto at = under_way_.find(number);
      if (at != under_way_.end()) at->second = std::get<engine::RequestId>(told);
    }
  }

  void abandon() override {
    std::unique_lock lock(mutex_);
    abandoned_     = true;
    const auto ids = under_way_;
    lock.unlock();
    for (const auto& [number, id] : ids)
      if (id) generator_.cancel(*id);
    lock.lock();
    ended_.wait(lock, [this] { return under_way_.empty(); });
  }

 private:
  struct Answer {
    ResponseListener listener;
    int64_t tokens = 0;
  };

  static ResponseEnd end_of(const engine::RequestOutput& p, int64_t input, int64_t tokens) {
    ResponseEnd end{.input_tokens = input, .output_tokens = tokens};
    if (*p.finish == engine::FinishReason::error) end.error = p.error;
    if (*p.finish == engine::FinishReason::cancelled) end.error = "the engine cancelled the request";
    return end;
  }

  void end(int64_t number, const ResponseListener& answer, Clock::time_point at, const ResponseEnd& end) {
    bool tell;
    {
      const std::lock_guard lock(mutex_);
      tell = !abandoned_;
    }
    if (tell) answer.end(at, end);
    const std::lock_guard lock(mutex_);
    under_way_.erase(number);
    // Notifies under the lock, because the waiting thread may destroy this object.
    ended_.notify_all();
  }

  engine::Generator& generator_;
  EngineOptions options_;
  int64_t sent_ = 0;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool abandoned_ = false;
  std::map<int64_t, std::optional<engine::RequestId>>
      under_way_;  // by request number; the id once it is known
};

}  // namespace

void OpenAiResponse::body(Clock::time_point at, std::string_view piece) {
  if (status_ != 200) {
    error_body_ += piece.substr(0, kMaxErrorBody - std::min(error_body_.size(), kMaxErrorBody));
    return;
  }
  if (!error_.empty()) return;
  const Status read = reader_.add(piece, [&](std::string_view data) { event(at, data); });
  if (!read && error_.empty()) error_ = read.error().message;
}

void OpenAiResponse::event(Clock::time_point at, std::string_view data) {
  if (data == "[DONE]") {
    finished_ = true;
    return;
  }
  const json chunk = json::parse(data, nullptr, false);
  if (!chunk.is_object()) {
    if (error_.empty()) error_ = "the server sent an event that is no JSON object";
    return;
  }
  if (chunk.contains("error") && !chunk["error"].is_null()) {
    if (error_.empty()) error_ = message_of(chunk.dump(-1, ' ', false, json::error_handler_t::replace));
    return;
  }
  if (const auto choices = chunk.find("choices"); choices != chunk.end() && choices->is_array()) {
    for (const json& choice : *choices) {
      if (!choice.is_object()) continue;
      const auto reason = choice.find("finish_reason");
      const bool last   = reason != choice.end() && !reason->is_null();
      if (has_content(choice) || (last && chunks_ == 0)) {
        ++chunks_;
        listener_.content(at);
      }
      finished_ |= last;
    }
  }
  if (const auto usage = chunk.find("usage"); usage != chunk.end() && usage->is_object()) {
    const auto count = [&](const char* field, std::optional<int64_t>& to) {
      const auto value = usage->find(field);
      if (value != usage->end() && value->is_number_unsigned()) to = value->get<int64_t>();
    };
    count("prompt_tokens", counted_.input_tokens);
    count("completion_tokens", counted_.output_tokens);
  }
}

void OpenAiResponse::end(Clock::time_point at, std::string error) {
  if (!error.empty())
    counted_.error = std::move(error);
  else if (status_ != 200)
    counted_.error = fmt::format("HTTP {}: {}", status_, message_of(error_body_));
  else if (!error_.empty())
    counted_.error = error_;
  else if (!finished_)
    counted_.error = "the stream ended before [DONE] or a finish_reason";
  else if (chunks_ == 0)
    counted_.error = "the stream ended without any choice";
  if (!counted_.output_tokens) counted_.output_tokens = chunks_;
  listener_.end(at, counted_);
}

std::unique_ptr<Target> openai_target(http::Client& client, OpenAiOptions options) {
  return std::make_unique<OpenAiTarget>(client, std::move(options));
}

std::unique_ptr<Target> engine_target(engine::Generator& generator, EngineOptions options) {
  return std::make_unique<EngineTarget>(generator, std::move(options));
}

std::string message_of(const std::string& body) {
  const json object = json::parse(body, nullptr, false);
  std::string text  = body.substr(0, 200);
  if (object.is_object()) {
    const json& error = object.contains("error") ? object["error"] : object;
    if (error.is_string()) text = error.get<std::string>();
    if (error.is_object() && error.contains("message") && error["message"].is_string())
      text = error["message"].get<std::string>();
  }
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < ' '; }, ' ');
  return text.empty() ? "no explanation" : text;
}

Result<std::string> first_model(http::Client& client, const std::string& api_key) {
  http::ClientRequest call{.target = "/v1/models", .timeout = std::chrono::seconds(30)};
  if (!api_key.empty()) call.headers.push_back({"Authorization", "Bearer " + api_key});
  const auto reply = client.fetch(std::move(call));
  if (!reply) return reply.error();
  if (reply->status != 200)
    return Error{fmt::format("GET /v1/models answered HTTP {}: {}; name the model with --model",
                             reply->status, message_of(reply->body))};
  const json models = json::parse(reply->body, nullptr, false);
  if (models.is_object() && models.contains("data") && models["data"].is_array() && !models["data"].empty()) {
    const json& first = models["data"][0];
    if (first.is_object() && first.contains("id") && first["id"].is_string())
      return first["id"].get<std::string>();
  }
  return Error{"GET /v1/models lists no model; name it with --model"};
}

}  // namespace fathom::load
