// What a child is doing, on a page of memory that its parent looks at. Posting costs no system call and wakes
// nobody, so it may happen before every sample; what was posted last survives the child.
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
