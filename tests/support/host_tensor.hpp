#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "tessera/base/half.hpp"
#include "tessera/base/view.hpp"

namespace tessera::test {

/// Elements of any dtype on the heap, read and written as doubles. Never null, so that zero
/// elements have an address too.
class HostTensor {
 public:
  HostTensor(DType dtype, std::int64_t elems, double value = 0.0)
      : dtype_{dtype}, elems_{elems}, bytes_(static_cast<std::size_t>(elems) * size_of(dtype) + 1) {
    if (value == 0.0) { return; }  // the bytes are already 0
    for (std::int64_t i = 0; i < elems; ++i) { set(i, value); }
  }

  [[nodiscard]] View view() noexcept { return {bytes_.data(), elems_, dtype_}; }
  [[nodiscard]] std::int64_t elems() const noexcept { return elems_; }
  [[nodiscard]] DType dtype() const noexcept { return dtype_; }

  void set(std::int64_t i, double value) {
    switch (dtype_) {
      case DType::fp64:
        return put(i, value);
      case DType::fp32:
        return put(i, static_cast<float>(value));
      case DType::bf16:
        return put(i, bfloat16::from_float(static_cast<float>(value)));
      case DType::fp16:
        return put(i, float16::from_float(static_cast<float>(value)));
    }
  }

  [[nodiscard]] double at(std::int64_t i) const {
    switch (dtype_) {
      case DType::fp64:
        return take<double>(i);
      case DType::fp32:
        return take<float>(i);
      case DType::bf16:
        return take<bfloat16>(i).to_float();
      case DType::fp16:
        return take<float16>(i).to_float();
    }
    return 0.0;
  }

  /// Compares bits.
  friend bool operator==(const HostTensor& a, const HostTensor& b) {
    return a.dtype_ == b.dtype_ && a.elems_ == b.elems_ && a.bytes_ == b.bytes_;
  }

 private:
  template <class T>
  void put(std::int64_t i, T value) {
    std::memcpy(bytes_.data() + static_cast<std::size_t>(i) * sizeof(T), &value, sizeof(T));
  }
  template <class T>
  [[nodiscard]] T take(std::int64_t i) const {
    T value;
    std::memcpy(&value, bytes_.data() + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
    return value;
  }

  DType dtype_;
  std::int64_t elems_;
  std::vector<std::byte> bytes_;
};

inline const std::vector<DType> kDTypes{DType::fp32, DType::bf16, DType::fp16, DType::fp64};

}  // namespace tessera::test
