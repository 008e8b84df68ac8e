// Buffer: owned host memory, aligned to cache lines, not initialised. The kernel allocates a page at its
// first touch, so unused parts cost nothing. Large buffers ask for huge pages.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <type_traits>

#include "core/expect.h"
#include "core/view.h"

namespace fathom {

template <class T>
class Buffer {
  static_assert(std::is_trivial_v<T>, "constructors do not run");

 public:
  Buffer() = default;
  // Throws std::bad_alloc.
  explicit Buffer(int64_t size) : size_(size) {
    FATHOM_EXPECT(size >= 0, "a buffer's size is negative");
    const size_t bytes     = static_cast<size_t>(size) * sizeof(T);
    const size_t alignment = bytes >= 8 * kHugePage ? kHugePage : kLine;
    const size_t rounded   = (bytes + alignment - 1) / alignment * alignment;
    if (rounded == 0) return;
    data_.reset(static_cast<T*>(std::aligned_alloc(alignment, rounded)));
    if (!data_) throw std::bad_alloc();
    if (alignment == kHugePage) madvise(data_.get(), rounded, MADV_HUGEPAGE);  // a hint
  }

  T* data() const { return data_.get(); }
  int64_t size() const { return size_; }
  View<T, 1> view() const { return View<T, 1>(data(), {size_}); }
  // A view of the first elements in another shape.
  template <int Rank>
  View<T, Rank> as(const int64_t (&extents)[Rank]) const {
    const View<T, Rank> view(data(), extents);
    FATHOM_EXPECT(view.size() <= size_, "a view is larger than its buffer");
    return view;
  }

 private:
  static constexpr size_t kLine = 64, kHugePage = size_t{2} << 20;
  struct Free {
    void operator()(T* data) const { std::free(data); }
  };
  std::unique_ptr<T, Free> data_;
  int64_t size_ = 0;
};

}  // namespace fathom
