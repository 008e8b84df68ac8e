// For tests: a server on a local socket that sends exactly the bytes that the test gives it.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "core/expect.h"

namespace fathom::http {

class ScriptedServer {
 public:
  // A request that has arrived, and the socket for the answer.
  struct Exchange {
    int socket;
    int connection;    // counted from 0
    std::string head;  // request line and headers
    std::string body;

    // Sends pieces of at most `cut` bytes, each in a packet of its own if the kernel allows it. False: nobody
    // reads.
    bool send(std::string_view bytes, size_t cut = SIZE_MAX) const {
      for (; !bytes.empty(); bytes.remove_prefix(std::min(cut, bytes.size())))
        if (::send(socket, bytes.data(), std::min(cut, bytes.size()), MSG_NOSIGNAL) < 0) return false;
      return true;
    }
    void wait_until_closed() const {  // by the other side
      char byte;
      while (::recv(socket, &byte, 1, 0) > 0) {
      }
    }
  };
  // Runs on the connection's thread. True keeps the connection open for the next request.
  using Answer = std::function<bool(const Exchange&)>;

  explicit ScriptedServer(Answer answer) : answer_(std::move(answer)) {
    listener_ = FATHOM_SYSTEM(::socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in address{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    FATHOM_SYSTEM(::bind(listener_, reinterpret_cast<sockaddr*>(&address), size));
    FATHOM_SYSTEM(::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size));
    FATHOM_SYSTEM(::listen(listener_, 4096));
    port_   = ntohs(address.sin_port);
    accept_ = std::thread([this] { accept(); });
  }
  ~ScriptedServer() {
    ::shutdown(listener_, SHUT_RDWR);
    accept_.join();
    ::close(listener_);
    {
      const std::lock_guard lock(mutex_);
      for (const int socket : sockets_) ::shutdown(socket, SHUT_RDWR);
    }
    for (std::thread& thread : threads_) thread.join();
    for (const int socket : sockets_) ::close(socket);
  }

  uint16_t port() const { return port_; }
  int connections() const { return connections_; }

 private:
  void accept() {
    for (;;) {
      const int socket = ::accept(listener_, nullptr, nullptr);
      if (socket < 0) return;
      const int one = 1;
      ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
      const std::lock_guard lock(mutex_);
      sockets_.push_back(socket);
      threads_.emplace_back([this, socket, connection = connections_++] { serve(socket, connection); });
    }
  }

  void serve(int socket, int connection) {
    std::string buffer;
    const auto more = [&] {
      char bytes[4096];
      const ssize_t got = ::recv(socket, bytes, sizeof bytes, 0);
      if (got > 0) buffer.append(bytes, static_cast<size_t>(got));
      return got > 0;
    };
    for (;;) {
      size_t end;
      while ((end = buffer.find("\r\n\r\n")) == std::string::npos)
        if (!more()) return;
      Exchange exchange{.socket = socket, .connection = connection, .head = buffer.substr(0, end + 2)};
      buffer.erase(0, end + 4);
      const size_t length = exchange.head.find("Content-Length: ");
      const size_t bytes =
          length == std::string::npos ? 0 : std::strtoull(exchange.head.c_str() + length + 16, nullptr, 10);
      while (buffer.size() < bytes)
        if (!more()) return;
      exchange.body = buffer.substr(0, bytes);
      buffer.erase(0, bytes);
      if (answer_(exchange)) continue;
      // The destructor closes the descriptor: until then its number is not reused.
      ::shutdown(socket, SHUT_RDWR);
      return;
    }
  }

  Answer answer_;
  int listener_  = -1;
  uint16_t port_ = 0;
  std::atomic<int> connections_{0};
  std::thread accept_;
  std::mutex mutex_;
  std::vector<int> sockets_;
  std::vector<std::thread> threads_;
};

// The head of a chunked stream, one chunk, and the end.
inline constexpr std::string_view kStreamHead =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
inline constexpr std::string_view kStreamEnd = "0\r\n\r\n";
inline std::string chunk(std::string_view bytes) {
  char size[20];
  std::snprintf(size, sizeof size, "%zx\r\n", bytes.size());
  return size + std::string(bytes) + "\r\n";
}

}  // namespace fathom::http
