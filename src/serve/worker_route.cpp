#include "serve/worker_route.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "http/sse.h"
#include "serve/random_id.h"
#include "serve/routes.h"

namespace fathom::serve {
namespace {

using RouteJson = nlohmann::ordered_json;

constexpr auto kWorkerPing = std::chrono::milliseconds(10'000);

ApiError worker_refusal(const engine::Refusal& refusal) {
  using Reason     = engine::Refusal::Reason;
  const int status = refusal.reason == Reason::queue_full ? 429
                     : refusal.reason == Reason::stopping ? 503
                                                          : 400;
  return {.status = status, .type = "WorkerError", .message = refusal.message};
}

// "127.0.0.1" of "127.0.0.1:41022", "::1" of "[::1]:41022".
std::string host_of(const std::string& peer) {
  std::string host = peer.substr(0, peer.rfind(':'));
  if (host.starts_with('[')) host = host.substr(1, host.size() - 2);
  return host;
}

// The events of one attempt. The engine's thread hands the tokens over; they are written on the strand.
struct Attempt {
  std::shared_ptr<http::Exchange> exchange;
  int64_t position = 0;  // used by the engine's thread

  void told(const engine::RequestOutput& output) {
    WorkerOutput event{.position      = position,
                       .tokens        = {output.tokens.begin(), output.tokens.end()},
                       .finish        = output.finish,
                       .error         = std::string(output.error),
                       .cached_tokens = output.cached_tokens,
                       .drafted       = output.drafted,
                       .accepted      = output.accepted};
    position += static_cast<int64_t>(output.tokens.size());
    exchange->post([exchange = exchange, event = std::move(event)] {
      exchange->write(http::data_event(json_of(event)));
      if (event.finish) exchange->end();
    });
  }
};

}  // namespace

void worker(const RequestContext& context) {
  if (context.model->worker) return context.model->worker(context);
  context.refuse({.status  = 404,
                  .type    = "NotFoundError",
                  .message = "this server works for no other: start it with --role"});
}

Worker::Worker(engine::Engine& engine, const OutputConstraints& constraints, WorkerRole role)
    : engine_(engine),
      constraints_(constraints),
      role_(role),
      incarnation_(new_id("")),
      model_(model_fingerprint(engine.checkpoint())) {}

// Jobs and requests call back until these are gone.
Worker::~Worker() {
  jobs_.reset();
  offload_.reset();
}

Result<std::unique_ptr<Worker>> Worker::start(engine::Engine& engine, const OutputConstraints& constraints,
                                              Options options) {
  if (const Status able = can_share_kv(engine, "--role"); !able) return able.error();
  std::unique_ptr<Worker> worker(new Worker(engine, constraints, options.role));
  options.offload.layout = kv_layout(engine);
  auto offload           = PrefillOffload::start(engine, options.offload);
  if (!offload) return offload.error();
  worker->offload_ = std::move(offload).value();
  worker->jobs_    = std::make_unique<PrefillJobs>(engine, options.offload.layout, options.iteration_timeout);
  return worker;
}

engine::Generator& Worker::generator() { return *offload_; }

void Worker::answer(const RequestContext& context) {
  const std::string& path = context.request.path;
  if (path == "/worker/status") return status(context);
  if (path == "/worker/generate") return generate(context);
  if (path == "/worker/cancel") return cancel(context);
  if (path == "/worker/role") return assign_role(context);
  prefill(context);
}

// Of what runs out first: sequences of a step, pages of the KV cache, or jobs for others. 1: full. Requests
// whose prompts are computed elsewhere do not load this worker yet.
double Worker::utilization(const engine::GeneratorStats& stats) const {
  const auto share = [](int64_t used, int64_t all) {
    return all > 0 ? static_cast<double>(used) / static_cast<double>(all) : 0;
  };
  return std::max({share(stats.running + stats.waiting, engine_.config().max_sequences),
                   share(stats.pages_in_use, stats.pages), share(jobs_->running(), kMaxPrefillJobs)});
}

void Worker::status(const RequestContext& context) const {
  const engine::GeneratorStats stats = context.model->generator.stats();
  RouteJson body                     = {{"role", name_of(role_)},
                                        {"incarnation", incarnation_},
                                        {"model", model_},
                                        {"max_context", engine_.max_context()},
                                        {"page_tokens", engine_.config().page_size},
                                        {"running", stats.running},
                                        {"waiting", stats.waiting},
                                        {"waiting_tokens", stats.waiting_tokens},
                                        {"steps", stats.steps},
                                        {"stalled_s", stats.stalled_s},
                                        {"utilization", utilization(engine_.stats())},
                                        {"prefill_jobs", jobs_->running()}};
  const OffloadStats offload         = offload_->offload_stats();
  body["peers"]                      = offload_->peers();
  body["offload"]                    = {{"asked", offload.asked},
                                        {"landed", offload.landed},
                                        {"blocks", offload.blocks},
                                        {"failed", offload.failed},
                                        {"landing_pages", offload.landing_pages},
                                        {"landing_pages_free", offload.landing_pages_free},
                                        {"landing_pages_quarantined", offload.landing_pages_quarantined}};
  context.respond(body);
}

// The router's planner moves this worker to another role, or other workers to and from prefill. Answers and
// prompts that were begun go on.
void Worker::assign_role(const RequestContext& context) {
  const auto assigned = parse_assignment(RouteJson::parse(context.request.body, nullptr, false));
  if (!assigned) return context.refuse({.type = "WorkerError", .message = assigned.error().message});
  std::vector<http::Url> peers;
  for (const std::string& peer : assigned->peers) {
    auto url = http::parse_url(peer);
    if (!url) return context.refuse({.type = "WorkerError", .message = url.error().message});
    peers.push_back(std::move(url).value());
  }
  if (const Status known = offload_->ask_only(peers); !known)
    return context.refuse({.type = "WorkerError", .message = known.error().message});
  role_ = assigned->role;
  context.respond({{"role", name_of(assigned->role)}});
}

// Streams one attempt at a request. The router names it, so that it can cancel it.
void Worker::generate(const RequestContext& context) {
  const RouteJson body = RouteJson::parse(context.request.body, nullptr, false);
  auto forwarded       = parse_request(body);
  if (!forwarded || !body.contains("attempt") || !body["attempt"].is_string())
    return context.refuse({.type    = "WorkerError",
                           .message = forwarded ? "the attempt has no name" : forwarded.error().message});
  const std::string name   = body["attempt"].get<std::string>();
  engine::Request& request = forwarded->request;
  if (forwarded->constraint) {
    auto constraint = constraints_.make(*forwarded->constraint);
    if (!constraint) return context.refuse({.type = "WorkerError", .message = constraint.error().message});
    request.constraint = std::move(constraint).value();
    if (request.constraint)
      for (const model::TokenId id : request.resumed) request.constraint->accept_token(id);
  }
  const auto attempt = std::make_shared<Attempt>(
      Attempt{.exchange = context.exchange, .position = static_cast<int64_t>(request.resumed.size())});
  engine::Generator& generator = context.model->generator;
  // Locked until the id is known, lest the attempt ends before.
  std::unique_lock lock(attempts_->mutex);
  const auto submitted = generator.submit(
      std::move(request), [running = attempts_, attempt, name](const engine::RequestOutput& output) {
        if (output.finish) {
          const std::lock_guard ended(running->mutex);
          running->ids.erase(name);
        }
        attempt->told(output);
      });
  if (const auto* refusal = std::get_if<engine::Refusal>(&submitted))
    return context.refuse(worker_refusal(*refusal));
  const auto id        = std::get<engine::RequestId>(submitted);
  attempts_->ids[name] = id;
  lock.unlock();
  context.exchange->on_gone([&generator, id] { generator.cancel(id); });
  context.exchange->begin_stream(200, http::event_stream_headers(), http::event_stream_ping(kWorkerPing));
}

void Worker::cancel(const RequestContext& context) {
  const RouteJson body = RouteJson::parse(context.request.body, nullptr, false);
  if (!body.is_object() || !body.contains("attempt") || !body["attempt"].is_string())
    return context.refuse({.type = "WorkerError", .message = "a cancellation names an attempt"});
  std::optional<engine::RequestId> id;
  {
    const std::lock_guard lock(attempts_->mutex);
    const auto found = attempts_->ids.find(body["attempt"].get<std::string>());
    if (found != attempts_->ids.end()) id = found->second;
  }
  const bool stop = body.value("reason", -1) == static_cast<int>(engine::FinishReason::stop);
  if (id)
    context.model->generator.cancel(*id, stop ? engine::FinishReason::stop : engine::FinishReason::cancelled);
  context.respond({{"found", id.has_value()}});
}

// Answers when every slice is written, or at the first failure.
void Worker::prefill(const RequestContext& context) {
  if (role_ == WorkerRole::decode)
    return context.refuse({.status  = 409,
                           .type    = "WorkerError",
                           .message = "this worker has the role decode: it computes no prompts for others"});
  auto request = parse_prefill(RouteJson::parse(context.request.body, nullptr, false));
  if (!request) return context.refuse({.type = "WorkerError", .message = request.error().message});
  const auto job = jobs_->start(
      std::move(request).value(), host_of(context.request.peer),
      [exchange = context.exchange](const Status& status) {
        if (status) return exchange->respond(200, {{"Content-Type", "application/json"}}, "{}");
        exchange->respond(409, {{"Content-Type", "application/json"}},
                          http::text_of(error_json(
                              {.status = 409, .type = "WorkerError", .message = status.error().message})));
      });
  if (!job)
    return context.refuse(
        {.status  = 429,
         .type    = "WorkerError",
         .message = fmt::format("{} prompts are waiting here already, or the engine makes no "
                                "progress",
                                kMaxPrefillJobs)});
  // Weak, because the exchange owns this function and the job the exchange.
  context.exchange->on_gone([weak = std::weak_ptr(job)] {
    if (const auto running = weak.lock()) running->cancel();
  });
}

}  // namespace fathom::serve
