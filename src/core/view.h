// View<T, Rank>: a non-owning array: pointer, extents and strides in elements. Trivially copyable, so it is
// passed to kernels by value. Names as in std::mdspan.
#pragma once

#include <cstdint>
#include <type_traits>

namespace fathom {

#if defined(__CUDACC__)
#define FATHOM_HD __host__ __device__
#else
#define FATHOM_HD
#endif

template <class T, int Rank>
class View {
  static_assert(Rank >= 1);

 public:
  using value_type = T;

  View() = default;

  // Row-major (the last index is contiguous).
  FATHOM_HD constexpr View(T* data, const int64_t (&extents)[Rank]) : data_(data) {
    int64_t stride = 1;
    for (int r = Rank - 1; r >= 0; --r) {
      extents_[r] = extents[r];
      strides_[r] = stride;
      stride *= extents[r];
    }
  }

  FATHOM_HD constexpr View(T* data, const int64_t (&extents)[Rank], const int64_t (&strides)[Rank])
      : data_(data) {
    for (int r = 0; r < Rank; ++r) {
      extents_[r] = extents[r];
      strides_[r] = strides[r];
    }
  }

  // Converts a mutable view to a const one.
  template <class U, class = std::enable_if_t<std::is_same_v<T, const U>>>
  FATHOM_HD constexpr View(const View<U, Rank>& other) : data_(other.data()) {
    for (int r = 0; r < Rank; ++r) {
      extents_[r] = other.extent(r);
      strides_[r] = other.stride(r);
    }
  }

  template <class... I>
  FATHOM_HD constexpr T& operator()(I... index) const {
    static_assert(sizeof...(I) == Rank, "one index per dimension");
    const int64_t indices[Rank] = {static_cast<int64_t>(index)...};
    int64_t offset              = 0;
    for (int r = 0; r < Rank; ++r) offset += indices[r] * strides_[r];
    return data_[offset];
  }

  FATHOM_HD constexpr T* data() const { return data_; }
  FATHOM_HD constexpr int64_t extent(int r) const { return extents_[r]; }
  FATHOM_HD constexpr int64_t stride(int r) const { return strides_[r]; }
  FATHOM_HD constexpr int64_t size() const {
    int64_t n = 1;
    for (int r = 0; r < Rank; ++r) n *= extents_[r];
    return n;
  }
  FATHOM_HD constexpr int64_t bytes() const { return size() * static_cast<int64_t>(sizeof(T)); }
  FATHOM_HD constexpr bool contiguous() const {
    int64_t stride = 1;
    for (int r = Rank - 1; r >= 0; --r) {
      if (extents_[r] != 1 && strides_[r] != stride) return false;
      stride *= extents_[r];
    }
    return true;
  }

 private:
  T* data_               = nullptr;
  int64_t extents_[Rank] = {};
  int64_t strides_[Rank] = {};
};

}  // namespace fathom
