// Silence on either side: streams that have nothing to say, and clients that confirm nothing.
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include "serve/http_server.h"
#include "serve/http_server_fixture.h"
#include "serve/raw_http_client.h"

namespace fathom::serve {
namespace {

using namespace std::chrono_literals;

TEST_F(HttpServerTest, StreamsThatAreSilentPing) {
  constexpr auto kSilence = 40ms;
  ping_                   = {.piece = ": ping\n\n", .after = kSilence};
  serve({.idle_timeout = 80ms});  // so that it looks every 10 ms
  RawClient client(*server_);
  client.send(http_get("/stream"));
  const auto exchange = next();
  EXPECT_EQ(client.head().status, 200);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(client.chunk(), ": ping\n\n");

  // Who says something is silent from then on, not before.
  for (int i = 0; i < 5; ++i) {
    std::this_thread::sleep_for(kSilence / 2);
    const auto written = std::chrono::steady_clock::now();
    exchange->write("piece");
    std::optional<std::string> chunk = client.chunk();
    while (chunk == ": ping\n\n") chunk = client.chunk();
    EXPECT_EQ(chunk, "piece");
    EXPECT_EQ(client.chunk(), ": ping\n\n");
    EXPECT_GE(std::chrono::steady_clock::now() - written, kSilence);
  }

  // An answer that is whole, and one that is no stream, are left alone.
  exchange->end();
  std::optional<std::string> chunk = client.chunk();
  while (chunk == ": ping\n\n") chunk = client.chunk();
  EXPECT_EQ(chunk, "");
  client.send(http_get("/hold"));
  const auto held = next();
  std::this_thread::sleep_for(3 * kSilence);
  held->respond(200, {}, "at last");
  EXPECT_EQ(client.reply().body, "at last");
}

TEST_F(HttpServerTest, AHeadOfAStreamHasNoPings) {
  ping_ = {.piece = "x", .after = 1ms};
  serve({.idle_timeout = 40ms});
  RawClient client(*server_);
  client.send("HEAD /stream HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n");
  const auto exchange = next();
  EXPECT_EQ(client.head().status, 200);
  std::this_thread::sleep_for(30ms);
  exchange->end();
  EXPECT_TRUE(client.ended());
  EXPECT_EQ(client.rest(), "");
}

// The kernel has taken all of it, so that nothing waits here.
TEST_F(HttpServerTest, DropsClientsThatConfirmNothing) {
  serve({.write_timeout = 100ms});
  RawClient client(*server_, 4096);
  client.send(http_get("/stream"));
  const auto exchange = next();
  exchange->write(std::string(40'000, 'x'));
  EXPECT_TRUE(eventually([&] { return gone_ == 1; }));
  EXPECT_EQ(server_->stats().dropped_stalled, 1);
  EXPECT_TRUE(all_closed());
}

}  // namespace
}  // namespace fathom::serve
