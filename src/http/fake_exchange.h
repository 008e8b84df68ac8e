// For tests: an Exchange that records the answer and runs posted work when told to.
#pragma once

#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "http/http.h"

namespace fathom::http {

class FakeExchange : public Exchange {
 public:
  void respond(int status, std::vector<Header> headers, std::string body) override {
    record(status, std::move(headers));
    text += body;
    ended = true;
  }
  void begin_stream(int status, std::vector<Header> headers, std::optional<Ping> every) override {
    record(status, std::move(headers));
    streaming = true;
    ping      = std::move(every);
  }
  void write(std::string piece) override {
    misuse |= ended || !streaming;
    ++calls;
    text += piece;
    writes.push_back(std::move(piece));
  }
  void end() override {
    misuse |= ended || !streaming;
    ++calls;
    ended = true;
  }
  void post(std::function<void()> work) override {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
  }
  void on_gone(std::function<void()> gone) override { gone_ = std::move(gone); }

  // Runs all posted work, including what it posts itself.
  void run() {
    while (true) {
      std::function<void()> work;
      {
        const std::lock_guard lock(mutex_);
        if (work_.empty()) return;
        work = std::move(work_.front());
        work_.pop_front();
      }
      work();
    }
  }
  void leave() {
    if (auto gone = std::exchange(gone_, nullptr); gone && !ended) gone();
  }

  std::string header(std::string_view name) const {
    return std::string(Request{.headers = headers}.header(name));
  }

  int status = 0;  // 0: no answer yet
  std::vector<Header> headers;
  std::string text;                 // body, or the whole stream
  std::vector<std::string> writes;  // of a stream
  std::optional<Ping> ping;         // of a stream
  bool streaming = false, ended = false;
  bool misuse = false;  // answered twice, or written to before begin_stream() or after end()
  int calls   = 0;      // of functions that send

 private:
  void record(int code, std::vector<Header> given) {
    misuse |= status != 0;
    ++calls;
    status  = code;
    headers = std::move(given);
  }

  std::mutex mutex_;
  std::deque<std::function<void()>> work_;
  std::function<void()> gone_;
};

}  // namespace fathom::http
