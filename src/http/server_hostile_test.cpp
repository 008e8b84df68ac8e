// Misbehaving clients: malformed, oversized, slow or abandoned requests.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "http/raw_client.h"
#include "http/server_fixture.h"

namespace fathom::http {
namespace {

using namespace std::chrono_literals;
using namespace std::string_literals;

TEST_F(ServerTest, MalformedRequestsAreRefused) {
  serve();
  const std::pair<std::string, int> cases[] = {
      {"nonsense\r\n\r\n", 400},
      {"GET /echo\r\n\r\n", 400},
      {"GET  /echo HTTP/1.1\r\nHost: t\r\n\r\n", 400},
      {"GET /echo HTTP/2.0\r\nHost: t\r\n\r\n", 400},
      {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400},
      {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"s, 400},  // TLS
      {"GET /a\0b HTTP/1.1\r\nHost: t\r\n\r\n"s, 400},
      {"GET /echo HTTP/1.1\r\nHost: t\r\nX: a\0b\r\n\r\n"s, 400},
      {"GET /echo HTTP/1.1\r\nHost: t\r\nX : a\r\n\r\n", 400},
      {"GET /echo HTTP/1.1\nHost: t\n\n", 400},
      {"GET /echo HTTP/1.1\r\n\r\n", 400},  // no Host
      {"GET /echo HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400},
      {get_request("/%"), 400},
      {get_request("/%zz"), 400},
      {get_request("/%00"), 400},
      {get_request("/%ff"), 400},
      {get_request("echo"), 400},
      {"CONNECT host:80 HTTP/1.1\r\nHost: t\r\n\r\n", 400},
      {get_request("/echo", "Content-Length: x\r\n"), 400},
      {get_request("/echo", "Content-Length: -1\r\n"), 400},
      {get_request("/echo", "Content-Length: 99999999999999999999\r\n"), 400},
      {get_request("/echo", "Content-Length: 1\r\nContent-Length: 2\r\n"), 400},
      {get_request("/echo", "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n"), 400},
      {get_request("/echo", "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n"), 400},
      {get_request("/echo", "Transfer-Encoding: gzip\r\n"), 501},
      {get_request("/echo", "Transfer-Encoding: gzip, chunked\r\n"), 501},
      {get_request("/echo", "Transfer-Encoding: chunked, identity\r\n"), 501},
      {get_request("/echo", "Transfer-Encoding: chunked\r\n") + "zz\r\nabc\r\n", 400},
      {get_request("/echo", "Transfer-Encoding: chunked\r\n") + "-1\r\nabc\r\n", 400},
      {get_request("/echo", "Transfer-Encoding: chunked\r\n") + "3\r\nabcdef\r\n0\r\n\r\n", 400},
      {get_request("/echo", "Transfer-Encoding: chunked\r\n") + "11111111111111111\r\nabc\r\n", 400},
      {get_request("/echo", "Transfer-Encoding: chunked\r\n") + "fffffffffffffff\r\nabc\r\n", 413},
  };
  for (const auto& [request, status] : cases) {
    RawClient client(*server_);
    client.send(request);
    EXPECT_EQ(refused_with(client), status) << request;
  }
  EXPECT_EQ(handled_, 0);
  RawClient client(*server_);
  client.send(get_request("/echo"));
  EXPECT_EQ(client.reply().status, 200);
}

TEST_F(ServerTest, LimitsHeadsAndBodies) {
  serve({.max_header_bytes = 2000, .max_body_bytes = 5000});
  const auto status = [&](const std::string& request) {
    RawClient client(*server_);
    // The server may refuse before it has read everything.
    std::thread sender([&] { client.send(request); });
    const RawReply reply = client.reply();
    if (reply.status >= 400) {
      EXPECT_TRUE(client.ended());
      EXPECT_FALSE(client.was_reset());  // a reset could lose the answer
    }
    sender.join();
    return reply.status;
  };
  const std::string chunked = get_request("/echo", "Transfer-Encoding: chunked\r\n");
  const auto chunks         = [&](int count) {
    std::string text = chunked;
    for (int i = 0; i < count; ++i) text += "3e8\r\n" + std::string(1000, 'x') + "\r\n";
    return text + "0\r\n\r\n";
  };
  EXPECT_EQ(status(get_request("/echo", "X: " + std::string(1900, 'x') + "\r\n")), 200);
  EXPECT_EQ(status(get_request("/echo", "X: " + std::string(2000, 'x') + "\r\n")), 431);
  EXPECT_EQ(status(get_request("/" + std::string(3000, 'x'))), 431);
  EXPECT_EQ(status(std::string(100'000, 'x')), 431);
  std::string headers;
  for (int i = 0; i < 20'000; ++i) headers += "a: b\r\n";
  EXPECT_EQ(status(get_request("/echo", headers)), 431);
  EXPECT_EQ(status(post_request("/echo", std::string(5000, 'x'))), 200);
  EXPECT_EQ(status(post_request("/echo", std::string(5001, 'x'))), 413);
  EXPECT_EQ(status(post_request("/echo", std::string(3'000'000, 'x'))), 413);
  EXPECT_EQ(status(get_request("/echo", "Content-Length: 18446744073709551615\r\n")), 413);
  EXPECT_EQ(status(chunks(5)), 200);
  EXPECT_EQ(status(chunks(6)), 413);
  EXPECT_EQ(status(chunked + "1;" + std::string(100'000, 'x')), 431);
  EXPECT_EQ(status(chunked + "0\r\n" + headers), 431);
}

TEST_F(ServerTest, LimitsTheBytesOfAllBodies) {
  serve({.max_body_bytes = 5000, .max_bodies_bytes = 8000});
  const auto status_of = [&](size_t bytes) {
    RawClient client(*server_);
    client.send(post_request("/echo", std::string(bytes, 'x')));
    const RawReply reply = client.reply();
    if (reply.status == 503) {
      EXPECT_EQ(reply.headers.at("Retry-After"), "1");
      EXPECT_EQ(reply.headers.at("Connection"), "close");
      EXPECT_TRUE(client.ended());
    }
    return reply.status;
  };
  const auto expecting = [](int length) {
    return fmt::format("POST /echo HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: {}\r\n\r\n",
                       length);
  };
  RawClient first(*server_);
  first.send(expecting(5000));
  ASSERT_TRUE(first.until("100 Continue\r\n\r\n"));  // the server has accepted the length
  EXPECT_EQ(status_of(3001), 503);
  EXPECT_EQ(status_of(3000), 200);
  EXPECT_EQ(status_of(3000), 200);
  RawClient second(*server_);
  second.send(expecting(4000));
  EXPECT_EQ(refused_with(second), 503);  // before the body is sent
  first.send(std::string(5000, 'x'));
  EXPECT_EQ(first.reply().status, 200);
  EXPECT_EQ(status_of(5000), 200);

  // A chunked body counts as it arrives, and until its client leaves.
  const std::string chunked = get_request("/echo", "Transfer-Encoding: chunked\r\n");
  RawClient growing(*server_);
  growing.send(chunked + "1000\r\n" + std::string(4096, 'x') + "\r\n");
  // Not by asking until it refuses: a request in flight could have the growing one refused.
  EXPECT_TRUE(eventually([&] { return server_->stats().body_bytes == 4096; }));
  EXPECT_EQ(status_of(3905), 503);
  EXPECT_EQ(status_of(3904), 200);
  RawClient beyond(*server_);
  beyond.send(chunked + "fa0\r\n" + std::string(4000, 'x') + "\r\n0\r\n\r\n");
  EXPECT_EQ(refused_with(beyond), 503);
  growing.reset();
  EXPECT_TRUE(eventually([&] { return status_of(5000) == 200; }));

  // A handler that throws or drops the exchange returns its bytes too.
  for (const char* path : {"/drop", "/throw"})
    for (int i = 0; i < 4; ++i) {
      RawClient client(*server_);
      client.send(post_request(path, std::string(5000, 'x')));
      EXPECT_EQ(refused_with(client), 500);
    }
  EXPECT_EQ(status_of(5000), 200);
}

TEST_F(ServerTest, SlowHeadsAreTimedOut) {
  serve({.header_timeout = 60ms});
  RawClient slow(*server_);
  slow.send("GET /echo HTTP/1.1\r\nHost: t\r\nX: ");
  std::atomic<bool> done = false;
  std::thread loris([&] {  // sends one byte after the other, but never a whole head
    while (!done && slow.send("x")) std::this_thread::sleep_for(10ms);
  });
  EXPECT_EQ(refused_with(slow), 408);
  done = true;
  loris.join();

  RawClient silent(*server_);
  EXPECT_TRUE(silent.ended());
  EXPECT_EQ(silent.rest(), "");
}

TEST_F(ServerTest, SlowBodiesAreTimedOut) {
  serve({.header_timeout = 60s, .body_timeout = 60ms});
  RawClient client(*server_);
  client.send("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 10\r\n\r\nabc");
  EXPECT_EQ(refused_with(client), 408);
  EXPECT_EQ(handled_, 0);
}

TEST_F(ServerTest, IdleConnectionsAreClosedAndWaitingOnesAreNot) {
  serve({.idle_timeout = 60ms});
  RawClient patient(*server_), idle(*server_);
  patient.send(get_request("/hold"));
  const auto exchange = next();
  idle.send(get_request("/echo"));
  EXPECT_EQ(idle.reply().status, 200);
  EXPECT_TRUE(idle.ended());
  EXPECT_EQ(idle.rest(), "");
  exchange->respond(200, {}, "at last");
  EXPECT_EQ(patient.reply().body, "at last");
}

TEST_F(ServerTest, NoticesWhenClientsLeave) {
  serve();
  int gone = 0;
  for (const char* target : {"/hold", "/stream"})
    for (const auto leave : {&RawClient::close, &RawClient::reset, &RawClient::half_close}) {
      RawClient client(*server_);
      client.send(get_request(target));
      const auto exchange = next();
      ASSERT_TRUE(exchange);
      EXPECT_EQ(gone_, gone);
      (client.*leave)();
      ++gone;
      EXPECT_TRUE(eventually([&] { return gone_ == gone; }));
      // The functions that send do nothing any more, but posted work still runs.
      std::atomic<bool> worked = false;
      exchange->write("piece");
      exchange->respond(200, {}, "");
      exchange->end();
      exchange->post([&] { worked = true; });
      EXPECT_TRUE(eventually([&] { return worked.load(); }));
    }
  EXPECT_TRUE(all_closed());
  EXPECT_EQ(gone_, gone);
}

TEST_F(ServerTest, NoticesWhoLeavesBehindPipelinedRequests) {
  serve();
  RawClient client(*server_);
  client.send(get_request("/hold") + get_request("/echo") + get_request("/echo"));
  const auto exchange = next();
  client.close();
  EXPECT_TRUE(eventually([&] { return gone_ == 1; }));
  EXPECT_TRUE(all_closed());
  EXPECT_EQ(handled_, 1);
}

TEST_F(ServerTest, RequestsSentAheadWaitOutsideTheServer) {
  serve();
  RawClient client(*server_);
  client.send(get_request("/hold"));
  const auto exchange = next();
  client.send_timeout(200ms);
  const std::string megabyte(1 << 20, 'x');
  int sent = 0;
  while (sent < 200 && client.send(megabyte)) ++sent;
  EXPECT_LT(sent, 200);
  exchange->respond(200, {}, "");
  EXPECT_EQ(client.reply().status, 200);
}

TEST_F(ServerTest, WhatIsAnsweredReachesAHalfClosedClient) {
  serve();
  for (int requests = 1; requests <= 3; ++requests)
    for (int i = 0; i < 300; ++i) {
      RawClient client(*server_);
      for (int sent = 0; sent < requests; ++sent) client.send(get_request("/echo"));
      client.half_close();
      for (int answered = 0; answered < requests; ++answered) EXPECT_EQ(client.reply().body, "GET /echo  ");
      ASSERT_TRUE(client.ended());
    }
}

TEST_F(ServerTest, AHalfClosedClientGetsTheRestOfItsAnswer) {
  serve();
  RawClient client(*server_);
  client.send(get_request("/hold"));
  constexpr size_t kSize = 20'000'000;  // more than the kernel buffers
  next()->respond(200, {}, std::string(kSize, 'x'));
  EXPECT_EQ(client.head().status, 200);
  client.half_close();
  EXPECT_TRUE(client.exactly(kSize).has_value());
  EXPECT_TRUE(client.ended());
  EXPECT_EQ(gone_, 0);
}

TEST_F(ServerTest, DropsClientsThatDoNotReadAStream) {
  serve({.max_unsent_bytes = 50'000});
  RawClient client(*server_, 4096);
  client.send(get_request("/stream"));
  const auto exchange = next();
  const std::string piece(1000, 'x');
  // Tests the bound: what the kernel buffers and our 50 000 bytes.
  std::atomic<int> pieces = 0;
  while (gone_ == 0 && pieces < 10'000) {
    std::atomic<bool> written = false;
    exchange->post([&] {
      exchange->write(piece);
      ++pieces;
      written = true;
    });
    ASSERT_TRUE(eventually([&] { return written.load(); }));
  }
  EXPECT_EQ(gone_, 1);
  EXPECT_GE(pieces, 50);
  EXPECT_LT(pieces, 10'000);
  EXPECT_EQ(server_->stats().dropped_stalled, 1);
  EXPECT_TRUE(all_closed());
  EXPECT_TRUE(client.ended());
}

TEST_F(ServerTest, DropsClientsThatTakeNothingOfAnAnswer) {
  serve({.write_timeout = 60ms});
  RawClient client(*server_, 4096);
  client.send(get_request("/hold"));
  next()->respond(200, {}, std::string(20'000'000, 'x'));
  EXPECT_TRUE(eventually([&] { return server_->stats().dropped_stalled == 1; }));
  EXPECT_FALSE(client.reply().whole);
  EXPECT_EQ(gone_, 0);  // the answer was complete
}

TEST_F(ServerTest, RefusesConnectionsBeyondTheLimit) {
  serve({.max_connections = 2});
  std::vector<RawClient> clients;
  for (int i = 0; i < 2; ++i) {
    clients.emplace_back(*server_);
    clients.back().send(get_request("/echo"));
    EXPECT_EQ(clients.back().reply().status, 200);
  }
  RawClient third(*server_);
  third.send(get_request("/echo"));
  const RawReply head = third.head();
  EXPECT_EQ(head.status, 503);
  EXPECT_EQ(head.headers.at("Retry-After"), "1");
  EXPECT_EQ(head.headers.at("Connection"), "close");
  EXPECT_TRUE(third.ended());
  third.close();
  EXPECT_EQ(server_->stats().refused, 1);
  EXPECT_EQ(handled_, 2);

  // Of hundreds of refused connections that stay open, some are not even answered.
  std::vector<RawClient> stubborn;
  for (int i = 0; i < 200; ++i) stubborn.emplace_back(*server_);
  EXPECT_TRUE(eventually([&] { return server_->stats().accepted == 203; }));
  EXPECT_LE(server_->stats().connections, 2 + 64);
  stubborn.clear();
  clients.clear();
  ASSERT_TRUE(all_closed());
  RawClient after(*server_);
  after.send(get_request("/echo"));
  EXPECT_EQ(after.reply().status, 200);
}

TEST_F(ServerTest, WaitsForDescriptorsWhereThereAreNone) {
  serve();
  RawClient first(*server_);
  first.send(get_request("/echo"));
  EXPECT_EQ(first.reply().status, 200);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  // The client gets the last descriptor, and the server gets none.
  RawClient client;
  const int lowest_free = ::dup(STDOUT_FILENO);
  ASSERT_GE(lowest_free, 0);
  ::close(lowest_free);
  const rlimit none{static_cast<rlim_t>(lowest_free), before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  client.connect(*server_);
  client.send(get_request("/echo"));
  std::this_thread::sleep_for(50ms);  // time enough for a server that would give up
  EXPECT_EQ(handled_, 1);
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(client.reply().status, 200);
}

TEST_F(ServerTest, GarbageDoesItNoHarm) {
  serve({.max_header_bytes = 2000, .max_body_bytes = 2000, .header_timeout = 5s});
  const std::string seeds[] = {
      get_request("/echo?a=b", "Accept: */*\r\n"),
      post_request("/echo", R"({"a": [1, 2, 3]})"),
      get_request("/stream"),
      get_request("/drop"),
      get_request("/echo", "Transfer-Encoding: chunked\r\n") +
          "5\r\nhello\r\n1;a=\"b\"\r\nx\r\n0\r\nT: 1\r\n\r\n",
      "POST /echo HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
      "HEAD /%65cho HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
  };
  const std::string_view morsels[] = {"\r\n",
                                      "\r\n\r\n",
                                      "\n",
                                      ":",
                                      " ",
                                      "%",
                                      "%00",
                                      "0\r\n",
                                      "chunked",
                                      "\t",
                                      "\xff",
                                      "Content-Length: ",
                                      "Transfer-Encoding: chunked\r\n",
                                      "ffffffffffffffff",
                                      ";",
                                      "HTTP/1.1"};
  std::mt19937_64 random(5);
  const auto below = [&](size_t n) { return n == 0 ? 0 : random() % n; };
  for (int i = 0; i < 2000; ++i) {
    std::string input;
    for (size_t requests = 1 + below(3); requests > 0; --requests) input += seeds[below(std::size(seeds))];
    for (size_t changes = below(6); changes > 0; --changes) {
      const size_t at = below(input.size());
      switch (below(4)) {
        case 0:
          input[at] = static_cast<char>(random());
          break;
        case 1:
          input.erase(at, 1 + below(8));
          break;
        case 2:
          input.insert(at, morsels[below(std::size(morsels))]);
          break;
        case 3:
          input.insert(at, input.substr(below(input.size()), below(40)));
          break;
      }
      if (input.empty()) input = "x";
    }
    RawClient client(*server_);
    ASSERT_TRUE(client.connected());
    const size_t cut = below(input.size());
    client.send(std::string_view(input).substr(0, cut));
    client.send(std::string_view(input).substr(cut));
    if (i % 3 == 0) {
      client.reset();
      continue;
    }
    client.half_close();
    ASSERT_TRUE(client.ended()) << input;
    EXPECT_TRUE(client.rest().empty() || client.rest().starts_with("HTTP/1.1 ")) << client.rest();
    const std::lock_guard lock(mutex_);
    held_.clear();
  }
  const std::lock_guard lock(mutex_);
  held_.clear();
  RawClient client(*server_);
  client.send(get_request("/echo?alive"));
  EXPECT_EQ(client.reply().body, "GET /echo alive ");
  client.close();
  EXPECT_TRUE(all_closed());
}

}  // namespace
}  // namespace fathom::http
