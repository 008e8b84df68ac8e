// The router against scripted workers: repeated, missing and late events, refusals, restarts.
#include "serve/request_router.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "http/server.h"
#include "http/sse.h"

namespace fathom::serve {
namespace {

using TestJson = nlohmann::ordered_json;
using engine::FinishReason;
using namespace std::chrono_literals;

// A worker whose answers the test writes.
class ScriptedWorker {
 public:
  using Exchange = std::shared_ptr<http::Exchange>;
  using Generate = std::function<void(const TestJson& request, Exchange exchange)>;

  explicit ScriptedWorker(Generate generate, std::string model = "m", std::string role_name = "decode")
      : role(std::move(role_name)), generate_(std::move(generate)) {
    auto server = http::Server::listen({}, [this, model](http::Request request, Exchange exchange) {
      if (request.path == "/worker/status") {
        const std::lock_guard lock(mutex_);
        if (silent) return held_.push_back(std::move(exchange));
        return exchange->respond(200, {},
                                 TestJson{{"role", role},
                                          {"peers", peers},
                                          {"model", model},
                                          {"incarnation", incarnation},
                                          {"max_context", 1000},
                                          {"stalled_s", stalled_s.load()},
                                          {"utilization", utilization.load()}}
                                     .dump());
      }
      const TestJson body = TestJson::parse(request.body);
      if (request.path == "/worker/role") {
        const std::lock_guard lock(mutex_);
        role  = body["role"];
        peers = body["peers"];
        return exchange->respond(200, {}, "{}");
      }
      if (request.path == "/worker/cancel") {
        const std::lock_guard lock(mutex_);
        cancelled.push_back(body["attempt"]);
        return exchange->respond(200, {}, "{}");
      }
      ++requests;
      generate_(body, std::move(exchange));
    });
    server_     = std::move(server).value();
  }
  http::Url url() const { return {.port = server_->port()}; }

  static void begin(const Exchange& exchange) {
    exchange->begin_stream(200, http::event_stream_headers(), std::nullopt);
  }
  static void tell(const Exchange& exchange, int64_t position, const std::vector<model::TokenId>& ids,
                   std::optional<FinishReason> finish = {}) {
    WorkerOutput output{.position = position, .finish = finish};
    for (const model::TokenId id : ids) output.tokens.push_back({.id = id});
    exchange->write(http::data_event(json_of(output)));
    if (finish) exchange->end();
  }

  void set_incarnation(std::string other) {
    const std::lock_guard lock(mutex_);
    incarnation = std::move(other);
  }
  void set_silent(bool is) {
    const std::lock_guard lock(mutex_);
    silent = is;
    held_.clear();
  }
  // What it was told to be, and whom it asks.
  std::pair<std::string, TestJson> assignment() {
    const std::lock_guard lock(mutex_);
    return {role, peers};
  }
  std::vector<std::string> cancels() {
    const std::lock_guard lock(mutex_);
    return cancelled;
  }

  std::atomic<double> stalled_s = 0, utilization = 0;
  std::atomic<int> requests = 0;

 private:
  std::mutex mutex_;
  std::string role;
  TestJson peers          = TestJson::array();
  std::string incarnation = "first";
  bool silent             = false;
  std::vector<std::string> cancelled;
  std::vector<Exchange> held_;
  Generate generate_;
  std::unique_ptr<http::Server> server_;
};

// What a client is told.
struct Told {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<model::TokenId> ids;
  std::optional<FinishReason> finish;
  std::string error;

  engine::Listener listener() {
    return [this](const engine::RequestOutput& output) {
      const std::lock_guard lock(mutex);
      EXPECT_FALSE(finish) << "told something after the end";
      for (const engine::Sampled& token : output.tokens) ids.push_back(token.id);
      finish = output.finish;
      error  = output.error;
      EXPECT_EQ(output.times != nullptr, finish.has_value());
      changed.notify_all();
    };
  }
  bool wait(const std::function<bool()>& condition) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, 60s, condition);
  }
  bool ended() {
    return wait([&] { return finish.has_value(); });
  }
};

bool eventually(const std::function<bool()>& condition) {
  for (const auto end = std::chrono::steady_clock::now() + 60s; std::chrono::steady_clock::now() < end;
       std::this_thread::sleep_for(2ms))
    if (condition()) return true;
  return false;
}

std::unique_ptr<RequestRouter> router_of(std::vector<http::Url> workers,
                                         std::chrono::milliseconds timeout = 60s) {
  auto router = RequestRouter::start({.workers    = std::move(workers),
                                      .model      = "m",
                                      .vocab_size = 100,
                                      .heartbeat  = 10ms,
                                      .timeout    = timeout,
                                      .patience   = 100ms});
  EXPECT_TRUE(router);
  EXPECT_TRUE((*router)->wait_for_worker(60s));
  return std::move(router).value();
}

engine::Request question(int64_t max_tokens = 8) {
  engine::Request request;
  request.prompt     = {1, 2, 3};
  request.max_tokens = max_tokens;
  return request;
}

using Tokens = std::vector<model::TokenId>;

TEST(RequestRouterTest, TellsEachTokenOnceWhateverIsRepeated) {
  ScriptedWorker worker([](const TestJson&, const ScriptedWorker::Exchange& exchange) {
    ScriptedWorker::begin(exchange);
    ScriptedWorker::tell(exchange, 0, {11, 12});
    ScriptedWorker::tell(exchange, 0, {11, 12});
    ScriptedWorker::tell(exchange, 1, {12, 13});
    ScriptedWorker::tell(exchange, 0, {11});
    ScriptedWorker::tell(exchange, 3, {14}, FinishReason::stop);
  });
  Told told;
  const auto router = router_of({worker.url()});
  ASSERT_TRUE(std::holds_alternative<engine::RequestId>(router->submit(question(), told.listener())));
  ASSERT_TRUE(told.ended());
  EXPECT_EQ(told.ids, (Tokens{11, 12, 13, 14}));
  EXPECT_EQ(told.finish, FinishReason::stop);
  EXPECT_EQ(router->stats().generated_tokens, 4);
  EXPECT_TRUE(router->drain(60s));
}

// A stream that breaks, one that ends early, one with a gap, one that its worker cancels as it ends.
TEST(RequestRouterTest, GoesOnFromTheJournal) {
  std::atomic<int> attempt = 0;
  ScriptedWorker worker([&](const TestJson& request, const ScriptedWorker::Exchange& exchange) {
    const auto resumed = request["resumed"].get<Tokens>();
    const auto at      = static_cast<int64_t>(resumed.size());
    ScriptedWorker::begin(exchange);
    switch (++attempt) {
      case 1:
        EXPECT_EQ(resumed, Tokens());
        ScriptedWorker::tell(exchange, at, {21});
        return exchange->end();
      case 2:
        EXPECT_EQ(resumed, Tokens{21});
        ScriptedWorker::tell(exchange, at, {22});
        return ScriptedWorker::tell(exchange, at + 2, {24});
      case 3:
        EXPECT_EQ(resumed, (Tokens{21, 22}));
        return ScriptedWorker::tell(exchange, at, {}, FinishReason::cancelled);
      default:
        EXPECT_EQ(request["prompt"].get<Tokens>(), (Tokens{1, 2, 3}));
        EXPECT_EQ(request["max_tokens"], 8);
        ScriptedWorker::tell(exchange, at, {23}, FinishReason::length);
    }
  });
  Told told;
  const auto router = router_of({worker.url()});
  (void)router->submit(question(), told.listener());
  ASSERT_TRUE(told.ended());
  EXPECT_EQ(told.ids, (Tokens{21, 22, 23}));
  EXPECT_EQ(told.finish, FinishReason::length);
  EXPECT_EQ(router->status()["replays"], 3);
}

// What a worker says after it was given up is dropped; when it answers again it is told to stop.
TEST(RequestRouterTest, ASilentWorkersRequestsMoveAndItsLateTokensAreDropped) {
  std::mutex mutex;
  std::vector<ScriptedWorker::Exchange> streams;
  const auto keep = [&](const TestJson& request, const ScriptedWorker::Exchange& exchange) {
    ScriptedWorker::begin(exchange);
    const std::lock_guard lock(mutex);
    streams.push_back(exchange);
    if (streams.size() == 1) return ScriptedWorker::tell(exchange, 0, {31});
    EXPECT_EQ(request["resumed"].get<Tokens>(), Tokens{31});
  };
  ScriptedWorker a(keep), b(keep);
  Told told;
  const auto router = router_of({a.url(), b.url()}, 500ms);
  ASSERT_TRUE(eventually([&] { return router->status()["workers"][1]["alive"] == true; }));
  (void)router->submit(question(), told.listener());
  ASSERT_TRUE(told.wait([&] { return told.ids.size() == 1; }));
  ScriptedWorker& first  = a.requests == 1 ? a : b;
  ScriptedWorker& second = a.requests == 1 ? b : a;
  first.set_silent(true);
  const auto stream = [&](size_t i) -> ScriptedWorker::Exchange {
    const std::lock_guard lock(mutex);
    return i < streams.size() ? streams[i] : nullptr;
  };
  ASSERT_TRUE(eventually([&] { return stream(1) != nullptr; }));
  EXPECT_EQ(second.requests, 1);
  ScriptedWorker::tell(stream(0), 1, {99}, FinishReason::stop);
  ASSERT_TRUE(eventually([&] { return router->status()["dropped_events"] == 1; }));
  ScriptedWorker::tell(stream(1), 1, {32}, FinishReason::stop);
  ASSERT_TRUE(told.ended());
  EXPECT_EQ(told.ids, (Tokens{31, 32}));
  first.set_silent(false);
  ASSERT_TRUE(eventually([&] { return first.cancels().size() == 1; }));
}

// It answers about its status, but its engine makes no step: its requests move, at once, and come back when
// it goes on.
TEST(RequestRouterTest, AStalledEnginesRequestsMove) {
  std::mutex mutex;
  std::vector<ScriptedWorker::Exchange> streams;
  const auto keep = [&](const TestJson&, const ScriptedWorker::Exchange& exchange) {
    ScriptedWorker::begin(exchange);
    const std::lock_guard lock(mutex);
    streams.push_back(exchange);
  };
  ScriptedWorker a(keep), b(keep);
  const auto router = router_of({a.url(), b.url()});
  ASSERT_TRUE(eventually([&] { return router->status()["workers"][1]["alive"] == true; }));
  Told told;
  (void)router->submit(question(), told.listener());
  ASSERT_TRUE(eventually([&] { return a.requests + b.requests == 1; }));
  ScriptedWorker& first  = a.requests == 1 ? a : b;
  ScriptedWorker& second = a.requests == 1 ? b : a;
  first.stalled_s        = 59;  // not yet
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(second.requests, 0);
  first.stalled_s = 61;
  ASSERT_TRUE(eventually([&] { return second.requests == 1; }));
  const auto state = [&] { return router->status()["workers"][&first == &a ? 0 : 1]; };
  EXPECT_TRUE(state()["alive"] == true && state()["ready"] == true && state()["progressing"] == false);
  EXPECT_EQ(router->status()["moves"]["stalled"], 1);
  ASSERT_TRUE(eventually([&] { return first.cancels().size() == 1; })) << "the old attempt is cancelled";
  first.stalled_s = 0;
  ASSERT_TRUE(eventually([&] { return state()["progressing"] == true; }));
  ScriptedWorker::tell(streams[1], 0, {35}, FinishReason::stop);
  ASSERT_TRUE(told.ended());
  EXPECT_EQ(told.ids, Tokens{35});
}

// Writes a token to each of its streams in turn, every `period`. A token's id is its position.
class Pace {
 public:
  explicit Pace(std::chrono::milliseconds period)
      : thread_([this, period] {
          for (; !ending_; std::this_thread::sleep_for(period)) write({});
        }) {}
  ~Pace() {
    ending_ = true;
    thread_.join();
  }
  void operator()(const TestJson& request, const ScriptedWorker::Exchange& exchange) {
    ScriptedWorker::begin(exchange);
    const std::lock_guard lock(mutex_);
    streams_.emplace_back(exchange, request["resumed"].size());
  }
  void finish() { write(FinishReason::stop); }

 private:
  void write(std::optional<FinishReason> finish) {
    const std::lock_guard lock(mutex_);
    for (auto& [exchange, position] : streams_) {
      const auto id = static_cast<model::TokenId>(position);
      ScriptedWorker::tell(exchange, static_cast<int64_t>(position++), {id}, finish);
    }
    if (finish) streams_.clear();
  }

  std::mutex mutex_;
  std::vector<std::pair<ScriptedWorker::Exchange, size_t>> streams_;
  std::atomic<bool> ending_ = false;
  std::thread thread_;
};

// As many of its requests move as the retry budget allows, the others stay, and new ones avoid it.
TEST(RequestRouterTest, ASlowWorkerIsEjectedAndTheRetryBudgetHolds) {
  constexpr int kRequests = 12, kBudget = 2;
  Pace crawl(200ms), run(2ms);
  ScriptedWorker slow(std::ref(crawl)), fast(std::ref(run));
  auto started = RequestRouter::start(
      {.workers    = {slow.url(), fast.url()},
       .model      = "m",
       .vocab_size = 100,
       .heartbeat  = 10ms,
       .timeout    = 60s,
       .dynamic    = {},
       .ejection   = {.window = 500ms, .sustained = 100ms, .ejection = 600s, .longest_ejection = 600s},
       .retries    = {.share = 0, .per_second = 0, .most = kBudget}});
  ASSERT_TRUE(started);
  RequestRouter& router = **started;
  ASSERT_TRUE(eventually([&] {
    const TestJson workers = router.status()["workers"];
    return workers[0]["alive"] == true && workers[1]["alive"] == true;
  }));
  std::vector<Told> told(kRequests + 4);
  const auto submit = [&](int i) { (void)router.submit(question(900), told[i].listener()); };
  for (int i = 0; i < kRequests; ++i) submit(i);
  ASSERT_TRUE(eventually([&] { return router.status()["moves"]["slow"] == kBudget; }));
  EXPECT_EQ(router.status()["workers"][0]["ejected"], true);
  const int at_slow = slow.requests;
  EXPECT_GT(at_slow, kBudget);
  for (int i = kRequests; i < kRequests + 4; ++i) submit(i);
  ASSERT_TRUE(eventually([&] { return slow.requests + fast.requests == kRequests + kBudget + 4; }));
  std::this_thread::sleep_for(100ms);  // heartbeats in which more could move
  EXPECT_EQ(slow.requests, at_slow);
  EXPECT_EQ(router.status()["moves"]["slow"], kBudget);
  EXPECT_EQ(router.status()["ejections"], 1);
  crawl.finish();
  run.finish();
  for (Told& one : told) {
    ASSERT_TRUE(one.ended());
    EXPECT_EQ(one.finish, FinishReason::stop);
    for (size_t i = 0; i < one.ids.size(); ++i) ASSERT_EQ(one.ids[i], static_cast<model::TokenId>(i));
  }
  started->reset();
}

// Three workers: the load is all answers, then all prompts. Decode workers always hear whom to ask.
TEST(RequestRouterTest, ThePlannerMovesAWorkerWhereItIsNeeded) {
  const auto answer = [](const TestJson&, const ScriptedWorker::Exchange& exchange) {
    ScriptedWorker::begin(exchange);
    ScriptedWorker::tell(exchange, 0, {1}, FinishReason::stop);
  };
  ScriptedWorker a(answer, "m", "prefill"), b(answer, "m", "prefill"), c(answer, "m", "decode");
  auto started = RequestRouter::start({.workers             = {a.url(), b.url(), c.url()},
                                       .model               = "m",
                                       .vocab_size          = 100,
                                       .heartbeat           = 10ms,
                                       .timeout             = 60s,
                                       .dynamic             = {},
                                       .planner             = true,
                                       .plan                = {},
                                       .adjustment_interval = 20ms,
                                       .ejection            = {}});
  ASSERT_TRUE(started);
  RequestRouter& router = **started;
  const auto urls       = [](std::initializer_list<ScriptedWorker*> workers) {
    TestJson all = TestJson::array();
    for (const ScriptedWorker* worker : workers) all.push_back(http::to_string(worker->url()));
    return all;
  };
  ASSERT_TRUE(eventually([&] { return c.assignment().second == urls({&a, &b}); }));
  EXPECT_EQ(a.assignment(), std::pair(std::string("prefill"), TestJson::array()));
  c.utilization = 1;
  ASSERT_TRUE(
      eventually([&] { return (a.assignment().first == "decode") != (b.assignment().first == "decode"); }));
  ScriptedWorker& moved = a.assignment().first == "decode" ? a : b;
  ScriptedWorker& stays = &moved == &a ? b : a;
  ASSERT_TRUE(eventually([&] {
    return c.assignment().second == urls({&stays}) && moved.assignment().second == urls({&stays});
  }));
  std::this_thread::sleep_for(200ms);  // ten plans
  EXPECT_EQ(stays.assignment().first, "prefill") << "the last prefill worker stays one";
  EXPECT_EQ(router.status()["role_changes"], 1);
  c.utilization     = 0.1;
  stays.utilization = 1;
  ASSERT_TRUE(eventually(
      [&] { return (c.assignment().first == "prefill") != (moved.assignment().first == "prefill"); }));
  EXPECT_EQ(router.status()["role_changes"], 2);
  Told told;  // and it still routes
  (void)router.submit(question(), told.listener());
  ASSERT_TRUE(told.ended());
  EXPECT_EQ(told.ids, Tokens{1});
}

TEST(RequestRouterTest, DynamicRoutingFollowsTheLoadsThatWorkersReport) {
  std::mutex mutex;
  std::vector<TestJson> asked;
  const auto answer = [&](const TestJson& request, const ScriptedWorker::Exchange& exchange) {
    ScriptedWorker::begin(exchange);
    const std::lock_guard lock(mutex);
    asked.push_back(request);
    ScriptedWorker::tell(exchange, 0, {1}, FinishReason::stop);
  };
  ScriptedWorker decode(answer), prefill(answer, "m", "prefill");
  auto started = RequestRouter::start({.workers    = {decode.url(), prefill.url()},
                                       .model      = "m",
                                       .vocab_size = 100,
                                       .heartbeat  = 10ms,
                                       .timeout    = 60s,
                                       .dynamic = DynamicRouting::Options{.max_local_prefill_length = 500}});
  ASSERT_TRUE(started);
  RequestRouter& router = **started;
  const auto reported   = [&](double of_decode, double of_prefill) {
    decode.utilization = of_decode, prefill.utilization = of_prefill;
    return eventually([&] {
      const TestJson workers = router.status()["workers"];
      return workers[0]["utilization"] == of_decode && workers[1]["utilization"] == of_prefill &&
             workers[0]["alive"] == true && workers[1]["alive"] == true;
    });
  };
  int next       = 0;
  const auto ask = [&](size_t tokens) {
    engine::Request request = question();
    request.prompt.assign(tokens, ++next);  // no prompt is cached
    Told told;
    (void)router.submit(std::move(request), told.listener());
    EXPECT_TRUE(told.ended());
    const std::lock_guard lock(mutex);
    return asked.back().at("do_remote_prefill").get<bool>();
  };
  ASSERT_TRUE(reported(0.5, 0.1));
  EXPECT_FALSE(ask(400));
  EXPECT_TRUE(ask(501));
  ASSERT_TRUE(reported(0.9, 0.1));
  EXPECT_TRUE(ask(400));
  EXPECT_FALSE(ask(100));
  ASSERT_TRUE(reported(0.9, 0.95));
  EXPECT_FALSE(ask(501));
  const RouterStats stats = router.router_stats();
  EXPECT_EQ(stats.decisions, (decltype(stats.decisions){2, 0, 1, 1, 1}));
  EXPECT_EQ(prefill.requests, 0) << "answers are written by the decode worker";
}

TEST(RequestRouterTest, ARestartedWorkersRequestsAreAttemptedAnew) {
  std::atomic<int> attempt = 0;
  ScriptedWorker worker([&](const TestJson&, const ScriptedWorker::Exchange& exchange) {
    ScriptedWorker::begin(exchange);
    if (++attempt > 1) ScriptedWorker::tell(exchange, 0, {41}, FinishReason::stop);
  });
  Told told;
  const auto router = router_of({worker.url()});
  (void)router->submit(question(), told.listener());
  ASSERT_TRUE(eventually([&] { return attempt == 1; }));
  worker.set_incarnation("second");
  ASSERT_TRUE(told.ended());
  EXPECT_EQ(told.ids, Tokens{41});
}

TEST(RequestRouterTest, FullQueuesSendARequestElsewhereAndBadOnesEndIt) {
  const auto full = [](const TestJson&, const ScriptedWorker::Exchange& exchange) {
    exchange->respond(429, {}, "{}");
  };
  ScriptedWorker busy(full), free([](const TestJson&, const ScriptedWorker::Exchange&exchange) {
    ScriptedWorker::begin(exchange);
    ScriptedWorker::tell(exchange, 0, {51}, FinishReason::stop);
  });
  {
    const auto router = router_of({busy.url(), free.url()});
    for (int i = 0; i < 4; ++i) {
      Told told;
      (void)router->submit(question(), told.listener());
      ASSERT_TRUE(told.ended());
      EXPECT_EQ(told.finish, FinishReason::stop) << told.error;
    }
  }
  ScriptedWorker bad([](const TestJson&, const ScriptedWorker::Exchange& exchange) {
    exchange->respond(400, {}, R"({"error": {"message": "the prompt is bad"}})");
  });
  Told told;
  const auto router = router_of({bad.url()});
  (void)router->submit(question(), told.listener());
  ASSERT_TRUE(told.ended());
  EXPECT_EQ(told.finish, FinishReason::error);
  EXPECT_EQ(told.error, "the prompt is bad");
}

TEST(RequestRouterTest, ARequestThatNobodyGetsAnywhereWithEnds) {
  ScriptedWorker worker([](const TestJson&, const ScriptedWorker::Exchange& exchange) {
    ScriptedWorker::begin(exchange);
    exchange->end();
  });
  Told told;
  const auto router = router_of({worker.url()});
  (void)router->submit(question(), told.listener());
  ASSERT_TRUE(told.ended());
  EXPECT_EQ(told.finish, FinishReason::error);
  EXPECT_EQ(worker.requests, 6);
}

TEST(RequestRouterTest, WithoutAWorkerRequestsEndWithAnError) {
  Told told;
  std::unique_ptr<RequestRouter> router;
  {
    ScriptedWorker worker([](const TestJson&, const ScriptedWorker::Exchange& exchange) {
      ScriptedWorker::begin(exchange);
      ScriptedWorker::tell(exchange, 0, {61});
    });
    router = router_of({worker.url()});
    (void)router->submit(question(), told.listener());
    ASSERT_TRUE(told.wait([&] { return told.ids.size() == 1; }));
  }
  ASSERT_TRUE(told.ended());
  EXPECT_EQ(told.finish, FinishReason::error);
  EXPECT_EQ(told.ids, Tokens{61});
  const auto refused = router->submit(question(), told.listener());
  ASSERT_TRUE(std::holds_alternative<engine::Refusal>(refused));
  EXPECT_EQ(std::get<engine::Refusal>(refused).reason, engine::Refusal::Reason::stopping);
}

TEST(RequestRouterTest, CancellationReachesTheWorker) {
  ScriptedWorker::Exchange stream;
  std::string attempt;
  std::atomic<bool> begun = false;
  ScriptedWorker worker([&](const TestJson& request, const ScriptedWorker::Exchange& exchange) {
    ScriptedWorker::begin(exchange);
    stream  = exchange;
    attempt = request["attempt"];
    begun   = true;
  });
  Told told;
  const auto router = router_of({worker.url()});
  const auto id     = router->submit(question(), told.listener());
  ASSERT_TRUE(eventually([&] { return begun.load(); }));
  router->cancel(std::get<engine::RequestId>(id), FinishReason::stop);
  ASSERT_TRUE(eventually([&] { return worker.cancels() == std::vector{attempt}; }));
  ScriptedWorker::tell(stream, 0, {}, FinishReason::stop);
  ASSERT_TRUE(told.ended());
  EXPECT_EQ(told.finish, FinishReason::stop);
}

TEST(RequestRouterTest, AWorkerWithAnotherModelIsNotUsed) {
  const auto answer = [](const TestJson&, const ScriptedWorker::Exchange& exchange) {
    ScriptedWorker::begin(exchange);
    ScriptedWorker::tell(exchange, 0, {71}, FinishReason::stop);
  };
  ScriptedWorker other(answer, "another"), ours(answer);
  const auto router = router_of({other.url(), ours.url()});
  Told told;
  (void)router->submit(question(), told.listener());
  ASSERT_TRUE(told.ended());
  EXPECT_EQ(other.requests, 0);
  EXPECT_TRUE(
      eventually([&] { return router->status()["workers"][0]["refusal"] == "it has another model"; }));
}

TEST(WorkerProtocolTest, RequestsAndOutputsComeBackAsTheyWere) {
  engine::Request request;
  request.prompt     = {5, 6};
  request.resumed    = {7};
  request.max_tokens = 9;
  request.min_tokens = 2;
  request.stop_ids   = {3, 4};
  request.priority   = -2;
  request.cache_salt = "salt \xc3\xa9";
  request.sampling   = {.temperature        = 0.7,
                        .top_k              = 5,
                        .top_p              = 0.1 + 0.2,
                        .min_p              = 1e-300,
                        .repetition_penalty = 1.1,
                        .presence_penalty   = -1,
                        .frequency_penalty  = 2,
                        .logit_bias         = {{3, -1.5f}, {9, 0.1f}},
                        .seed               = ~uint64_t{0},
                        .logprobs           = 3};
  const ConstraintRequest asked{.kind                 = ConstraintRequest::Kind::tool_call,
                                .schema               = "{}",
                                .tools                = {{.name = "f", .parameters = "{\"a\":1}"}},
                                .allow_reasoning      = false,
                                .max_reasoning_tokens = 12,
                                .max_tokens           = 99};
  request.constraint = std::make_unique<ForwardedConstraint>(asked);
  const auto text    = http::text_of(json_of(request));
  const auto back    = parse_request(TestJson::parse(text));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->request.sampling.top_p, request.sampling.top_p);
  EXPECT_EQ(back->request.sampling.seed, request.sampling.seed);
  EXPECT_EQ(back->request.sampling.logit_bias, request.sampling.logit_bias);
  ASSERT_TRUE(back->constraint);
  engine::Request again = std::move(const_cast<engine::Request&>(back->request));
  again.constraint      = std::make_unique<ForwardedConstraint>(*back->constraint);
  EXPECT_EQ(http::text_of(json_of(again)), text);

  const WorkerOutput output{.position = 4,
                            .tokens = {{.id = 8, .logprob = -0.1 - 0.2, .top = {{8, -0.3}, {1, -INFINITY}}}},
                            .finish = FinishReason::length,
                            .cached_tokens = 16};
  const auto told = parse_output(http::text_of(json_of(output)));
  ASSERT_TRUE(told) << told.error().message;
  EXPECT_EQ(told->tokens[0].logprob, output.tokens[0].logprob);
  EXPECT_EQ(told->tokens[0].top[1].logprob, -INFINITY);
  EXPECT_EQ(told->finish, FinishReason::length);
  EXPECT_FALSE(parse_output("{}"));
  EXPECT_FALSE(parse_output("{\"position\": "));
  EXPECT_FALSE(parse_request(TestJson::parse(R"({"prompt": "text"})")));
  EXPECT_FALSE(parse_prefill(TestJson(1)));
}

}  // namespace
}  // namespace fathom::serve
