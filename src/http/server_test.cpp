#include "http/server.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "http/raw_client.h"
#include "http/server_fixture.h"

namespace fathom::http {
namespace {

using namespace std::chrono_literals;

TEST_F(ServerTest, AnswersOneAfterTheOtherOnOneConnection) {
  serve();
  RawClient client(*server_);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(client.send(post_request("/echo?q=" + std::to_string(i), "body")));
    const RawReply reply = client.reply();
    EXPECT_EQ(reply.status, 200);
    EXPECT_EQ(reply.body, fmt::format("POST /echo q={} body", i));
    EXPECT_EQ(reply.headers.at("Content-Type"), "text/plain");
    EXPECT_FALSE(reply.headers.contains("Connection"));
    EXPECT_TRUE(reply.headers.at("Date").ends_with(" GMT"));
  }
  EXPECT_EQ(server_->stats().accepted, 1);
  EXPECT_EQ(server_->stats().connections, 1);
  client.close();
  EXPECT_TRUE(all_closed());
}

TEST_F(ServerTest, HandsOnHeadersAndPeer) {
  std::mutex mutex;
  Request seen;
  auto server = Server::listen({}, [&](Request request, const ExchangePtr& exchange) {
    {
      const std::lock_guard lock(mutex);
      seen = std::move(request);
    }
    exchange->respond(200, {{"X-Echo", "a\r\nX-Injected: b"}}, "");
  });
  ASSERT_TRUE(server);
  RawClient client(**server);
  client.send(get_request("/%41", "Authorization: Bearer  x \r\nx-one: 1\r\nX-One: 2\r\n"));
  const RawReply reply = client.reply();
  EXPECT_EQ(reply.headers.at("X-Echo"), "a  X-Injected: b");
  const std::lock_guard lock(mutex);
  EXPECT_EQ(seen.path, "/A");
  EXPECT_EQ(seen.header("authorization"), "Bearer  x");
  EXPECT_EQ(seen.headers.size(), 4u);
  EXPECT_TRUE(seen.peer.starts_with("127.0.0.1:")) << seen.peer;
}

TEST_F(ServerTest, BytesMayComeOneAtATime) {
  serve();
  const std::string chunked = "POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: Chunked\r\n\r\n";
  const std::pair<std::string, std::string> cases[] = {
      {get_request("/echo?a"), "GET /echo a "},
      {post_request("/echo", "hello"), "POST /echo  hello"},
      {chunked + "0\r\n\r\n", "POST /echo  "},
      {chunked + "5;name=\"v\"\r\nhello\r\n00a\r\n, chunked \r\n0\r\nX-Trailer: 1\r\n\r\n",
       "POST /echo  hello, chunked "},
      {chunked + "1\r\na\r\n1\r\nb\r\n0;x\r\n\r\n", "POST /echo  ab"},
  };
  for (const size_t step : {1, 2, 3, 4, 5, 7, 1000}) {
    RawClient client(*server_);
    for (const auto& [request, expected] : cases) {
      for (size_t at = 0; at < request.size(); at += step) {
        ASSERT_TRUE(client.send(request.substr(at, step)));
        // Parses what has arrived so far.
        if (step < 6) std::this_thread::sleep_for(100us);
      }
      const RawReply reply = client.reply();
      EXPECT_EQ(reply.status, 200) << reply.body;
      EXPECT_EQ(reply.body, expected) << step;
    }
  }
}

TEST_F(ServerTest, PipelinedRequestsAreAnsweredInOrderOneAtATime) {
  serve();
  RawClient client(*server_);
  std::string requests;
  for (int i = 0; i < 5; ++i) requests += get_request("/hold?" + std::to_string(i));
  client.send(requests);
  for (int i = 0; i < 5; ++i) {
    const auto exchange = next();
    ASSERT_TRUE(exchange);
    EXPECT_EQ(handled_, i + 1);
    std::thread([&] { exchange->respond(200, {}, std::to_string(i)); }).join();
    EXPECT_EQ(client.reply().body, std::to_string(i));
    exchange->respond(200, {}, "again");  // does nothing
  }
  EXPECT_EQ(gone_, 0);
}

TEST_F(ServerTest, ManyMorePipelinedBytesThanAreReadAhead) {
  serve();
  RawClient client(*server_);
  const std::string body(3000, 'x');
  std::thread sender([&] {
    for (int i = 0; i < 300; ++i) client.send(post_request("/echo?" + std::to_string(i), body));
  });
  int right = 0;
  for (int i = 0; i < 300; ++i) right += client.reply().body == fmt::format("POST /echo {} {}", i, body);
  sender.join();
  EXPECT_EQ(right, 300);
}

TEST_F(ServerTest, HeadAnd204HaveNoBody) {
  serve();
  RawClient client(*server_);
  client.send("HEAD /echo HTTP/1.1\r\nHost: t\r\n\r\n");
  EXPECT_EQ(client.reply(true).headers.at("Content-Length"), "12");
  client.send("HEAD /stream HTTP/1.1\r\nHost: t\r\n\r\n");
  auto exchange = next();
  exchange->write("unseen");
  exchange->end();
  EXPECT_EQ(client.reply(true).headers.at("Transfer-Encoding"), "chunked");
  client.send(get_request("/hold"));
  next()->respond(204, {}, "");
  const RawReply reply = client.reply();
  EXPECT_EQ(reply.status, 204);
  EXPECT_FALSE(reply.headers.contains("Content-Length"));
  client.send(get_request("/echo"));
  EXPECT_EQ(client.reply().body, "GET /echo  ");
}

TEST_F(ServerTest, ClosesWhenAskedTo) {
  serve();
  RawClient client(*server_);
  client.send(get_request("/echo", "Connection: close\r\n") + get_request("/echo"));
  const RawReply reply = client.reply();
  EXPECT_EQ(reply.body, "GET /echo  ");
  EXPECT_EQ(reply.headers.at("Connection"), "close");
  EXPECT_TRUE(client.ended());
  EXPECT_EQ(client.rest(), "");
  EXPECT_EQ(handled_, 1);
}

TEST_F(ServerTest, SpeaksHttp10) {
  serve();
  RawClient closing(*server_);
  closing.send("GET /echo HTTP/1.0\r\n\r\n");
  EXPECT_EQ(closing.reply().headers.at("Connection"), "close");
  EXPECT_TRUE(closing.ended());

  RawClient client(*server_);
  client.send("GET /echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_EQ(client.reply().headers.at("Connection"), "keep-alive");
  client.send("GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  const auto exchange = next();
  exchange->write("one, ");
  exchange->write("two");
  exchange->end();
  const RawReply reply = client.reply();
  EXPECT_FALSE(reply.headers.contains("Transfer-Encoding"));
  EXPECT_EQ(reply.headers.at("Connection"), "close");
  EXPECT_EQ(reply.body, "one, two");
}

TEST_F(ServerTest, SaysContinueWhenTheBodyMayCome) {
  serve({.max_body_bytes = 100});
  const auto head = [](int length) {
    return fmt::format("POST /echo HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: {}\r\n\r\n",
                       length);
  };
  RawClient client(*server_);
  client.send(head(2));
  EXPECT_EQ(client.until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("ab");
  EXPECT_EQ(client.reply().body, "POST /echo  ab");
  client.send(head(101));
  EXPECT_EQ(refused_with(client), 413);
}

TEST_F(ServerTest, StreamsArriveAsTheyAreWritten) {
  serve();
  RawClient client(*server_);
  client.send(get_request("/stream"));
  const auto exchange = next();
  EXPECT_EQ(client.head().headers.at("Transfer-Encoding"), "chunked");
  for (int i = 0; i < 20; ++i) {
    exchange->write(std::to_string(i));
    exchange->write("");  // not the end
    EXPECT_EQ(client.chunk(), std::to_string(i));
  }
  const std::string large(100'000, 'x');
  exchange->post([&] {
    for (int i = 0; i < 3; ++i) exchange->write(std::to_string(i));
    exchange->write(large);
    exchange->end();
    exchange->write("after the end");
  });
  for (int i = 0; i < 3; ++i) EXPECT_EQ(client.chunk(), std::to_string(i));
  EXPECT_EQ(client.chunk(), large);
  EXPECT_EQ(client.chunk(), "");
  client.send(get_request("/echo"));
  EXPECT_EQ(client.reply().body, "GET /echo  ");
  EXPECT_EQ(gone_, 0);
}

TEST_F(ServerTest, AnswersMayBeLargerThanWhatMayWaitOfAStream) {
  serve({.max_unsent_bytes = 1000});
  RawClient client(*server_);
  const std::string body(20'000'000, 'x');
  client.send(get_request("/hold"));
  next()->respond(200, {}, body);
  EXPECT_EQ(client.reply().body.size(), body.size());
}

TEST_F(ServerTest, WhoGivesNoAnswerGivesA500) {
  serve();
  for (const char* target : {"/drop", "/throw"}) {
    RawClient client(*server_);
    client.send(get_request(target));
    EXPECT_EQ(refused_with(client), 500) << target;
  }
  RawClient held(*server_);
  held.send(get_request("/hold"));
  next().reset();
  EXPECT_EQ(refused_with(held), 500);

  RawClient stream(*server_);
  stream.send(get_request("/stream"));
  auto exchange = next();
  exchange->write("a piece");
  exchange.reset();
  const RawReply reply = stream.reply();
  EXPECT_EQ(reply.body, "a piece");
  EXPECT_FALSE(reply.whole);

  RawClient posted(*server_);
  posted.send(get_request("/hold"));
  exchange = next();
  exchange->post([] { throw std::runtime_error("in posted work"); });
  EXPECT_EQ(refused_with(posted), 500);
  EXPECT_EQ(gone_, 0);
}

TEST_F(ServerTest, WorkRunsInOrderOneAtATime) {
  serve();
  RawClient client(*server_);
  client.send(get_request("/hold"));
  const auto exchange = next();
  std::vector<int> order;  // unguarded, so that ThreadSanitizer reports concurrent work
  std::atomic<bool> done = false;
  for (int i = 0; i < 1000; ++i) exchange->post([&, i] { order.push_back(i); });
  exchange->post([&] { done = true; });
  ASSERT_TRUE(eventually([&] { return done.load(); }));
  ASSERT_EQ(order.size(), 1000u);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(order[static_cast<size_t>(i)], i);
}

TEST_F(ServerTest, FiveHundredStreamsAtOnce) {
  constexpr int kStreams = 500, kPieces = 20;
  serve();
  std::vector<RawClient> clients;
  std::vector<ExchangePtr> exchanges;
  for (int i = 0; i < kStreams; ++i) {
    clients.emplace_back(*server_);
    clients.back().send(get_request("/stream"));
    exchanges.push_back(next());  // one after the other, so that exchange i belongs to client i
    ASSERT_TRUE(exchanges.back());
  }
  EXPECT_EQ(server_->stats().connections, kStreams);
  std::vector<std::thread> writers;
  for (int writer = 0; writer < 2; ++writer)
    writers.emplace_back([&, writer] {
      for (int piece = 0; piece < kPieces; ++piece)
        for (int i = writer; i < kStreams; i += 2)
          exchanges[static_cast<size_t>(i)]->write(fmt::format("{}:{} ", i, piece));
      for (int i = writer; i < kStreams; i += 2) exchanges[static_cast<size_t>(i)]->end();
    });
  int right = 0;
  for (int i = 0; i < kStreams; ++i) {
    std::string expected;
    for (int piece = 0; piece < kPieces; ++piece) expected += fmt::format("{}:{} ", i, piece);
    const RawReply reply = clients[static_cast<size_t>(i)].reply();
    right += reply.whole && reply.body == expected;
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(right, kStreams);
  EXPECT_EQ(gone_, 0);
  clients.clear();
  EXPECT_TRUE(all_closed());
}

TEST_F(ServerTest, StopsAfterThePresentAnswers) {
  serve();
  RawClient idle(*server_), streaming(*server_), holding(*server_);
  idle.send(get_request("/echo"));
  EXPECT_EQ(idle.reply().status, 200);
  streaming.send(get_request("/stream") + get_request("/echo"));
  const auto stream = next();
  holding.send(get_request("/hold") + get_request("/echo"));
  const auto held = next();
  server_->stop_listening();
  EXPECT_TRUE(idle.ended());
  EXPECT_TRUE(eventually([&] { return !RawClient(*server_).connected(); }));
  EXPECT_FALSE(server_->wait_until_idle(1ms));

  stream->write("still here");
  stream->end();
  EXPECT_EQ(streaming.reply().body, "still here");
  EXPECT_TRUE(streaming.ended());
  held->respond(200, {}, "so am I");
  const RawReply reply = holding.reply();
  EXPECT_EQ(reply.body, "so am I");
  EXPECT_EQ(reply.headers.at("Connection"), "close");
  EXPECT_TRUE(holding.ended());
  streaming.close();
  holding.close();
  EXPECT_TRUE(server_->wait_until_idle(kDeadline));
  EXPECT_EQ(handled_, 3);
}

TEST_F(ServerTest, EndsWhileStreaming) {
  serve();
  std::vector<RawClient> clients;
  std::vector<ExchangePtr> exchanges;
  for (int i = 0; i < 20; ++i) {
    clients.emplace_back(*server_);
    clients.back().send(get_request(i % 2 == 0 ? "/stream" : "/hold"));
    exchanges.push_back(next());
  }
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    while (!stop)
      for (const ExchangePtr& exchange : exchanges) {
        exchange->write("piece ");
        exchange->post([exchange] { exchange->write("posted "); });
      }
  });
  EXPECT_EQ(clients[0].head().status, 200);
  EXPECT_TRUE(clients[0].chunk());
  server_.reset();
  EXPECT_EQ(gone_, 20);
  for (RawClient& client : clients) EXPECT_TRUE(client.ended());
  stop = true;
  writer.join();

  std::atomic<bool> worked = false;
  const auto captured      = std::make_shared<int>();
  for (const ExchangePtr& exchange : exchanges) {
    exchange->respond(200, {}, "");
    exchange->begin_stream(200, {}, {});
    exchange->on_gone([] {});
    exchange->end();
    exchange->post([&worked, captured] { worked = true; });
  }
  exchanges.clear();
  EXPECT_FALSE(worked);
  EXPECT_EQ(captured.use_count(), 1);  // and the posted work is destroyed
}

TEST_F(ServerTest, SaysWhoseThePortIs) {
  serve();
  const Handler nobody = [](Request, const ExchangePtr&) {};
  const auto again     = Server::listen({.port = server_->port()}, nobody);
  ASSERT_FALSE(again);
  EXPECT_NE(again.error().message.find(fmt::format("127.0.0.1:{}", server_->port())), std::string::npos);
  EXPECT_NE(again.error().message.find("choose another port"), std::string::npos);
  const auto nowhere = Server::listen({.host = "192.0.2.1"}, nobody);
  ASSERT_FALSE(nowhere);
  EXPECT_NE(nowhere.error().message.find("0.0.0.0"), std::string::npos);
  // The port can be bound again at once, in whatever state the old connections are.
  const uint16_t port = server_->port();
  RawClient client(*server_);
  client.send(get_request("/hold"));
  next();
  server_.reset();
  serve({.port = port});
  EXPECT_EQ(server_->port(), port);
}

}  // namespace
}  // namespace fathom::http
