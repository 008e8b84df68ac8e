// The phase of a child, on a page of memory shared with its parent. Posting costs no system call and wakes no
// thread, so the child posts before every sample. The last post survives the child.
#pragma once

#include <string>
#include <string_view>

namespace fathom::lab {

class PhaseBoard {
 public:
  struct Phase {
    std::string variant, phase;
    double fraction = 0;  // of the point that is done
    double seconds  = 0;  // since it was posted
  };

  static PhaseBoard create();      // parent
  static PhaseBoard open(int fd);  // child
  ~PhaseBoard();
  PhaseBoard(PhaseBoard&& other) noexcept;
  PhaseBoard& operator=(PhaseBoard&&) = delete;

  int fd() const { return fd_; }
  void post(std::string_view variant, std::string_view phase, double fraction);
  Phase read() const;

 private:
  struct Page;
  PhaseBoard(int fd, Page* page) : fd_(fd), page_(page) {}
  int fd_;
  Page* page_;
};

}  // namespace fathom::lab
