// The store against a plain model of an LRU cache with a budget; the protocol with messages that are cut,
// damaged, foreign or for a former pool.
#include "serve/kv_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>
#include <vector>

#include "http/fake_exchange.h"
#include "serve/kv_pool_api.h"
#include "serve/kv_pool_protocol.h"

namespace fathom::serve {
namespace {

KvPoolKey key_of(uint64_t i) { return {.low = i, .high = i * 7}; }
PooledBlock block_of(uint64_t i, size_t bytes) {
  std::string text(bytes, static_cast<char>('a' + i % 26));
  const uint64_t checksum = checksum_of(key_of(i), text);
  return {.bytes = std::move(text), .checksum = checksum};
}

// A list of names and sizes, most recently used first.
struct PlainLru {
  int64_t budget;
  std::vector<std::pair<uint64_t, int64_t>> entries = {};

  int64_t used() const {
    int64_t sum = 0;
    for (const auto& [name, bytes] : entries) sum += bytes;
    return sum;
  }
  auto find(uint64_t name) {
    return std::find_if(entries.begin(), entries.end(), [&](const auto& e) { return e.first == name; });
  }
  bool touch(uint64_t name) {
    const auto found = find(name);
    if (found == entries.end()) return false;
    std::rotate(entries.begin(), found, found + 1);
    return true;
  }
  bool put(uint64_t name, int64_t bytes) {
    if (bytes > budget) return false;
    if (touch(name)) return true;
    while (used() + bytes > budget) entries.pop_back();
    entries.insert(entries.begin(), {name, bytes});
    return true;
  }
};

TEST(KvPool, IsAPlainLruCacheWithinItsBudget) {
  for (const int64_t budget : {0, 1, 161, 200, 1000, 5000, 100'000}) {
    std::mt19937_64 random(static_cast<uint64_t>(budget));
    const auto below = [&](uint64_t n) { return random() % n; };
    KvPool pool(budget);
    PlainLru plain{.budget = budget};
    for (int step = 0; step < 3000; ++step) {
      const uint64_t name = below(60);
      if (below(3) > 0) {
        const size_t bytes = static_cast<size_t>(1 + name * 13 % 400);  // a name always has the same block
        EXPECT_EQ(pool.put(key_of(name), block_of(name, bytes)),
                  plain.put(name, static_cast<int64_t>(bytes) + KvPool::kEntryBytes));
      } else if (below(2) == 0) {
        std::vector<KvPoolKey> keys;
        std::vector<bool> expected;
        for (uint64_t i = 0; i < below(6); ++i) keys.push_back(key_of((name + i) % 60));
        for (size_t i = keys.size(); i-- > 0;)  // the first one last
          expected.insert(expected.begin(), plain.touch(keys[i].low));
        EXPECT_EQ(pool.match(keys, false), expected);
      } else {
        const auto block = pool.get(key_of(name));
        EXPECT_EQ(block != nullptr, plain.find(name) != plain.entries.end());
        if (block) {
          EXPECT_EQ(block->checksum, checksum_of(key_of(name), block->bytes));
        }
      }
      const KvPoolStats stats = pool.stats();
      ASSERT_EQ(stats.bytes, plain.used());
      ASSERT_LE(stats.bytes, budget);
      ASSERT_EQ(stats.blocks, std::ssize(plain.entries));
      ASSERT_EQ(stats.stored, stats.blocks + stats.evicted);
    }
    EXPECT_EQ(pool.stats().hits + pool.stats().misses, 0) << "nothing was looked up for a prompt";
  }
}

TEST(KvPool, ABlockThatIsReadOutlivesItsEviction) {
  KvPool pool(KvPool::kEntryBytes + 100);
  EXPECT_TRUE(pool.put(key_of(1), block_of(1, 100)));
  const auto held = pool.get(key_of(1));
  EXPECT_TRUE(pool.put(key_of(2), block_of(2, 100)));
  EXPECT_EQ(pool.get(key_of(1)), nullptr);
  EXPECT_EQ(held->bytes, block_of(1, 100).bytes);
  EXPECT_FALSE(pool.put(key_of(3), block_of(3, 101)));
  EXPECT_NE(pool.get(key_of(2)), nullptr) << "what does not fit evicts nothing";
}

TEST(KvPool, IsUsedByManyThreads) {
  KvPool pool(40 * (KvPool::kEntryBytes + 64));
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t)
    threads.emplace_back([&pool, t] {
      for (uint64_t i = 0; i < 2000; ++i) {
        const uint64_t name = (i * (t + 1)) % 97;
        pool.put(key_of(name), block_of(name, 64));
        (void)pool.match(std::vector{key_of(name), key_of(name + 1)}, true);
        if (const auto block = pool.get(key_of(name))) {
          EXPECT_EQ(block->checksum, checksum_of(key_of(name), block->bytes));
        }
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(pool.stats().bytes, pool.stats().budget);
  EXPECT_EQ(pool.stats().hits + pool.stats().misses, 4 * 2000 * 2);
}

// The routes, with exchanges in place of connections.
class KvPoolApiTest : public testing::Test {
 protected:
  struct Answer {
    int status;
    std::string text;
    std::string message() const {
      return nlohmann::json::parse(text).at("error").at("message").get<std::string>();
    }
  };
  Answer ask(const std::string& method, const std::string& path, std::string body = "",
             const std::string& key = "secret") {
    const auto exchange = std::make_shared<http::FakeExchange>();
    api.handler()({.method  = method,
                   .path    = path,
                   .headers = {{"Authorization", "Bearer " + key}},
                   .body    = std::move(body)},
                  exchange);
    EXPECT_FALSE(exchange->misuse);
    return {exchange->status, exchange->text};
  }
  uint64_t seed() { return nlohmann::json::parse(ask("GET", "/kv/hello").text).at("seed").get<uint64_t>(); }
  std::string put_message(std::vector<uint64_t> names) {
    std::string message = block_message(seed());
    for (const uint64_t name : names) {
      const PooledBlock block = block_of(name, 50);
      append_block(message, key_of(name), block.bytes, block.checksum);
    }
    return message;
  }
  std::vector<bool> here(std::vector<uint64_t> names, const std::string& path = "/kv/contains") {
    std::vector<KvPoolKey> keys;
    for (const uint64_t name : names) keys.push_back(key_of(name));
    const std::string answer = ask("POST", path, keys_message(seed(), keys)).text;
    return {answer.begin(), answer.end()};
  }

  KvPool pool{1 << 20};
  KvPoolApi api{pool, "secret"};
};

TEST_F(KvPoolApiTest, BlocksComeBackAsTheyWere) {
  EXPECT_EQ(ask("POST", "/kv/put", put_message({1, 2, 3})).status, 200);
  EXPECT_EQ(here({1, 9, 3}, "/kv/match"), (std::vector{true, false, true}));
  EXPECT_EQ(pool.stats().hits, 2);
  EXPECT_EQ(pool.stats().misses, 1);
  const Answer got =
      ask("POST", "/kv/get", keys_message(seed(), std::vector{key_of(3), key_of(9), key_of(1)}));
  const auto blocks = parse_blocks(got.text);
  ASSERT_TRUE(blocks);
  ASSERT_EQ(blocks->size(), 3u);
  EXPECT_EQ((*blocks)[0].bytes, block_of(3, 50).bytes);
  EXPECT_EQ((*blocks)[0].checksum, block_of(3, 50).checksum);
  EXPECT_TRUE((*blocks)[1].bytes.empty());
  EXPECT_EQ((*blocks)[2].bytes, block_of(1, 50).bytes);
  EXPECT_NE(ask("GET", "/metrics").text.find("fathom_kv_pool_hits_total 2"), std::string::npos);
}

// A connection that breaks in the middle of a body hands no request over; here is a body that says too
// little.
TEST_F(KvPoolApiTest, NoPartOfACutOrDamagedMessageIsServed) {
  const std::string whole = put_message({1, 2});
  const size_t one        = sizeof(KvPoolFrame) + sizeof(KvBlockHead) + 50;
  for (size_t cut = 0; cut < whole.size(); ++cut) {
    if (cut == sizeof(KvPoolFrame) || cut == one) continue;  // whole messages of fewer blocks
    EXPECT_EQ(ask("POST", "/kv/put", whole.substr(0, cut)).status, 400) << cut;
  }
  EXPECT_EQ(here({1, 2}), (std::vector{false, false}));
  for (size_t i = sizeof(KvPoolFrame); i < one; ++i) {  // each byte of the first block's name, head and bytes
    std::string damaged = whole.substr(0, one);
    damaged[i]          = static_cast<char>(damaged[i] ^ 1);
    EXPECT_EQ(ask("POST", "/kv/put", damaged).status, 400) << i;
  }
  EXPECT_EQ(pool.stats().blocks, 0);
  EXPECT_GE(pool.stats().damaged, 50);
}

// Memory that failed: what is here is not what was put.
TEST_F(KvPoolApiTest, ABlockThatWentBadIsGoneAndMayComeAgain) {
  ASSERT_EQ(ask("POST", "/kv/put", put_message({1, 2})).status, 200);
  PooledBlock bad = *pool.get(key_of(1));
  pool.erase_damaged(key_of(1));
  bad.bytes[7] ^= 1;
  ASSERT_TRUE(pool.put(key_of(1), bad));
  const Answer got  = ask("POST", "/kv/get", keys_message(seed(), std::vector{key_of(1), key_of(2)}));
  const auto blocks = parse_blocks(got.text);
  ASSERT_TRUE(blocks) << got.text;
  EXPECT_TRUE((*blocks)[0].bytes.empty());
  EXPECT_EQ((*blocks)[1].bytes, block_of(2, 50).bytes);
  EXPECT_EQ(here({1, 2}), (std::vector{false, true}));
  ASSERT_EQ(ask("POST", "/kv/put", put_message({1})).status, 200);
  EXPECT_EQ(here({1, 2}), (std::vector{true, true}));
}

TEST_F(KvPoolApiTest, ForeignersAreToldWhy) {
  EXPECT_EQ(ask("GET", "/kv/hello", "", "guess").status, 401);
  EXPECT_EQ(ask("POST", "/kv/put", put_message({1}), "").status, 401);
  EXPECT_EQ(ask("GET", "/health", "", "").status, 200);
  EXPECT_EQ(ask("GET", "/v1/models").status, 404);
  EXPECT_EQ(ask("GET", "/kv/put").status, 404);
  std::string foreign = put_message({1});
  foreign[0] ^= 1;
  EXPECT_NE(ask("POST", "/kv/put", foreign).message().find("version"), std::string::npos);
  EXPECT_EQ(ask("POST", "/kv/match", "{}").status, 400);
  KvPool restarted(1 << 20);
  const KvPoolApi other(restarted, "");
  const auto exchange = std::make_shared<http::FakeExchange>();
  other.handler()({.method = "POST", .path = "/kv/put", .body = put_message({1})}, exchange);
  EXPECT_EQ(exchange->status, 409);
  EXPECT_EQ(restarted.stats().blocks, 0);
}

TEST_F(KvPoolApiTest, ABlockLargerThanThePoolIsRefused) {
  const PooledBlock block = block_of(1, 2 << 20);
  std::string message     = block_message(seed());
  append_block(message, key_of(1), block.bytes, block.checksum);
  const Answer answer = ask("POST", "/kv/put", message);
  EXPECT_EQ(answer.status, 413);
  EXPECT_NE(answer.message().find("--bytes"), std::string::npos);
}

TEST(KvPoolKeys, DependOnAllThatKeysAndValuesDependOn) {
  std::vector<model::TokenId> tokens(50);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<model::TokenId>(i);
  const engine::KvKind both[] = {engine::kFull, engine::kWindow};
  const auto keys = [&](std::string_view layout, std::string_view salt, uint64_t seed, int64_t page = 16) {
    return kv_pool_keys(tokens, page, both, layout, salt, seed);
  };
  const auto base = keys("model 16", "", 1);
  ASSERT_EQ(base.size(), 6u) << "three full blocks of two kinds";
  EXPECT_EQ(base, keys("model 16", "", 1));
  for (const auto& other : {keys("model 17", "", 1), keys("model 16", "salt", 1), keys("model 16", "", 2),
                            keys("model 1", "6", 1), keys("model", "16", 1)})
    for (size_t i = 0; i < base.size(); ++i) EXPECT_FALSE(base[i] == other[i]);
  for (size_t i = 0; i < base.size(); ++i)
    for (size_t j = 0; j < i; ++j) EXPECT_FALSE(base[i] == base[j]);
  // A block's name covers the tokens before it, and none behind.
  tokens[20]         = 7;
  const auto changed = keys("model 16", "", 1);
  for (size_t i = 0; i < base.size(); ++i) EXPECT_EQ(base[i] == changed[i], i < 2) << i;
  EXPECT_TRUE(kv_pool_keys(std::span(tokens).first(15), 16, both, "", "", 1).empty());
}

}  // namespace
}  // namespace fathom::serve
