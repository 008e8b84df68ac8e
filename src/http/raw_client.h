// For tests of the HTTP server: a blocking socket and a minimal HTTP parser, independent of Asio and Beast.
#pragma once

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "http/server.h"

namespace fathom::http {

// Only a test that fails waits this long.
inline constexpr std::chrono::seconds kDeadline{20};

template <class F>
bool eventually(F condition) {
  const auto until = std::chrono::steady_clock::now() + kDeadline;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

struct RawReply {
  int status = 0;  // 0: no answer
  std::map<std::string, std::string> headers;
  std::string body;
  bool whole = false;
};

class RawClient {
 public:
  explicit RawClient(const Server& server, int receive_buffer = 0) : RawClient(receive_buffer) {
    connect(server);
  }
  // Not connected.
  explicit RawClient(int receive_buffer = 0) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_buffer > 0) ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    const int yes = 1;  // so that bytes sent separately arrive separately
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    const timeval limit{.tv_sec = kDeadline.count()};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }
  void connect(const Server& server) {
    sockaddr_in address{.sin_family = AF_INET, .sin_port = htons(server.port())};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_              = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  RawClient(RawClient&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), connected_(other.connected_), read_(std::move(other.read_)) {}
  ~RawClient() { close(); }

  bool connected() const { return connected_; }
  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  void reset() {
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close();
  }
  void half_close() { ::shutdown(fd_, SHUT_WR); }

  void send_timeout(std::chrono::milliseconds timeout) {
    const timeval limit{.tv_usec = timeout.count() * 1000};
    ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  }
  // False where the server has closed, or does not read.
  bool send(std::string_view text) {
    while (!text.empty()) {
      const ssize_t sent = ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      text.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }

  // The bytes up to and including `mark`; none where the connection ended before.
  std::optional<std::string> until(std::string_view mark) {
    size_t at;
    while ((at = read_.find(mark)) == std::string::npos)
      if (!more()) return std::nullopt;
    return take(at + mark.size());
  }
  std::optional<std::string> exactly(size_t size) {
    while (read_.size() < size)
      if (!more()) return std::nullopt;
    return take(size);
  }
  // The next chunk of a stream; "" for the last one.
  std::optional<std::string> chunk() {
    const auto line = until("\r\n");
    if (!line) return std::nullopt;
    auto piece = exactly(std::stoul(*line, nullptr, 16));
    if (!piece || exactly(2) != "\r\n") return std::nullopt;
    return piece;
  }

  RawReply head() {
    RawReply reply;
    const auto line = until("\r\n");
    if (!line || !line->starts_with("HTTP/1.1 ")) return reply;
    while (true) {
      const auto field = until("\r\n");
      if (!field) return {};
      if (*field == "\r\n") break;
      const size_t colon = field->find(": ");
      if (colon == std::string::npos ||
          !reply.headers.emplace(field->substr(0, colon), field->substr(colon + 2, field->size() - colon - 4))
               .second)
        return {};
    }
    reply.status = std::stoi(line->substr(9));
    return reply;
  }

  RawReply reply(bool bodiless = false) {
    RawReply reply = head();
    if (bodiless || reply.status == 204) {
      reply.whole = reply.status != 0;
    } else if (const auto length = reply.headers.find("Content-Length"); length != reply.headers.end()) {
      const auto body = exactly(std::stoul(length->second));
      reply.whole     = body.has_value();
      reply.body      = body.value_or(read_);
    } else if (reply.headers.contains("Transfer-Encoding")) {
      while (const auto piece = chunk()) {
        reply.whole = piece->empty();
        if (reply.whole) break;
        reply.body += *piece;
      }
    } else if (reply.status != 0) {
      reply.whole = ended();
      reply.body  = read_;
    }
    return reply;
  }

  // Reads until the server closes; the bytes are in rest(). False where it does not close.
  bool ended() {
    while (more()) {
    }
    return closed_;
  }
  bool was_reset() const { return reset_; }
  const std::string& rest() const { return read_; }

 private:
  bool more() {
    char bytes[16 << 10];
    const ssize_t count = ::recv(fd_, bytes, sizeof bytes, 0);
    reset_              = count < 0 && errno == ECONNRESET;
    closed_             = count == 0 || reset_;
    if (count > 0) read_.append(bytes, static_cast<size_t>(count));
    return count > 0;
  }
  std::string take(size_t size) {
    std::string text = read_.substr(0, size);
    read_.erase(0, size);
    return text;
  }

  int fd_;
  bool connected_ = false, closed_ = false, reset_ = false;
  std::string read_;
};

inline std::string get_request(std::string_view target, std::string_view headers = "") {
  return fmt::format("GET {} HTTP/1.1\r\nHost: test\r\n{}\r\n", target, headers);
}
inline std::string post_request(std::string_view target, std::string_view body) {
  return fmt::format("POST {} HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n\r\n{}", target, body.size(),
                     body);
}

// The status of an error in the server's format, followed by a close; 0 for anything else.
inline int refused_with(RawClient& client) {
  const RawReply reply = client.reply();
  const auto json      = nlohmann::json::parse(reply.body, nullptr, false);
  if (!reply.whole || json.is_discarded() || !json.contains("error") || !client.ended()) return 0;
  const auto& error = json["error"];
  if (!error["message"].is_string() || !error["type"].is_string() || !error["param"].is_null()) return 0;
  if (reply.headers.at("Connection") != "close" || error["code"] != reply.status) return 0;
  return reply.status;
}

}  // namespace fathom::http
