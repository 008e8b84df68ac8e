// Silence on either side: streams without events, and clients that confirm nothing.
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include "http/raw_client.h"
#include "http/server.h"
#include "http/server_fixture.h"

namespace fathom::http {
namespace {

using namespace std::chrono_literals;

TEST_F(ServerTest, StreamsThatAreSilentPing) {
  constexpr auto kSilence = 40ms;
  ping_                   = {.piece = ": ping\n\n", .after = kSilence};
  serve({.idle_timeout = 80ms});  // the sweep then runs every 10 ms
  RawClient client(*server_);
  client.send(get_request("/stream"));
  const auto exchange = next();
  EXPECT_EQ(client.head().status, 200);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(client.chunk(), ": ping\n\n");

  // The silence is measured from the last write.
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

  // Complete answers and answers that are no streams get no pings.
  exchange->end();
  std::optional<std::string> chunk = client.chunk();
  while (chunk == ": ping\n\n") chunk = client.chunk();
  EXPECT_EQ(chunk, "");
  client.send(get_request("/hold"));
  const auto held = next();
  std::this_thread::sleep_for(3 * kSilence);
  held->respond(200, {}, "at last");
  EXPECT_EQ(client.reply().body, "at last");
}

TEST_F(ServerTest, AHeadOfAStreamHasNoPings) {
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

// The kernel has taken every byte, so none waits in the server.
TEST_F(ServerTest, DropsClientsThatConfirmNothing) {
  serve({.write_timeout = 100ms});
  RawClient client(*server_, 4096);
  client.send(get_request("/stream"));
  const auto exchange = next();
  exchange->write(std::string(40'000, 'x'));
  EXPECT_TRUE(eventually([&] { return gone_ == 1; }));
  EXPECT_EQ(server_->stats().dropped_stalled, 1);
  EXPECT_TRUE(all_closed());
}

}  // namespace
}  // namespace fathom::http
