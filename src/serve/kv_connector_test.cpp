// Engines that share a KV cache pool: the tokens are those of one engine alone, whatever the pool does.
#include "serve/kv_connector.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "http/scripted_server.h"
#include "http/server.h"
#include "model/synthetic_checkpoint.h"
#include "model/tiny_checkpoint.h"
#include "serve/kv_pool_api.h"

namespace fathom::serve {
namespace {

using engine::Engine;
using engine::Request;
using engine::RequestId;
using engine::RequestOutput;
using model::TokenId;

struct Pool {
  explicit Pool(int64_t bytes = 64 << 20, uint16_t port = 0) : store(bytes) {
    http::ServerOptions options = KvPoolApi::server_options();
    options.port                = port;
    auto listening              = http::Server::listen(options, api.handler());
    EXPECT_TRUE(listening) << listening.error().message;
    server = std::move(listening).value();
  }
  KvPool store;
  KvPoolApi api{store, ""};
  std::unique_ptr<http::Server> server;
};

// An engine with its connector.
struct PooledWorker {
  std::unique_ptr<Engine> engine;
  std::unique_ptr<KvConnector> connector;
  std::shared_ptr<std::atomic<int>> warnings = std::make_shared<std::atomic<int>>(0);
};

struct Answer {
  std::vector<TokenId> ids;
  int64_t cached = 0;
  engine::FinishReason finish{};
};

class KvConnectorTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    for (const uint64_t seed : {3, 4}) {
      folders_.push_back(std::make_unique<model::TempFolder>());
      ThreadPool pool(2);
      ASSERT_TRUE(model::make_synthetic_checkpoint({.shape = model::ModelShape::tiny, .seed = seed},
                                                   folders_.back()->path(), pool));
    }
  }
  static void TearDownTestSuite() { folders_.clear(); }

  static std::unique_ptr<Engine> engine(int64_t kv_tokens = 4096, size_t model = 0, int64_t queue = 512) {
    auto opened = Engine::open(folders_[model]->path(), {.threads     = 1,
                                                         .max_context = std::min<int64_t>(kv_tokens, 1024),
                                                         .kv_tokens   = kv_tokens,
                                                         .step_tokens = 64,
                                                         .max_queued_requests = queue});
    EXPECT_TRUE(opened) << opened.error().message;
    return std::move(opened).value();
  }
  static PooledWorker worker(uint16_t port, int64_t kv_tokens = 4096, size_t model = 0,
                             std::chrono::milliseconds deadline = std::chrono::seconds(30),
                             int64_t queue                      = 512) {
    PooledWorker made;
    made.engine  = engine(kv_tokens, model, queue);
    auto started = KvConnector::start(*made.engine, *made.engine,
                                      {.pool       = {.port = port},
                                       .deadline   = deadline,
                                       .inhibition = std::chrono::milliseconds(50),
                                       .warn = [told = made.warnings](const std::string&) { ++*told; }});
    EXPECT_TRUE(started) << started.error().message;
    made.connector = std::move(started).value();
    return made;
  }

  static Answer answer(engine::Generator& generator, std::vector<TokenId> prompt, std::string salt = "") {
    Answer answer;
    std::promise<void> ended;
    const auto submitted =
        generator.submit({.prompt = std::move(prompt), .max_tokens = 8, .cache_salt = std::move(salt)},
                         [&](const RequestOutput& output) {
                           for (const engine::Sampled& token : output.tokens) answer.ids.push_back(token.id);
                           answer.cached = output.cached_tokens;
                           if (!output.finish) return;
                           answer.finish = *output.finish;
                           ended.set_value();
                         });
    EXPECT_TRUE(std::holds_alternative<RequestId>(submitted));
    if (std::holds_alternative<RequestId>(submitted)) ended.get_future().wait();
    return answer;
  }
  static std::vector<TokenId> prompt_of(int64_t length, int salt = 0) {
    std::vector<TokenId> prompt;
    for (int64_t t = 0; t < length; ++t)
      prompt.push_back(static_cast<TokenId>((t * t + 7 * t + salt * (t % 5 + 1)) % 384));
    return prompt;
  }
  static void until(const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!condition()) {
      ASSERT_LT(std::chrono::steady_clock::now(), end);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  static void until_stored(const PooledWorker& worker, int64_t prompts) {
    until([&] { return worker.connector->connector_stats().stored_prompts >= prompts; });
  }

  static std::vector<std::unique_ptr<model::TempFolder>> folders_;
};
std::vector<std::unique_ptr<model::TempFolder>> KvConnectorTest::folders_;

// Around pages, around the least number of tokens worth a load, and several messages' worth.
TEST_F(KvConnectorTest, AWorkerTakesWhatAnotherComputed) {
  const auto alone = engine();
  for (const int64_t length : {1, 15, 16, 17, 64, 65, 80, 81, 97, 330}) {
    Pool pool;
    const PooledWorker first = worker(pool.server->port()), second = worker(pool.server->port());
    const auto prompt     = prompt_of(length);
    const Answer expected = answer(*alone, prompt);
    EXPECT_EQ(answer(*first.connector, prompt).ids, expected.ids);
    if (length >= 16) until_stored(first, 1);
    const Answer got    = answer(*second.connector, prompt);
    const int64_t whole = (length - 1) / 16 * 16;
    EXPECT_EQ(got.ids, expected.ids);
    EXPECT_EQ(got.cached, whole >= 64 ? whole : 0) << "a prompt of " << length;
    EXPECT_EQ(second.connector->connector_stats().loads, whole >= 64 ? 1 : 0);
    EXPECT_EQ(second.engine->stats().received_hit_tokens, got.cached);
    EXPECT_EQ(answer(*second.connector, prompt).ids, expected.ids) << "from its own cache";
    EXPECT_EQ(second.connector->connector_stats().loads, whole >= 64 ? 1 : 0);
  }
}

// The common part is found at each place where prompts part, also where a window ends there.
TEST_F(KvConnectorTest, PromptsThatPartShareTheirBeginning) {
  Pool pool;
  const auto alone         = engine();
  const PooledWorker first = worker(pool.server->port());
  const auto whole         = prompt_of(400);
  (void)answer(*first.connector, whole);
  until_stored(first, 1);
  for (const size_t common : {63, 64, 70, 150, 256, 399}) {
    const PooledWorker second = worker(pool.server->port());
    std::vector<TokenId> prompt(whole.begin(), whole.begin() + static_cast<int64_t>(common));
    for (size_t t = common; t < 410; ++t) prompt.push_back(static_cast<TokenId>((whole[t % 400] + 1) % 384));
    const Answer got = answer(*second.connector, prompt);
    EXPECT_EQ(got.ids, answer(*alone, prompt).ids);
    EXPECT_EQ(got.cached, common >= 64 ? static_cast<int64_t>(common / 16 * 16) : 0);
  }
}

TEST_F(KvConnectorTest, AnEvictedPrefixIsFoundAgain) {
  Pool pool;
  const auto alone         = engine();
  const PooledWorker small = worker(pool.server->port(), 512);
  for (int round = 0; round < 2; ++round)
    for (int p = 0; p < 5; ++p) {
      const auto prompt = prompt_of(300, p + 1);
      const Answer got  = answer(*small.connector, prompt);
      EXPECT_EQ(got.ids, answer(*alone, prompt).ids);
      EXPECT_EQ(got.cached, round == 0 ? 0 : 288) << p;
      if (round == 0) until_stored(small, p + 1);
    }
  EXPECT_GE(small.connector->connector_stats().loads, 4);
}

TEST_F(KvConnectorTest, OtherModelsAndSaltsShareNothing) {
  Pool pool;
  const PooledWorker first = worker(pool.server->port()), other = worker(pool.server->port(), 4096, 1);
  const auto prompt = prompt_of(200);
  const auto theirs = answer(*engine(4096, 1), prompt).ids;
  (void)answer(*first.connector, prompt, "a");
  until_stored(first, 1);
  EXPECT_EQ(answer(*other.connector, prompt, "a").ids, theirs);
  EXPECT_EQ(answer(*other.connector, prompt, "a").ids, theirs);
  EXPECT_EQ(other.connector->connector_stats().loads, 0);
  const PooledWorker third = worker(pool.server->port());
  EXPECT_EQ(answer(*third.connector, prompt, "b").cached, 0);
  EXPECT_EQ(answer(*third.connector, prompt).cached, 0);
  EXPECT_EQ(answer(*third.connector, prompt, "a").cached, 192);
}

// Budgets down to one block, many prompts at once: only the time changes.
TEST_F(KvConnectorTest, SmallPoolsChangeNoAnswer) {
  const auto alone    = engine();
  const int64_t block = alone->kv_block_bytes(engine::kFull) + KvPool::kEntryBytes;
  for (const int64_t blocks : {1, 2, 7, 30}) {
    Pool pool(blocks * block);
    const PooledWorker workers[] = {worker(pool.server->port(), 768), worker(pool.server->port(), 768)};
    std::vector<std::thread> clients;
    for (int c = 0; c < 4; ++c)
      clients.emplace_back([&, c] {
        for (int i = 0; i < 4; ++i) {
          auto prompt = prompt_of(150);
          for (const TokenId id : prompt_of(60, c % 2 + i)) prompt.push_back(id);
          EXPECT_EQ(answer(*workers[(c + i) % 2].connector, prompt).ids, answer(*alone, prompt).ids);
        }
      });
    for (std::thread& client : clients) client.join();
    EXPECT_LE(pool.store.stats().bytes, blocks * block);
  }
  Pool tiny(block - 1);
  const auto refused = KvConnector::start(*alone, *alone, {.pool = {.port = tiny.server->port()}});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("--bytes"), std::string::npos);
}

TEST_F(KvConnectorTest, APoolThatGoesAndComesBack) {
  auto pool              = std::make_unique<Pool>();
  const uint16_t port    = pool->server->port();
  const auto alone       = engine();
  const PooledWorker one = worker(port);
  const auto ask         = [&](int p) {
    const auto prompt = prompt_of(200, p);
    const Answer got  = answer(*one.connector, prompt);
    EXPECT_EQ(got.ids, answer(*alone, prompt).ids);
  };
  ask(1);
  until_stored(one, 1);
  pool.reset();
  ask(2);
  until([&] { return !one.connector->connector_stats().up; });
  ask(3);
  EXPECT_EQ(one.connector->connector_stats().outages, 1);
  EXPECT_EQ(*one.warnings, 1);
  pool = std::make_unique<Pool>(64 << 20, port);
  until([&] { return one.connector->connector_stats().up; });
  EXPECT_EQ(*one.warnings, 2);
  ask(4);
  until_stored(one, 2);
  EXPECT_GT(pool->store.stats().blocks, 0);
}

// A server that plays a pool: it says hello, and then does what the test says.
http::ScriptedServer::Answer playing(std::atomic<int>& hellos,
                                     std::function<bool(const http::ScriptedServer::Exchange&)> rest) {
  return [&hellos, rest = std::move(rest)](const http::ScriptedServer::Exchange& exchange) {
    if (exchange.head.find("/kv/hello") == std::string::npos) return rest(exchange);
    ++hellos;
    const std::string body =
        R"({"protocol": )" + std::to_string(kKvPoolProtocol) + R"(, "seed": 5, "budget": 100000000})";
    return exchange.send("HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
                         body);
  };
}

TEST_F(KvConnectorTest, APoolThatHangsCostsADeadline) {
  std::atomic<int> hellos = 0;
  http::ScriptedServer silent(playing(hellos, [](const auto& exchange) {
    exchange.wait_until_closed();
    return false;
  }));
  const auto alone       = engine();
  const PooledWorker one = worker(silent.port(), 4096, 0, std::chrono::milliseconds(500));
  until([&] { return one.connector->connector_stats().up; });  // on a busy machine hello may come late too
  const int told    = *one.warnings;
  const auto prompt = prompt_of(200);
  EXPECT_EQ(answer(*one.connector, prompt).ids, answer(*alone, prompt).ids);
  EXPECT_EQ(one.connector->connector_stats().failures, 1);
  EXPECT_GT(*one.warnings, told);
  const int asked = hellos;
  until([&] { return hellos > asked; });  // it is asked again in the background
}

// Cancelled while the pool does not answer: it ends at once, and once.
TEST_F(KvConnectorTest, ACancelledLookupEndsAtOnce) {
  std::atomic<int> hellos = 0, lookups = 0;
  http::ScriptedServer silent(playing(hellos, [&](const auto& exchange) {
    ++lookups;
    exchange.wait_until_closed();
    return false;
  }));
  PooledWorker one = worker(silent.port(), 4096, 0, std::chrono::hours(1));
  std::promise<engine::FinishReason> ended;
  const auto submitted = one.connector->submit({.prompt = prompt_of(200)}, [&](const RequestOutput& output) {
    if (output.finish) ended.set_value(*output.finish);
  });
  until([&] { return lookups > 0; });
  EXPECT_EQ(one.connector->stats().waiting, 1);
  one.connector->cancel(std::get<RequestId>(submitted), engine::FinishReason::stop);
  EXPECT_EQ(ended.get_future().get(), engine::FinishReason::stop);
  std::promise<engine::FinishReason> cut;
  (void)one.connector->submit({.prompt = prompt_of(200)}, [&](const RequestOutput& output) {
    if (output.finish) cut.set_value(*output.finish);
  });
  one.connector.reset();
  EXPECT_EQ(cut.get_future().get(), engine::FinishReason::cancelled);
  EXPECT_EQ(one.engine->stats().pages_in_use, 0);
}

// A pool that lies: it has every block, of zeros, with a wrong checksum; or it says too little.
TEST_F(KvConnectorTest, DamagedBlocksAreNotUsed) {
  const auto alone = engine();
  for (const bool cut : {false, true}) {
    std::atomic<int> hellos = 0;
    http::ScriptedServer liar(playing(hellos, [cut](const http::ScriptedServer::Exchange& exchange) {
      std::string_view rest = exchange.body;
      (void)take_frame(rest);
      const auto keys = parse_keys(rest);
      std::string body;
      if (exchange.head.find("/kv/get") == std::string::npos)
        body.assign(keys ? keys->size() : 0, '\1');
      else
        for (const KvPoolKey& key : *keys) append_block(body, key, std::string(4096, '\0'), 1);
      if (cut && body.size() > 100) body.pop_back();
      return exchange.send("HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
                           body);
    }));
    const PooledWorker one = worker(liar.port());
    const auto prompt      = prompt_of(200);
    const Answer got       = answer(*one.connector, prompt);
    EXPECT_EQ(got.ids, answer(*alone, prompt).ids);
    EXPECT_EQ(got.cached, 0);
    EXPECT_EQ(one.connector->connector_stats().failures, cut ? 1 : 0);
    EXPECT_EQ(one.connector->connector_stats().misses, cut ? 0 : 1);
    EXPECT_EQ(one.connector->connector_stats().outages, cut ? 1 : 0);  // a damaged block is no outage
  }
}

TEST_F(KvConnectorTest, AHeldRequestCountsInTheQueue) {
  std::atomic<int> hellos = 0, lookups = 0;
  http::ScriptedServer silent(playing(hellos, [&](const auto& exchange) {
    ++lookups;
    exchange.wait_until_closed();
    return false;
  }));
  PooledWorker one = worker(silent.port(), 4096, 0, std::chrono::hours(1), 1);
  const auto held  = one.connector->submit({.prompt = prompt_of(200)}, [](const RequestOutput&) {});
  ASSERT_TRUE(std::holds_alternative<RequestId>(held));
  for (const int64_t length : {300, 20}) {  // also one too short to be looked up
    const auto refused = one.connector->submit({.prompt = prompt_of(length)}, [](const RequestOutput&) {});
    ASSERT_TRUE(std::holds_alternative<engine::Refusal>(refused)) << length;
    EXPECT_EQ(std::get<engine::Refusal>(refused).reason, engine::Refusal::Reason::queue_full);
  }
  one.connector->cancel(std::get<RequestId>(held), engine::FinishReason::stop);
  until([&] { return one.connector->stats().waiting == 0; });
  EXPECT_TRUE(std::holds_alternative<RequestId>(
      one.connector->submit({.prompt = prompt_of(20)}, [](const RequestOutput&) {})));
}

TEST_F(KvConnectorTest, WhoIsNoPoolIsRefused) {
  const auto alone = engine();
  http::ScriptedServer other([](const auto& exchange) {
    return exchange.send("HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}");
  });
  const auto refused = KvConnector::start(*alone, *alone, {.pool = {.port = other.port()}});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("no KV cache pool"), std::string::npos);
  auto plain = Engine::open(folders_[0]->path(), {.threads = 1, .prefix_cache = false});
  ASSERT_TRUE(plain);
  EXPECT_FALSE(KvConnector::start(**plain, **plain, {.pool = {.port = other.port()}}));
}

}  // namespace
}  // namespace fathom::serve
