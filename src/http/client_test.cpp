#include "http/client.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "http/scripted_server.h"

namespace fathom::http {
namespace {

using namespace std::chrono_literals;

std::unique_ptr<Client> client_of(uint16_t port) {
  return std::move(Client::open({.host = "127.0.0.1", .port = port})).value();
}

// Records one response.
struct Recorder {
  std::mutex mutex;
  std::condition_variable changed;
  int status = 0, pieces = 0, ends = 0;
  std::string body, error;

  ResponseSink sink() {
    return {.status =
                [this](int code) {
                  const std::lock_guard lock(mutex);
                  status = code;
                },
            .body =
                [this](auto, std::string_view piece) {
                  const std::lock_guard lock(mutex);
                  body += piece;
                  ++pieces;
                  changed.notify_all();
                },
            .end =
                [this](auto, std::string why) {
                  const std::lock_guard lock(mutex);
                  error = std::move(why);
                  ++ends;
                  changed.notify_all();
                }};
  }
  template <class Condition>
  bool wait(Condition condition) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, 20s, condition);
  }
  bool wait_end() {
    return wait([this] { return ends > 0; });
  }
};

constexpr std::string_view kHello = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

TEST(Client, SendsWhatItIsGivenAndReadsTheAnswer) {
  std::string head, body;
  ScriptedServer server([&](const ScriptedServer::Exchange& e) {
    head = e.head;
    body = e.body;
    return e.send("HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\ngone");
  });
  const auto client = client_of(server.port());
  const auto reply =
      client->fetch({.method  = "POST",
                     .target  = "/v1/x?y=1",
                     .headers = {{"Authorization", "Bearer k"}, {"Content-Type", "text/plain"}},
                     .body    = "question"});
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, 404);
  EXPECT_EQ(reply->body, "gone");
  EXPECT_EQ(body, "question");
  EXPECT_EQ(head.substr(0, head.find('\r')), "POST /v1/x?y=1 HTTP/1.1");
  EXPECT_NE(head.find("Authorization: Bearer k\r\n"), std::string::npos);
  EXPECT_NE(head.find("Host: 127.0.0.1:" + std::to_string(server.port()) + "\r\n"), std::string::npos);
}

TEST(Client, ChunksMayBeCutAnywhere) {
  const std::string text = "data: one\n\ndata: two\n\n";
  for (const size_t cut : {1, 2, 3, 7, 1000}) {
    ScriptedServer server([&](const ScriptedServer::Exchange& e) {
      return e.send(std::string(kStreamHead) + chunk("data: on") + chunk("e\n\ndata: two\n") + chunk("\n") +
                        std::string(kStreamEnd),
                    cut);
    });
    const auto reply = client_of(server.port())->fetch({});
    ASSERT_TRUE(reply) << reply.error().message;
    EXPECT_EQ(reply->body, text) << cut;
  }
}

TEST(Client, ABodyLargerThanAnyBufferArrivesWhole) {
  std::string large(3 << 20, 'x');
  for (size_t i = 0; i < large.size(); i += 997) large[i] = static_cast<char>('a' + i % 26);
  ScriptedServer server([&](const ScriptedServer::Exchange& e) {
    return e.send("HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(large.size()) + "\r\n\r\n" + large);
  });
  const auto reply = client_of(server.port())->fetch({});
  ASSERT_TRUE(reply);
  EXPECT_TRUE(reply->body == large);
}

TEST(Client, HandsOnWhatHasComeBeforeTheAnswerIsWhole) {
  std::atomic<bool> go{false};
  ScriptedServer server([&](const ScriptedServer::Exchange& e) {
    e.send(std::string(kStreamHead) + chunk("first"));
    while (!go) std::this_thread::yield();
    return e.send(chunk("second") + std::string(kStreamEnd));
  });
  const auto client = client_of(server.port());
  Recorder recorder;
  client->start({}, recorder.sink());
  EXPECT_TRUE(recorder.wait([&] { return recorder.body == "first"; }));
  EXPECT_EQ(recorder.ends, 0);
  go = true;
  ASSERT_TRUE(recorder.wait_end());
  EXPECT_EQ(recorder.body, "firstsecond");
  EXPECT_EQ(recorder.error, "");
}

TEST(Client, KeepsItsConnectionAndReplacesOneThatTheServerClosed) {
  ScriptedServer server([](const ScriptedServer::Exchange& e) {
    e.send(kHello);
    return e.connection == 0 &&
           e.head.find("/last") == std::string::npos;  // the last one is closed without a header that says so
  });
  const auto client = client_of(server.port());
  for (const char* target : {"/a", "/b", "/last", "/after"}) {
    const auto reply = client->fetch({.target = target});
    ASSERT_TRUE(reply) << target << ": " << reply.error().message;
    EXPECT_EQ(reply->body, "hello");
  }
  EXPECT_EQ(server.connections(), 2);
}

TEST(Client, AnswersBrokenOffAreErrorsThatSaySo) {
  const struct {
    std::string sent;
    const char* said;
  } kCases[] = {
      {"", "closed the connection without an answer"},
      {"HTTP/1.1 200 O", "closed the connection"},
      {std::string(kStreamHead) + chunk("one"), "in the middle of its answer"},
      {std::string(kStreamHead) + "5\r\nab", "in the middle of its answer"},
      {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nfour", "in the middle of its answer"},
      {std::string(kStreamHead) + "zz\r\n", "chunk"},
      {"SSH-2.0-OpenSSH_9.2\r\n\r\n", "version"},
      {"HTTP/1.1 200 OK\r\nX: " + std::string(100'000, 'x') + "\r\n\r\n", "limit"},
  };
  for (const auto& [sent, said] : kCases) {
    ScriptedServer server([&](const ScriptedServer::Exchange& e) {
      e.send(sent);
      return false;
    });
    const auto client = client_of(server.port());
    Recorder recorder;
    client->start({}, recorder.sink());
    ASSERT_TRUE(recorder.wait_end()) << said;
    EXPECT_NE(recorder.error.find(said), std::string::npos) << recorder.error;
    EXPECT_EQ(recorder.ends, 1);
    EXPECT_EQ(server.connections(), 1) << "an answer that has begun is not asked for again";
  }
}

TEST(Client, ABodyWithoutLengthEndsWithTheConnection) {
  ScriptedServer server([&](const ScriptedServer::Exchange& e) {
    e.send("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nall of it");
    return false;
  });
  const auto reply = client_of(server.port())->fetch({});
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->body, "all of it");
}

TEST(Client, NobodyThereIsAnError) {
  uint16_t port;
  {
    ScriptedServer server([](const auto&) { return false; });
    port = server.port();
  }
  const auto reply = client_of(port)->fetch({});
  ASSERT_FALSE(reply);
  EXPECT_NE(reply.error().message.find("127.0.0.1:" + std::to_string(port)), std::string::npos);
  EXPECT_FALSE(Client::open({.host = "no-such-host.invalid", .port = 80}));
}

TEST(Client, AServerThatIsSilentRunsOutOfTime) {
  for (const bool begins : {false, true}) {
    ScriptedServer server([&](const ScriptedServer::Exchange& e) {
      if (begins) e.send(std::string(kStreamHead) + chunk("data: "));
      e.wait_until_closed();
      return false;
    });
    const auto reply = client_of(server.port())->fetch({.timeout = 100ms});
    ASSERT_FALSE(reply);
    EXPECT_NE(reply.error().message.find("within 0.1 s"), std::string::npos) << reply.error().message;
  }
}

TEST(Client, StopEndsInNobodysCallback) {
  ScriptedServer server([](const ScriptedServer::Exchange& e) {
    e.send(std::string(kStreamHead) + chunk("x"));
    e.wait_until_closed();
    return false;
  });
  auto client = client_of(server.port());
  Recorder recorder;
  for (int i = 0; i < 20; ++i) client->start({}, recorder.sink());
  EXPECT_TRUE(recorder.wait([&] { return recorder.pieces == 20; }));
  client->stop();
  client.reset();
  EXPECT_EQ(recorder.ends, 0);
}

// Many more streams than threads, all open at once: the server answers none before all have asked.
TEST(Client, ManyStreamsAreOpenAtOnce) {
  constexpr int kStreams = 300;
  std::atomic<int> asked{0};
  ScriptedServer server([&](const ScriptedServer::Exchange& e) {
    ++asked;
    while (asked < kStreams) std::this_thread::sleep_for(1ms);
    return e.send(std::string(kStreamHead) + chunk("ok") + std::string(kStreamEnd));
  });
  const auto client = client_of(server.port());
  Recorder recorder;
  for (int i = 0; i < kStreams; ++i) client->start({}, recorder.sink());
  ASSERT_TRUE(recorder.wait([&] { return recorder.ends == kStreams; }));
  EXPECT_EQ(recorder.error, "");
  EXPECT_EQ(recorder.body.size(), 2u * kStreams);
}

TEST(Url, IsReadOrRefused) {
  const auto plain = parse_url("http://example.org");
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->host, "example.org");
  EXPECT_EQ(plain->port, 80);
  EXPECT_EQ(plain->prefix, "");
  const auto full = parse_url("http://[::1]:8000/proxy/a/");
  ASSERT_TRUE(full);
  EXPECT_EQ(full->host, "::1");
  EXPECT_EQ(full->port, 8000);
  EXPECT_EQ(full->prefix, "/proxy/a");
  EXPECT_FALSE(plain->tls || full->tls);
  EXPECT_EQ(to_string(*full), "http://[::1]:8000/proxy/a");
  const auto secure = parse_url("https://example.org/v2");
  ASSERT_TRUE(secure);
  EXPECT_TRUE(secure->tls);
  EXPECT_EQ(secure->port, 443);
  EXPECT_EQ(to_string(*secure), "https://example.org:443/v2");
  EXPECT_EQ(parse_url("https://a:8443")->port, 8443);
  for (const char* bad :
       {"", "localhost:8000", "ftp://a", "//a", "https://", "https:a", "http://", "http://:80",
        "http://a:", "http://a:0", "http://a:65536", "http://a:8x", "http://[::1", "http://[::1]8"})
    EXPECT_FALSE(parse_url(bad)) << bad;
}

}  // namespace
}  // namespace fathom::http
