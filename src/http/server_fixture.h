// For tests of the HTTP server: a server whose application the test controls.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "http/raw_client.h"
#include "http/server.h"

namespace fathom::http {

// The application: /echo answers at once with the request; every other exchange is kept for the test.
class ServerTest : public testing::Test {
 protected:
  using ExchangePtr = std::shared_ptr<Exchange>;

  void serve(ServerOptions options = {}) {
    auto server = Server::listen(options, [this](Request request, ExchangePtr exchange) {
      ++handled_;
      if (request.path == "/echo")
        return exchange->respond(200, {{"Content-Type", "text/plain"}}, echo(request));
      if (request.path == "/drop") return;
      if (request.path == "/throw") throw std::runtime_error("a \"bad\" day");
      exchange->on_gone([this] { ++gone_; });
      if (request.path == "/stream")
        exchange->begin_stream(200, {{"Content-Type", "text/event-stream"}}, ping_);
      const std::lock_guard lock(mutex_);
      held_.push_back(std::move(exchange));
      arrived_.notify_all();
    });
    ASSERT_TRUE(server) << server.error().message;
    server_ = std::move(*server);
  }
  void TearDown() override { server_.reset(); }

  static std::string echo(const Request& request) {
    return fmt::format("{} {} {} {}", request.method, request.path, request.query, request.body);
  }
  ExchangePtr next() {
    std::unique_lock lock(mutex_);
    if (!arrived_.wait_for(lock, kDeadline, [&] { return !held_.empty(); })) return nullptr;
    auto exchange = held_.front();
    held_.pop_front();
    return exchange;
  }
  bool all_closed() {
    return eventually([&] { return server_->stats().connections == 0; });
  }

  std::optional<Ping> ping_;  // of /stream; set before serve()

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<ExchangePtr> held_;
  std::atomic<int> handled_ = 0, gone_ = 0;
  std::unique_ptr<Server> server_;
};

}  // namespace fathom::http
